"""Topics, configuration, and the description of the cluster.

Each call is about one thing and raises KafkaError if a broker refuses it. Errors that may pass (a
leader is being elected, a connection broke) are retried until the client's `timeout_ms`. A change
whose response was lost is sent again, so creating a topic that succeeded may raise
TOPIC_ALREADY_EXISTS, and deleting by name UNKNOWN_TOPIC_OR_PARTITION.
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

# A broker that forwards a request waits for the controller as long as the request allows, and only
# then responds.
FORWARDING_MS = 5_000
BROKER_DEFAULT = -1  # partitions or replicas as the brokers' configuration says (KIP-464)


class ResourceType(IntEnum):
    """What has a configuration (Kafka: ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from, in order of precedence (Kafka: ConfigEntry.ConfigSource)."""

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
    """One key of a resource; value is None if it has none or is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool


class ClusterDescription(msgspec.Struct, frozen=True):
    """controller_id: the broker to which changes are forwarded, or -1.

    fenced: ids of the fenced ones among the brokers.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...]
    fenced: frozenset[int] = frozenset()


class NewTopic(msgspec.Struct, frozen=True):
    """assignments: partition -> broker ids; with them partitions and replicas must stay -1."""

    name: str
    partitions: int = BROKER_DEFAULT
    replicas: int = BROKER_DEFAULT
    config: Mapping[str, str] = {}
    assignments: Mapping[int, list[int]] = {}


class Admin:
    """Admin calls through `client`, which the caller closes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    # --- topics

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> bytes:
        """Create a topic; returns its id. Some brokers may learn of it a moment later."""
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
            response = await self._send(request, CreateTopicsResponse)
            row = response.topics[0]
            raise_for(row.error_code, row.error_message, subject=f"topic {topic.name}")
            return row.topic_id

        return await self.client.retrying(call)

    async def delete_topic(self, name: str, *, topic_id: bytes | None = None) -> None:
        """Delete a topic with all its records; with `topic_id` not a later one of the same name.

        Without it, the topic that has the name now: its id is looked up first, so that a retry does
        not delete a later one (KIP-516), unless the brokers have no ids.
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
            response = await self._send(request, DeleteTopicsResponse)
            row = response.responses[0]
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and again:
                return  # an attempt whose response was lost has deleted it
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and topic_id is None:
                wanted, sent = (
                    None,
                    False,
                )  # the broker that gave the id was behind the controller: ask again
                raise KafkaError(row.error_code, row.error_message, subject=f"topic {name}")
            _fail_at_once_if_unknown(row.error_code, row.error_message, f"topic {name}")

        await self.client.retrying(call)
        self.client.metadata.forget([name])

    async def create_partitions(
        self, name: str, total: int, *, validate_only: bool = False
    ) -> None:
        """Grow the topic to `total` partitions, which must be more than it has.

        If a response was lost, a refusal counts as success if the topic has `total` by then.
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
            response = await self._send(request, CreatePartitionsResponse)
            row = response.results[0]
            if row.error_code == ErrorCode.INVALID_PARTITIONS and again and not validate_only:
                found = await self._find(name)
                if found is not None and len(found.partitions) == total:
                    return  # an attempt whose response was lost has made them
            _fail_at_once_if_unknown(row.error_code, row.error_message, f"topic {name}")

        await self.client.retrying(call)
        self.client.metadata.forget([name])

    async def list_topics(self) -> list[Topic]:
        """All topics, sorted by name, internal ones included."""
        topics = await self.client.retrying(lambda: self.client.fetch_topics(None))
        return sorted(topics, key=lambda topic: topic.name)

    async def find_topic(self, name: str) -> Topic | None:
        """The topic as a broker reports it now; None if there is none."""
        return await self.client.retrying(lambda: self._find(name))

    async def _find(self, name: str) -> Topic | None:
        try:
            return (await self.client.fetch_topics([name]))[0]
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise

    async def eligible_leaders(self, name: str) -> dict[int, tuple[int, ...]]:
        """Eligible leader replicas (KIP-966) by partition, only of partitions that have some.

        Empty if the brokers do not support them.
        """
        found: dict[int, tuple[int, ...]] = {}
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None

        async def call() -> DescribeTopicPartitionsResponse:
            topic = DescribeTopicPartitionsRequest.TopicRequest(name=name)
            request = DescribeTopicPartitionsRequest(topics=[topic], cursor=cursor)
            return await self._send(request, DescribeTopicPartitionsResponse)

        while True:
            try:
                response = await self.client.retrying(call)
            except NotSupported:
                return {}
            for row in response.topics:
                for each in row.partitions:
                    if each.eligible_leader_replicas:
                        found[each.partition_index] = tuple(each.eligible_leader_replicas)
            if (next_cursor := response.next_cursor) is None:
                return found
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=next_cursor.topic_name, partition_index=next_cursor.partition_index
            )

    # --- configuration

    async def topic_config(self, name: str) -> dict[str, ConfigEntry]:
        """All keys of a topic, those at their default included."""
        return await self.config(ResourceType.TOPIC, name)

    async def topic_values(self, names: Iterable[str], key: str) -> dict[str, str]:
        """One key of many topics, by topic name, in one request, without deleted topics."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=[key]
                )
                for name in names
            ]
        )
        response = await self.client.retrying(lambda: self._send(request, DescribeConfigsResponse))
        return {
            result.resource_name: row.value
            for result in response.results
            for row in result.configs
            if row.value is not None
        }

    async def config(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        """All keys of a resource.

        A broker's name is its id; "" is the configuration of all brokers.
        """

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
        """Set some keys and reset others to their defaults; all others stay (KIP-339)."""
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
            response = await connection.request(
                IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only),
                IncrementalAlterConfigsResponse,
                timeout_ms=self.client.request_timeout_ms,
            )
            row = response.responses[0]
            subject = f"{kind.name.lower()} {name}"
            _fail_at_once_if_unknown(row.error_code, row.error_message, subject)

        await self.client.retrying(call)

    # --- cluster

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Id, controller and registered brokers, as one broker reports them now.

        include_fenced: also brokers that are fenced, if brokers report them (KIP-1073).
        """
        request = DescribeClusterRequest(include_fenced_brokers=include_fenced)

        async def call() -> ClusterDescription:
            try:
                response = await self._send(request, DescribeClusterResponse)
            except NotSupported:
                if not include_fenced:
                    raise
                response = await self._send(DescribeClusterRequest(), DescribeClusterResponse)
            raise_for(response.error_code, response.error_message, subject="cluster")
            brokers = [
                Node(row.broker_id, row.host, row.port, row.rack) for row in response.brokers
            ]
            brokers.sort(key=lambda broker: broker.id)
            return ClusterDescription(
                response.cluster_id,
                response.controller_id,
                tuple(brokers),
                frozenset(row.broker_id for row in response.brokers if row.is_fenced),
            )

        return await self.client.retrying(call)

    async def is_broker(self, broker_id: int) -> bool:
        """Whether the broker at the bootstrap address is this one.

        No broker reports its own id, but each describes only its own configuration (Kafka:
        ConfigHelper.describeConfigs).
        """
        try:
            await self.own_config(broker_id)
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_REQUEST:
                raise
            return False
        return True

    async def own_config(self, broker_id: int) -> dict[str, ConfigEntry]:
        """All keys of the broker at the bootstrap address, fenced or not.

        Raises KafkaError INVALID_REQUEST if it is not this broker.
        """

        async def call() -> dict[str, ConfigEntry]:
            return await self._config(await self.client.any(), ResourceType.BROKER, str(broker_id))

        return await self.client.retrying(call)

    async def _config(
        self, connection: Connection, kind: ResourceType, name: str
    ) -> dict[str, ConfigEntry]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        response = await connection.request(
            DescribeConfigsRequest(resources=[resource]),
            DescribeConfigsResponse,
            timeout_ms=self.client.request_timeout_ms,
        )
        result = response.results[0]
        subject = f"{kind.name.lower()} {name}"
        _fail_at_once_if_unknown(result.error_code, result.error_message, subject)
        return {row.name: _entry(row) for row in result.configs}

    async def _send(self, request: msgspec.Struct, response: type[A]) -> A:
        # any broker handles reads, and forwards changes to the controller (KIP-590)
        connection = await self.client.any()
        return await connection.request(
            request, response, timeout_ms=self.client.request_timeout_ms + FORWARDING_MS
        )

    async def _owner(self, kind: ResourceType, name: str) -> Connection:
        """Connect to the broker itself for its configuration, which no other describes."""
        if kind is not ResourceType.BROKER or not name:
            return await self.client.any()
        return await self.client.broker(int(name))


def _entry(row: DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name, row.value, ConfigSource(row.config_source), row.read_only, row.is_sensitive
    )


def _fail_at_once_if_unknown(code: int, message: str | None, subject: str) -> None:
    """Raise for any error; an unknown topic is not retried, because nobody is creating it."""
    error = KafkaError(code, message, subject=subject)
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        error.retriable = False
    if error.code != ErrorCode.NONE:
        raise error
