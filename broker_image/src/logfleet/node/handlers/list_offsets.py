"""ListOffsets: the ends of a log, and offsets by time.

The rules are Kafka's (Partition.fetchOffsetForTimestamp). The ends are in memory. For an offset by
time, indexes and batches have to be read, which may take long: a thread does that, one partition
after the other, while the loop serves others.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from logfleet.log.search import first_record_since, record_of_largest_timestamp
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.fetch_rows import READ_COMMITTED
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.types import NO_LEADER_EPOCH, LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ListOffsetsRequest, ListOffsetsResponse

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# First version that has each of them (ReplicaManager.timestampMinSupportedVersion).
SPECIAL_SINCE = {
    EARLIEST: 1,
    LATEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
CONSUMER = -1
"""The replica id of a consumer; all others see a log up to its end.

Source: KafkaApis.handleListOffsetRequest.
"""
LEADER_EPOCH_SINCE = 4
NOT_AVAILABLE_SINCE = 5  # KIP-207

_Row = ListOffsetsResponse.ListOffsetsPartitionResponse


class FoundOffset(msgspec.Struct, frozen=True):
    """An offset with its record's timestamp and leader epoch; -1 where there is none."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class _Search(msgspec.Struct, frozen=True):
    """A record to look up by time (ms), or by MAX_TIMESTAMP. reads_stable: see `_end_offset`."""

    partition: LeaderPartition
    timestamp: int
    reads_stable: bool


_Topics = dict[str, dict[int, FoundOffset | ErrorCode | _Search]]
"""The results by topic and partition index, in the order of the request."""


def list_offsets(
    rooms: Rooms, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """One row per partition; INVALID_REQUEST for one that the request names twice."""
    topics: _Topics = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            rows = topics.setdefault(topic.name, {})
            index = wanted.partition_index
            rows[index] = (
                ErrorCode.INVALID_REQUEST
                if index in rows
                else _find(rooms, request, topic.name, wanted, context.api_version)
            )
    if any(isinstance(found, _Search) for rows in topics.values() for found in rows.values()):
        return _answer_after_searches(rooms, topics, context.api_version)
    return _answer(topics, context.api_version)


async def _answer_after_searches(
    rooms: Rooms, topics: _Topics, version: int
) -> ListOffsetsResponse:
    for rows in topics.values():
        for index, found in rows.items():
            if isinstance(found, _Search):
                rows[index] = await _search(rooms, found)
    return _answer(topics, version)


def _answer(topics: _Topics, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=name, partitions=[_row(index, found, version) for index, found in rows.items()]
            )
            for name, rows in topics.items()
        ]
    )


def _find(
    rooms: Rooms,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
    version: int,
) -> FoundOffset | ErrorCode | _Search:
    timestamp = wanted.timestamp
    if timestamp < 0 and version < SPECIAL_SINCE.get(timestamp, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    partition = rooms.partitions.find_in_epoch(
        topic, wanted.partition_index, wanted.current_leader_epoch
    )
    if not isinstance(partition, LeaderPartition):
        return partition
    if timestamp == LATEST and request.replica_id != CONSUMER:
        return FoundOffset(partition.log_end_offset, leader_epoch=partition.leader_epoch)
    reads_stable = request.isolation_level == READ_COMMITTED
    return _offset_for(partition, timestamp, reads_stable=reads_stable)


def _offset_for(
    partition: LeaderPartition, timestamp: int, *, reads_stable: bool
) -> FoundOffset | ErrorCode | _Search:
    """The offset for a timestamp (ms), or for one of the special values.

    A new leader may have a lower high watermark than its predecessor reported; then it does not
    report an end, as that would go backwards (KIP-207).
    """
    log = partition.log
    if timestamp == LATEST:
        if partition.is_high_watermark_behind:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        end_offset = _end_offset(partition, reads_stable=reads_stable)
        return FoundOffset(end_offset, leader_epoch=partition.leader_epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return FoundOffset(
            log.log_start_offset, leader_epoch=log.epochs.epoch_of(log.log_start_offset)
        )
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:  # there is no tiered storage
        return FoundOffset()
    return _Search(partition, timestamp, reads_stable)


def _end_offset(partition: LeaderPartition, *, reads_stable: bool) -> int:
    """The end for a consumer: a reader of committed transactions sees no open one (KIP-98)."""
    return partition.last_stable_offset if reads_stable else partition.high_watermark


async def _search(rooms: Rooms, search: _Search) -> FoundOffset | ErrorCode:
    """Look up one record. While a thread reads, everything may change, leadership too."""
    partition, log = search.partition, search.partition.log
    await asyncio.sleep(0)  # each partition in a step of its own, also if nothing has to be read
    try:
        if search.timestamp == MAX_TIMESTAMP:
            record = await record_of_largest_timestamp(log, rooms.workers.run_in_thread)
        else:
            record = await first_record_since(log, search.timestamp, rooms.workers.run_in_thread)
    except OSError as failure:
        if not partition.is_leading:  # the error may come from the deletion of the log
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        rooms.disks.storage_failed(partition, failure)
        return ErrorCode.KAFKA_STORAGE_ERROR
    if not partition.is_leading:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    end_offset = _end_offset(partition, reads_stable=search.reads_stable)
    if record is None or record.offset >= end_offset:
        is_behind = partition.is_high_watermark_behind
        return ErrorCode.OFFSET_NOT_AVAILABLE if is_behind else FoundOffset()
    return FoundOffset(record.offset, record.timestamp, record.leader_epoch)


def _row(index: int, found: FoundOffset | ErrorCode | _Search, version: int) -> _Row:
    assert not isinstance(found, _Search), "searches have ended"
    if isinstance(found, ErrorCode):
        if found is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE:
            found = ErrorCode.LEADER_NOT_AVAILABLE
        return _Row(partition_index=index, error_code=found)
    epoch = found.leader_epoch if version >= LEADER_EPOCH_SINCE else NO_LEADER_EPOCH
    return _Row(
        partition_index=index, timestamp=found.timestamp, offset=found.offset, leader_epoch=epoch
    )


HANDLERS: dict[type, Handler[Any]] = {ListOffsetsRequest: list_offsets}
