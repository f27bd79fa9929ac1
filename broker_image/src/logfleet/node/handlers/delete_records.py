"""DeleteRecords (KIP-107): deletes records below an offset for good.

Answered once the new log start offsets are durable here and all live replicas have them, so that
none of them shows the records again. Segments that hold nothing else go with the next retention.
Source: KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords, DelayedDeleteRecords.
"""

import asyncio
import contextlib
from typing import Any, Final

from logfleet.log.directories.log_dir import LogDir
from logfleet.metadata.image import INTERNAL_TOPICS
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.leader_partition import LeaderPartition, NotLeading
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DeleteRecordsRequest, DeleteRecordsResponse

NO_LOW_WATERMARK: Final = -1

_Row = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def delete_records(
    rooms: Rooms, request: DeleteRecordsRequest, _context: RequestContext
) -> DeleteRecordsResponse:
    """If a partition is named twice, the last offset counts."""
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((row.partition_index, row.offset) for row in topic.partitions)
    begins: dict[tuple[str, int], int | ErrorCode] = {}
    changed: dict[LogDir, list[LeaderPartition]] = {}
    for name, offsets in wanted.items():
        for index, offset in offsets.items():
            begins[name, index] = _delete(rooms, name, index, offset, changed)
    for log_dir, partitions in changed.items():
        try:
            await rooms.disks.checkpointer.write_log_starts(log_dir)
        except OSError as error:
            rooms.disks.storage_failed(partitions[0], error)
            for partition in partitions:
                begins[partition.topic, partition.index] = ErrorCode.KAFKA_STORAGE_ERROR
    for partitions in changed.values():
        await _wait_for_replicas(rooms, partitions, begins, request.timeout_ms)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=name, partitions=[_row(index, begins[name, index]) for index in offsets]
            )
            for name, offsets in wanted.items()
            if offsets
        ]
    )


def _delete(
    rooms: Rooms,
    name: str,
    index: int,
    offset: int,
    changed: dict[LogDir, list[LeaderPartition]],
) -> int | ErrorCode:
    partition = rooms.partitions.find(name, index)
    if name in INTERNAL_TOPICS and partition is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not isinstance(partition, LeaderPartition):
        return partition
    begin = partition.delete_records(offset)
    log_dir = rooms.disks.log_dirs.dir_of(partition.log.partition)
    if log_dir is None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if not isinstance(begin, ErrorCode):
        changed.setdefault(log_dir, []).append(partition)
    return begin


async def _wait_for_replicas(
    rooms: Rooms,
    partitions: list[LeaderPartition],
    begins: dict[tuple[str, int], int | ErrorCode],
    timeout_ms: int,
) -> None:
    """Fill in the low watermark of each partition with deletions, or why it is still too low."""

    def is_alive(broker_id: int) -> bool:
        registered = rooms.metadata.image.brokers.get(broker_id)
        return registered is not None and registered.is_active

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            for partition in partitions:
                begin = begins[partition.topic, partition.index]
                if not isinstance(begin, ErrorCode):
                    with contextlib.suppress(NotLeading):
                        await partition.wait_deleted(begin, is_alive)
    for partition in partitions:
        begin, low_watermark = (
            begins[partition.topic, partition.index],
            partition.low_watermark(is_alive),
        )
        if isinstance(begin, ErrorCode):
            continue
        if low_watermark >= begin:
            begins[partition.topic, partition.index] = low_watermark
        elif partition.is_leading:
            begins[partition.topic, partition.index] = ErrorCode.REQUEST_TIMED_OUT
        else:
            begins[partition.topic, partition.index] = ErrorCode.NOT_LEADER_OR_FOLLOWER


def _row(index: int, begin: int | ErrorCode) -> _Row:
    if isinstance(begin, ErrorCode):
        return _Row(partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=begin)
    return _Row(partition_index=index, low_watermark=begin)


HANDLERS: dict[type, Handler[Any]] = {DeleteRecordsRequest: delete_records}
