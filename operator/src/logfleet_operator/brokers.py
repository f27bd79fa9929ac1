"""Admin through `logfleet.client`: a connection per pass over a Cluster's topics. SHELL."""

import asyncio
from collections.abc import Iterable
from typing import Final, assert_never

from logfleet.client.admin import BROKER_DEFAULT, ConfigSource, NewTopic, ResourceType
from logfleet.client.admin import Admin as KafkaAdmin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.metadata import Topic
from logfleet.resources.plan import (
    AlterTopicConfig,
    CreateTopic,
    DeleteTopic,
    GrowTopic,
    ObservedTopic,
    TopicAction,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.uuids import from_text, to_text

from logfleet_operator.admin import AdminRefused, AdminUnavailable

# A pass that hangs on a dead fleet keeps nobody else waiting long.
REQUEST_TIMEOUT_MS: Final = 10_000
CALL_TIMEOUT_MS: Final = 15_000
DESCRIBED_AT_ONCE: Final = 32

GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class BrokerAdmin:
    """Admin of the fleet behind one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = KafkaAdmin(client)

    async def describe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        wanted = set(names)
        limit = asyncio.Semaphore(DESCRIBED_AT_ONCE)

        async def one(topic: Topic) -> tuple[str, ObservedTopic | None]:
            async with limit:
                return topic.name, await self._observe(topic)

        try:
            # All topics in one answer; the brokers complain about single ones that are not there.
            listed = await self._admin.list_topics()
            found = await asyncio.gather(*(one(topic) for topic in listed if topic.name in wanted))
        except ClientError as error:
            raise _verdict(error) from error
        return {name: topic for name, topic in found if topic is not None}

    async def _observe(self, topic: Topic) -> ObservedTopic | None:
        try:
            entries = await self._admin.topic_config(topic.name)
        except KafkaError as error:
            if error.code in GONE:
                return None
            raise
        config = {
            entry.name: entry.value
            for entry in entries.values()
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
        }
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        return ObservedTopic(to_text(topic.topic_id), len(topic.partitions), replicas, config)

    async def perform(self, action: TopicAction) -> None:
        try:
            await self._perform(action)
        except ClientError as error:
            if not _already(action, error):
                raise _verdict(error) from error

    async def _perform(self, action: TopicAction) -> None:
        match action:
            case CreateTopic(name, partitions, replicas, config):
                count = BROKER_DEFAULT if replicas is None else replicas
                await self._admin.create_topic(NewTopic(name, partitions, count, config))
            case GrowTopic(name, partitions):
                await self._admin.create_partitions(name, partitions)
            case AlterTopicConfig(name, changed, removed):
                await self._admin.alter_config(
                    ResourceType.TOPIC, name, set_keys=changed, delete_keys=removed
                )
            case DeleteTopic(name, topic_id):
                known = from_text(topic_id) if topic_id else None
                await self._admin.delete_topic(name, topic_id=known)
            case _:
                assert_never(action)

    async def close(self) -> None:
        self._client.close()


def _already(action: TopicAction, error: ClientError) -> bool:
    """True if the action is done all the same: perhaps by an attempt whose answer was lost."""
    if not isinstance(error, KafkaError):
        return False
    if isinstance(action, CreateTopic):
        return error.code == ErrorCode.TOPIC_ALREADY_EXISTS
    return isinstance(action, DeleteTopic) and error.code in GONE


def _verdict(error: ClientError) -> AdminRefused | AdminUnavailable:
    if isinstance(error, KafkaError) and not error.retriable:
        return AdminRefused(error.code.name, error.message)
    return AdminUnavailable(str(error))


class BrokerAdmins:
    """Opens one client per pass: it holds no connection to brokers that may move meanwhile."""

    async def open(self, bootstrap: str) -> BrokerAdmin:
        client = Client(
            bootstrap,
            client_id="logfleet-operator",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            timeout_ms=CALL_TIMEOUT_MS,
        )
        return BrokerAdmin(client)
