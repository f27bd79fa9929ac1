"""OffsetForLeaderEpoch: where a leader epoch ends, for clients that check their position (KIP-320).

The controller also uses it before it elects a replica that may lack records: it asks all replicas
how far their logs reach (`logfleet.replication.longest_log`), as a "debug" consumer, which may see
uncommitted records in Kafka's protocol. A replica without a leader answers such a request; for an
epoch above all in its log it returns the last one and the log end offset. Kafka's brokers answer
NOT_LEADER_OR_FOLLOWER there; their debug consumers may use only ListOffsets and Fetch with
followers, which do not return the last epoch.
"""

from typing import Any, Final

from logfleet.controller.running.log_ends import DEBUGGING_REPLICA_ID
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

DEBUGGING_SINCE: Final = 3
"""The first version in which requests carry a replica id. In older ones -2 is only the default."""

_Row = OffsetForLeaderEpochResponse.EpochEndOffset


def offset_for_leader_epoch(
    rooms: Rooms, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """The end offset (exclusive) of the largest epoch up to the requested one.

    -1 and -1 if there is none.
    """
    is_debugging = (
        request.replica_id == DEBUGGING_REPLICA_ID and context.api_version >= DEBUGGING_SINCE
    )
    topics = []
    for topic in request.topics:
        rows = [
            (_log_end(rooms, topic.topic, wanted) if is_debugging else None)
            or _row(rooms, topic.topic, wanted)
            for wanted in topic.partitions
        ]
        topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=rows
            )
        )
    return OffsetForLeaderEpochResponse(topics=topics)


def _row(
    rooms: Rooms, topic: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> _Row:
    index = wanted.partition
    partition = rooms.partitions.find_in_epoch(topic, index, wanted.current_leader_epoch)
    if not isinstance(partition, LeaderPartition):
        return _Row(partition=index, error_code=partition)
    found, end_offset = partition.log.epoch_end_offset(LeaderEpoch(wanted.leader_epoch))
    return _Row(partition=index, leader_epoch=found, end_offset=end_offset)


def _log_end(
    rooms: Rooms, topic: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> _Row | None:
    """A leaderless replica's answer to a debug consumer; None if there is no such replica here."""
    replica = rooms.partitions.leaderless_replica(topic, wanted.partition)
    if replica is None:
        return None
    log = replica.log
    found, end_offset = log.epochs.last_end(LeaderEpoch(wanted.leader_epoch), log.log_end_offset)
    return _Row(partition=wanted.partition, leader_epoch=found, end_offset=end_offset)


HANDLERS: dict[type, Handler[Any]] = {OffsetForLeaderEpochRequest: offset_for_leader_epoch}
