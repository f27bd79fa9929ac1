"""ListOffsets: the ends of a log, and offsets by time. Rules: Kafka's Partition.fetchOffsetForTimestamp."""

from typing import TYPE_CHECKING, Any

import msgspec

from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.partition import Partition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from logfleet.node.broker import Broker

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# First version that knows each of them (ReplicaManager.timestampMinSupportedVersion).
SPECIAL_SINCE = {
    EARLIEST: 1,
    LATEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
NO_EPOCH = -1
LEADER_EPOCH_SINCE = 4

_Row = ListOffsetsResponse.ListOffsetsPartitionResponse


class Found(msgspec.Struct, frozen=True):
    """An offset with its record's timestamp and leader epoch; -1 where there is none."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def list_offsets(
    broker: "Broker", request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    """One row per partition; INVALID_REQUEST for one that the request names twice."""
    topics: dict[str, dict[int, _Row]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            index = wanted.partition_index
            rows = topics.setdefault(topic.name, {})
            if index in rows:
                found: Found | ErrorCode = ErrorCode.INVALID_REQUEST
            else:
                found = _find(broker, topic.name, wanted, context.api_version)
            rows[index] = _row(index, found, context.api_version)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=list(rows.values()))
            for name, rows in topics.items()
        ]
    )


def _find(
    broker: "Broker", topic: str, wanted: ListOffsetsRequest.ListOffsetsPartition, version: int
) -> Found | ErrorCode:
    timestamp = wanted.timestamp
    if timestamp < 0 and version < SPECIAL_SINCE.get(timestamp, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    partition = broker.partitions.find(topic, wanted.partition_index)
    if not isinstance(partition, Partition):
        return partition
    epoch = wanted.current_leader_epoch
    if epoch not in {NO_EPOCH, partition.leader_epoch}:
        older = epoch < partition.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    try:
        return offset_for(partition, timestamp)
    except OSError as failure:
        broker.storage_failed(partition, failure)
        return ErrorCode.KAFKA_STORAGE_ERROR


def offset_for(partition: Partition, timestamp: int) -> Found:
    """The offset that a timestamp (ms), or one of the special values, stands for. Raises OSError.

    High watermark and last stable offset are one, so both isolation levels see the same end.
    """
    log = partition.log
    if timestamp == LATEST:
        return Found(partition.high_watermark, leader_epoch=partition.leader_epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return Found(log.log_start_offset, leader_epoch=log.epochs.epoch_of(log.log_start_offset))
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:  # nothing is tiered
        return Found()
    if timestamp == MAX_TIMESTAMP:
        record = log.max_timestamp_offset()
    else:
        record = log.offset_for_timestamp(timestamp)
    if record is None or record.offset >= partition.last_stable_offset:
        return Found()
    return Found(record.offset, record.timestamp, record.leader_epoch)


def _row(index: int, found: Found | ErrorCode, version: int) -> _Row:
    if isinstance(found, ErrorCode):
        return _Row(partition_index=index, error_code=found)
    epoch = found.leader_epoch if version >= LEADER_EPOCH_SINCE else NO_EPOCH
    return _Row(
        partition_index=index, timestamp=found.timestamp, offset=found.offset, leader_epoch=epoch
    )


HANDLERS: dict[type, Handler[Any]] = {ListOffsetsRequest: list_offsets}
