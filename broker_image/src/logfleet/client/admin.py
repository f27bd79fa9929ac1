"""Topics, their configuration, and what the cluster says of itself.

Each call is for one thing and raises KafkaError if a broker refuses it; what may succeed later (a leader is being
elected, a connection broke) is tried again until the client's `timeout_ms`. A change whose answer was lost is sent again,
so creating a topic may say TOPIC_ALREADY_EXISTS of its own success, and deleting by name UNKNOWN_TOPIC_OR_PARTITION.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TypeVar

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.connection import Connection
from logfleet.client.errors import KafkaError, NotSupported, raise_for
from logfleet.client.metadata import Node, Topic
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from logfleet.wire.schema import ZERO_UUID

A = TypeVar("A", bound=msgspec.Struct)

# A broker that forwards a request waits for the controller as long as the request allows; then it still has to answer.
FORWARDING_MS = 5_000
BROKER_DEFAULT = -1  # partitions or replicas as the brokers' configuration says (KIP-464)


class ResourceType(IntEnum):
    """What has a configuration (Kafka: ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from, the strongest first (Kafka: ConfigEntry.ConfigSource)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, _value: object) -> "ConfigSource":
        return cls.UNKNOWN


class ConfigEntry(msgspec.Struct, frozen=True):
    """One key of a resource; value is None if it has none or may not be told (sensitive)."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool


class ClusterDescription(msgspec.Struct, frozen=True):
    """controller_id: the broker to which changes are forwarded, or -1. fenced: ids of those of the brokers that may not lead."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...]
    fenced: frozenset[int] = frozenset()


class NewTopic(msgspec.Struct, frozen=True):
    """assignments: partition -> broker ids, instead of numbers; then partitions and replicas must stay -1."""

    name: str
    partitions: int = BROKER_DEFAULT
    replicas: int = BROKER_DEFAULT
    config: Mapping[str, str] = {}
    assignments: Mapping[int, list[int]] = {}


class Admin:
    """Calls through `client`, which stays the caller's to close."""

    def __init__(self, client: Client) -> None:
        self.client = client

    # --- topics

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> bytes:
        """Create a topic; returns its id. Some brokers may hear of it a moment later."""
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=brokers
                )
                for index, brokers in topic.assignments.items()
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in topic.config.items()
            ],
        )

        async def call() -> bytes:
            request = CreateTopicsRequest(
                topics=[wanted],
                timeout_ms=self.client.request_timeout_ms,
                validate_only=validate_only,
            )
            answer = await self._send(request, CreateTopicsResponse)
            row = answer.topics[0]
            raise_for(row.error_code, row.error_message, subject=f"topic {topic.name}")
            return row.topic_id

        return await self.client.retrying(call)

    async def delete_topic(self, name: str, *, topic_id: bytes | None = None) -> None:
        """Delete a topic with all its records; with `topic_id` only that one, not a later one of the same name.

        Without it, the one that has the name now: after a lost answer only that one is deleted, by its id (KIP-516), unless
        the brokers have no ids.
        """
        wanted = topic_id
        sent = False

        async def call() -> None:
            nonlocal wanted, sent
            if wanted is None and not sent:
                found = await self._find(name)
                wanted = None if found is None or found.topic_id == ZERO_UUID else found.topic_id
            state = DeleteTopicsRequest.DeleteTopicState(name=name)
            if wanted is not None:
                state = DeleteTopicsRequest.DeleteTopicState(topic_id=wanted)
            request = DeleteTopicsRequest(topics=[state], timeout_ms=self.client.request_timeout_ms)
            again, sent = sent, True
            answer = await self._send(request, DeleteTopicsResponse)
            row = answer.responses[0]
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and again:
                return  # an attempt whose answer was lost has deleted it
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and topic_id is None:
                wanted, sent = None, False  # who told us the id was behind the controller: ask anew
                raise KafkaError(row.error_code, row.error_message, subject=f"topic {name}")
            _fail_at_once_if_unknown(row.error_code, row.error_message, f"topic {name}")

        await self.client.retrying(call)
        self.client.metadata.forget([name])

    async def create_partitions(
        self, name: str, total: int, *, validate_only: bool = False
    ) -> None:
        """Make the topic have `total` partitions, which must be more than it has.

        A refusal after a lost answer is its own success if the topic has `total` by then.
        """
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=total, assignments=None
        )
        sent = False

        async def call() -> None:
            nonlocal sent
            request = CreatePartitionsRequest(
                topics=[wanted],
                timeout_ms=self.client.request_timeout_ms,
                validate_only=validate_only,
            )
            again, sent = sent, True
            answer = await self._send(request, CreatePartitionsResponse)
            row = answer.results[0]
            if row.error_code == ErrorCode.INVALID_PARTITIONS and again and not validate_only:
                found = await self._find(name)
                if found is not None and len(found.partitions) == total:
                    return  # an attempt whose answer was lost has made them
            _fail_at_once_if_unknown(row.error_code, row.error_message, f"topic {name}")

        await self.client.retrying(call)
        self.client.metadata.forget([name])

    async def list_topics(self) -> list[Topic]:
        """All topics, sorted by name, internal ones included."""
        topics = await self.client.retrying(lambda: self.client.fetch_topics(None))
        return sorted(topics, key=lambda topic: topic.name)

    async def find_topic(self, name: str) -> Topic | None:
        """The topic as a broker knows it now; None if there is none."""
        return await self.client.retrying(lambda: self._find(name))

    async def _find(self, name: str) -> Topic | None:
        try:
            return (await self.client.fetch_topics([name]))[0]
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise

    async def eligible_leaders(self, name: str) -> dict[int, tuple[int, ...]]:
        """Eligible leader replicas (KIP-966) by partition, those alone that have some; none if the brokers do not know of them."""
        found: dict[int, tuple[int, ...]] = {}
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None

        async def call() -> DescribeTopicPartitionsResponse:
            topic = DescribeTopicPartitionsRequest.TopicRequest(name=name)
            request = DescribeTopicPartitionsRequest(topics=[topic], cursor=cursor)
            return await self._send(request, DescribeTopicPartitionsResponse)

        while True:
            try:
                answer = await self.client.retrying(call)
            except NotSupported:
                return {}
            for row in answer.topics:
                for each in row.partitions:
                    if each.eligible_leader_replicas:
                        found[each.partition_index] = tuple(each.eligible_leader_replicas)
            if (next_cursor := answer.next_cursor) is None:
                return found
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=next_cursor.topic_name, partition_index=next_cursor.partition_index
            )

    # --- configuration

    async def topic_config(self, name: str) -> dict[str, ConfigEntry]:
        """All keys of a topic, those at their default included."""
        return await self.config(ResourceType.TOPIC, name)

    async def topic_values(self, names: Iterable[str], key: str) -> dict[str, str]:
        """One key of many topics by name, in one request; without topics that are gone by now."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=[key]
                )
                for name in names
            ]
        )
        answer = await self.client.retrying(lambda: self._send(request, DescribeConfigsResponse))
        return {
            result.resource_name: row.value
            for result in answer.results
            for row in result.configs
            if row.value is not None
        }

    async def config(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        """All keys of a resource. A broker's name is its id; "" is what all brokers share."""

        async def call() -> dict[str, ConfigEntry]:
            return await self._config(await self._owner(kind, name), kind, name)

        return await self.client.retrying(call)

    async def alter_config(
        self,
        kind: ResourceType,
        name: str,
        *,
        set_keys: Mapping[str, str],
        delete_keys: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some keys and take others back to their default; all others stay (KIP-339)."""
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=0, value=value
            )
            for key, value in set_keys.items()
        ]
        configs += [
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=1, value=None)
            for key in delete_keys
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )

        async def call() -> None:
            connection = await self._owner(kind, name)
            answer = await connection.request(
                IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only),
                IncrementalAlterConfigsResponse,
                timeout_ms=self.client.request_timeout_ms,
            )
            row = answer.responses[0]
            subject = f"{kind.name.lower()} {name}"
            _fail_at_once_if_unknown(row.error_code, row.error_message, subject)

        await self.client.retrying(call)

    # --- cluster

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Id, controller and registered brokers, as some broker knows them now. include_fenced: also those that may not lead (KIP-1073)."""
        request = DescribeClusterRequest(include_fenced_brokers=include_fenced)

        async def call() -> ClusterDescription:
            answer = await self._send(request, DescribeClusterResponse)
            raise_for(answer.error_code, answer.error_message, subject="cluster")
            brokers = [Node(row.broker_id, row.host, row.port, row.rack) for row in answer.brokers]
            brokers.sort(key=lambda broker: broker.id)
            return ClusterDescription(
                answer.cluster_id,
                answer.controller_id,
                tuple(brokers),
                frozenset(row.broker_id for row in answer.brokers if row.is_fenced),
            )

        return await self.client.retrying(call)

    async def is_broker(self, broker_id: int) -> bool:
        """Whether who answers at the bootstrap address is this broker.

        No broker says its own id; but each describes its own configuration alone (Kafka: ConfigHelper.describeConfigs).
        """
        try:
            await self.own_config(broker_id)
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_REQUEST:
                raise
            return False
        return True

    async def own_config(self, broker_id: int) -> dict[str, ConfigEntry]:
        """All keys of the broker at the bootstrap address, which must be this one, fenced or not; else KafkaError INVALID_REQUEST."""

        async def call() -> dict[str, ConfigEntry]:
            return await self._config(await self.client.any(), ResourceType.BROKER, str(broker_id))

        return await self.client.retrying(call)

    async def _config(
        self, connection: Connection, kind: ResourceType, name: str
    ) -> dict[str, ConfigEntry]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        answer = await connection.request(
            DescribeConfigsRequest(resources=[resource]),
            DescribeConfigsResponse,
            timeout_ms=self.client.request_timeout_ms,
        )
        result = answer.results[0]
        subject = f"{kind.name.lower()} {name}"
        _fail_at_once_if_unknown(result.error_code, result.error_message, subject)
        return {row.name: _entry(row) for row in result.configs}

    async def _send(self, request: msgspec.Struct, answer: type[A]) -> A:
        # any broker carries out what reads, and forwards to the controller what changes (KIP-590)
        connection = await self.client.any()
        return await connection.request(
            request, answer, timeout_ms=self.client.request_timeout_ms + FORWARDING_MS
        )

    async def _owner(self, kind: ResourceType, name: str) -> Connection:
        """A broker's own configuration is known to itself alone."""
        if kind is not ResourceType.BROKER or not name:
            return await self.client.any()
        return await self.client.broker(int(name))


def _entry(row: DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name, row.value, ConfigSource(row.config_source), row.read_only, row.is_sensitive
    )


def _fail_at_once_if_unknown(code: int, message: str | None, subject: str) -> None:
    """Raise for any error; that a topic is unknown is no reason to wait here: nobody is creating it."""
    error = KafkaError(code, message, subject=subject)
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        error.retriable = False
    if error.code != ErrorCode.NONE:
        raise error
