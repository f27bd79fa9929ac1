"""OffsetForLeaderEpoch: where a leader epoch ends, for clients that check their position (KIP-320)."""

from typing import Any

from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.host import PartitionHost
from logfleet.node.partitions.partition import Partition
from logfleet.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

_Row = OffsetForLeaderEpochResponse.EpochEndOffset


def offset_for_leader_epoch(
    broker: PartitionHost, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """The end offset (exclusive) of the largest epoch up to the one asked for; -1 and -1 if none is known."""
    del context
    topics = []
    for topic in request.topics:
        rows = [_row(broker, topic.topic, wanted) for wanted in topic.partitions]
        topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=rows
            )
        )
    return OffsetForLeaderEpochResponse(topics=topics)


def _row(
    broker: PartitionHost, topic: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> _Row:
    index = wanted.partition
    partition = broker.partitions.find_in_epoch(topic, index, wanted.current_leader_epoch)
    if not isinstance(partition, Partition):
        return _Row(partition=index, error_code=partition)
    found, end_offset = partition.log.epoch_end_offset(wanted.leader_epoch)
    return _Row(partition=index, leader_epoch=found, end_offset=end_offset)


HANDLERS: dict[type, Handler[Any]] = {OffsetForLeaderEpochRequest: offset_for_leader_epoch}
