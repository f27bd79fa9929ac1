"""Asks brokers how far their replicas' logs reach: the shell of `controller.terms.log_ends_query`.

It uses OffsetForLeaderEpoch as a "debug" consumer, which a replica without a leader answers
(`node.handlers.epochs`): one connection to each broker, for all its partitions.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.config.broker import BrokerConfig
from logfleet.controller.changes.election_writes import (
    LogEndsByPartition,
    PartitionId,
    ReplicasToAsk,
)
from logfleet.controller.terms.log_ends_query import LOG_ENDS_MS_MAX, Ask, LogEndsQuery
from logfleet.io.clock import monotonic_ms
from logfleet.metadata.image import ClusterImage
from logfleet.replication.fetch_check import EpochEnd
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

log = structlog.get_logger(__name__)

PARTITIONS_MAX: Final = 1_000
"""Partitions in a request: the broker answers it in one step of its loop, in a few milliseconds."""
DEBUGGING_REPLICA_ID: Final = -2
"""Kafka: OffsetsForLeaderEpochRequest.DEBUGGING_REPLICA_ID."""
NEWEST_EPOCH: Final = 2**31 - 1
"""Above every leader epoch, even if the metadata store was restored with older ones than the logs'.
"""

QueryLogEnds = Callable[[ClusterImage, ReplicasToAsk], Awaitable[LogEndsByPartition]]
"""Asks replicas for their log ends: partition -> replica -> end; SILENT: no answer in time."""

_Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_Partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition


class LogEndsClient:
    """Asks brokers how far their replicas' logs reach. config: of the asking broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._listener_name = config.inter_broker_listener_name
        self._client_id = f"logfleet-broker-{config.node_id}"

    async def query(self, image: ClusterImage, asked: ReplicasToAsk) -> LogEndsByPartition:
        """See QueryLogEnds. Takes LOG_ENDS_MS_MAX at most."""
        query = LogEndsQuery(asked, monotonic_ms())
        tasks: list[asyncio.Task[None]] = []
        try:
            while not query.is_over(monotonic_ms()):
                asks = query.asks(monotonic_ms())
                tasks += [asyncio.ensure_future(self._ask(image, ask, query)) for ask in asks]
                pause_s = max(query.due_ms - monotonic_ms(), 0) / 1000
                if running := [task for task in tasks if not task.done()]:
                    first = asyncio.FIRST_COMPLETED
                    await asyncio.wait(running, timeout=pause_s, return_when=first)
                else:
                    await asyncio.sleep(pause_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return query.found

    async def _ask(self, image: ClusterImage, ask: Ask, query: LogEndsQuery) -> None:
        broker_id, _ = ask.member
        address = image.brokers[broker_id].listener(self._listener_name)
        if address is None:
            query.gave_up(ask.member)
            return
        try:
            connection = await Connection.connect(address.host, address.port, self._client_id)
            with contextlib.closing(connection):
                for start in range(0, len(ask.partitions), PARTITIONS_MAX):
                    some = ask.partitions[start : start + PARTITIONS_MAX]
                    ends = await _answers(connection, image, some)
                    query.reported(ask.member, ends, monotonic_ms())
        except ClientError as error:
            log.debug("log_ends_not_answered", broker=broker_id, reason=str(error))
        query.ended(ask.member, monotonic_ms())


async def _answers(
    connection: Connection, image: ClusterImage, places: Sequence[PartitionId]
) -> list[tuple[PartitionId, EpochEnd]]:
    """The log ends that the broker returns. Raises ClientError."""
    names: dict[str, bytes] = {}
    topics: dict[str, _Topic] = {}
    for topic_id, index in places:
        existing = image.topic_by_id(topic_id)
        assert existing is not None, "it was found in this image"
        names[existing.name] = topic_id
        topic = topics.setdefault(existing.name, _Topic(topic=existing.name))
        topic.partitions.append(_Partition(partition=index, leader_epoch=NEWEST_EPOCH))
    request = OffsetForLeaderEpochRequest(
        replica_id=DEBUGGING_REPLICA_ID, topics=list(topics.values())
    )
    answer = await connection.request(
        request, OffsetForLeaderEpochResponse, timeout_ms=LOG_ENDS_MS_MAX
    )
    return [
        ((names[topic.topic], row.partition), (LeaderEpoch(row.leader_epoch), row.end_offset))
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code
    ]
