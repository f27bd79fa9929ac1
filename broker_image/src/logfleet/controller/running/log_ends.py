"""Asks brokers how far their replicas' logs reach, before an election that may lose records.

It uses OffsetForLeaderEpoch as a "debug" consumer, which a replica without a leader answers
(`node.handlers.epochs`): one connection to each broker, for all its partitions.
"""

import asyncio
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
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.longest_log import SILENT
from logfleet.replication.partition_state import Member
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

log = structlog.get_logger(__name__)

ASK_S_MAX: Final = 2.0
"""A broker that has not answered by then counts as silent.

A broker that has just started serves a moment after it was admitted.
"""
AGAIN_S: Final = 0.1
"""Pause before a broker is asked again that refused a connection, or still sees a leader."""
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
        """See QueryLogEnds. Takes ASK_S_MAX at most."""
        found: dict[PartitionId, dict[Member, EpochEnd]] = {}
        by_broker: dict[int, list[PartitionId]] = {}
        for place, brokers in asked.items():
            found[place] = {(broker.id, broker.epoch): SILENT for broker in brokers}
            for broker in brokers:
                by_broker.setdefault(broker.id, []).append(place)
        tasks = [
            asyncio.ensure_future(self._ask(image, image.brokers[broker_id], places, found))
            for broker_id, places in by_broker.items()
        ]
        try:
            await asyncio.wait(tasks, timeout=ASK_S_MAX)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return found

    async def _ask(
        self,
        image: ClusterImage,
        broker: Broker,
        places: list[PartitionId],
        found: dict[PartitionId, dict[Member, EpochEnd]],
    ) -> None:
        """Ask a broker until it has answered for all partitions; put its answers into `found`."""
        address = broker.listener(self._listener_name)
        if address is None:
            return
        member, left = (broker.id, broker.epoch), places
        while True:
            try:
                connection = await Connection.connect(address.host, address.port, self._client_id)
                try:
                    for start in range(0, len(left), PARTITIONS_MAX):
                        some = left[start : start + PARTITIONS_MAX]
                        for place, end in await _answers(connection, image, some):
                            found[place][member] = end
                finally:
                    connection.close()
            except ClientError as error:
                log.debug("log_ends_not_answered", broker=broker.id, reason=str(error))
            left = [place for place in left if found[place][member] == SILENT]
            if not left:
                return
            await asyncio.sleep(AGAIN_S)


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
        request, OffsetForLeaderEpochResponse, timeout_ms=int(1000 * ASK_S_MAX)
    )
    return [
        ((names[topic.topic], row.partition), (LeaderEpoch(row.leader_epoch), row.end_offset))
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code
    ]
