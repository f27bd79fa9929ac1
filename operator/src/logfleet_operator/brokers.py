"""Admin through `logfleet.client`; each pass over a Cluster's topics has its own connection.

SHELL.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from logfleet.client.admin import Admin as KafkaAdmin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.metadata import Topic
from logfleet.client.reassignments import list_reassignments
from logfleet.client.reconcile import (
    GONE,
    cluster_as_shown,
    observe_brokers,
    observe_partition_health,
    observe_topic,
    perform_all,
)
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import (
    CreateTopic,
    DeleteTopic,
    ObservedTopic,
    PartitionHealth,
    TopicAction,
    plan_cluster,
)
from logfleet.wire.errors import ErrorCode

from logfleet_operator.admin import AdminRefused, AdminUnavailable
from logfleet_operator.waiting import waiting_for_fleet

# Short, so that a pass over a dead fleet does not delay other Clusters.
REQUEST_TIMEOUT_MS: Final = 10_000
CALL_TIMEOUT_MS: Final = 15_000
DESCRIBED_AT_ONCE: Final = 32


class BrokerAdmin:
    """Admin for the fleet that one client is connected to."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = KafkaAdmin(client)

    async def describe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        wanted = set(names)
        limit = asyncio.Semaphore(DESCRIBED_AT_ONCE)

        async def one(topic: Topic) -> tuple[str, ObservedTopic | None]:
            async with limit:
                return topic.name, await observe_topic(self._admin, topic, moving)

        async def listed_topics() -> list[Topic]:
            # List all topics in one request; the brokers log an error for each single topic that
            # does not exist.
            if len(wanted) > DESCRIBED_AT_ONCE:
                return await self._admin.list_topics()
            single = await asyncio.gather(*(self._admin.find_topic(name) for name in wanted))
            return [topic for topic in single if topic is not None]

        try:
            with waiting_for_fleet():
                listed = await listed_topics()
                moving = await list_reassignments(self._client)
                found = await asyncio.gather(
                    *(one(topic) for topic in listed if topic.name in wanted)
                )
        except ClientError as error:
            # Any error here says nothing about a single topic: no change was requested yet.
            raise AdminUnavailable(f"topics cannot be read: {error}") from error
        return {name: topic for name, topic in found if topic is not None}

    async def partition_health(self) -> PartitionHealth:
        try:
            with waiting_for_fleet():
                return await observe_partition_health(self._admin)
        except ClientError as error:
            raise AdminUnavailable(f"partitions cannot be read: {error}") from error

    async def perform(self, actions: Sequence[TopicAction]) -> None:
        try:
            with waiting_for_fleet():
                await perform_all(self._admin, actions)
        except ClientError as error:
            if not _is_done_already(actions, error):
                raise _as_admin_error(error) from error

    async def configure(self, desired: ClusterResource) -> str:
        try:
            with waiting_for_fleet():
                brokers = await observe_brokers(self._admin)
                actions = plan_cluster(cluster_as_shown(desired), brokers).actions
                await perform_all(self._admin, actions)
        except ClientError as error:
            raise _as_admin_error(error) from error
        keys = [key for action in actions for key in (*action.set, *action.remove)]
        return ", ".join(sorted(keys))

    async def close(self) -> None:
        self._client.close()


def _is_done_already(actions: Sequence[TopicAction], error: ClientError) -> bool:
    """True if the action is done despite the error, by an attempt whose response was lost."""
    if not isinstance(error, KafkaError):
        return False
    match actions:
        case [CreateTopic()]:
            return error.code == ErrorCode.TOPIC_ALREADY_EXISTS
        case [DeleteTopic()]:
            return error.code in GONE
    return False


def _as_admin_error(error: ClientError) -> AdminRefused | AdminUnavailable:
    if isinstance(error, KafkaError) and not error.retriable:
        return AdminRefused(error.code.name, error.message)
    return AdminUnavailable(str(error))


class BrokerAdmins:
    """Opens one client per pass: brokers may move between passes."""

    async def open(self, bootstrap: str) -> BrokerAdmin:
        client = Client(
            bootstrap,
            client_id="logfleet-operator",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            timeout_ms=CALL_TIMEOUT_MS,
        )
        return BrokerAdmin(client)
