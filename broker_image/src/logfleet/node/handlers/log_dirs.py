"""DescribeLogDirs and AlterReplicaLogDirs: the log directories of this broker (KIP-113, KIP-827).

What lies in them, how much space they have, and where logs are to move. Source:
ReplicaManager.describeLogDirs, alterReplicaLogDirs.
"""

import asyncio
from typing import Any, Final

from logfleet.log.directories.log_dir import LogDir, absolute
from logfleet.log.names import TopicPartition
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

ROOM_SINCE: Final = 4
LOGS_AT_ONCE: Final = 500
"""Logs handled in one step of the loop: about 1 ms."""

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
_Row = DescribeLogDirsResponse.DescribeLogDirsPartition
_Altered = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_AlteredRow = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


async def describe_log_dirs(
    rooms: Rooms, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """All replicas here, in any role, by directory; or of these the requested ones."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        }
    results = []
    for log_dir in rooms.disks.log_dirs:
        topics = await _topics(log_dir, wanted)
        _add_futures(rooms, log_dir, wanted, topics)
        result = _Result(log_dir=log_dir.absolute_path, topics=list(topics.values()))
        if context.api_version >= ROOM_SINCE:
            await _add_room(rooms, result, log_dir.path)
        results.append(result)
    results += [
        _Result(log_dir=absolute(path), error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        for path in rooms.disks.log_dirs.failed
    ]
    return DescribeLogDirsResponse(results=results)


async def _topics(log_dir: LogDir, wanted: set[TopicPartition] | None) -> dict[str, _Topic]:
    topics: dict[str, _Topic] = {}
    names = sorted(log_dir.logs if wanted is None else wanted)
    for number, name in enumerate(names):
        if number % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
            await asyncio.sleep(0)
        log = log_dir.logs.get(name)
        if log is not None:
            topic = topics.setdefault(name.topic, _Topic(name=name.topic))
            topic.partitions.append(_Row(partition_index=name.partition, partition_size=log.size))
    return topics


def _add_futures(
    rooms: Rooms,
    log_dir: LogDir,
    wanted: set[TopicPartition] | None,
    topics: dict[str, _Topic],
) -> None:
    """Copies that will replace logs in other directories."""
    for future in rooms.hosting.log_moves.futures(log_dir):
        name = future.partition
        if wanted is None or name in wanted:
            topic = topics.setdefault(name.topic, _Topic(name=name.topic))
            row = _Row(
                partition_index=name.partition,
                partition_size=future.size,
                offset_lag=future.offset_lag,
                is_future_key=True,
            )
            topic.partitions.append(row)


async def _add_room(rooms: Rooms, result: _Result, path: str) -> None:
    """Add the disk's size and free space, measured in a thread: a disk may hang."""
    try:
        space = await rooms.workers.run_in_thread(rooms.disks.log_dirs.open_files.files.space, path)
    except OSError:
        result.error_code, result.topics = ErrorCode.KAFKA_STORAGE_ERROR, []
    else:
        result.total_bytes, result.usable_bytes = space.total_bytes, space.usable_bytes


async def alter_replica_log_dirs(
    rooms: Rooms, request: AlterReplicaLogDirsRequest, _context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Answered at once, the logs are copied afterwards.

    If a partition is named twice, the last directory counts.
    """
    paths = {
        TopicPartition(topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }
    topics: dict[str, _Altered] = {}
    for number, (name, path) in enumerate(paths.items()):
        if number % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
            await asyncio.sleep(0)
        topic = topics.setdefault(name.topic, _Altered(topic_name=name.topic))
        error_code = rooms.hosting.log_moves.request(name, path)
        topic.partitions.append(_AlteredRow(partition_index=name.partition, error_code=error_code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


HANDLERS: dict[type, Handler[Any]] = {
    AlterReplicaLogDirsRequest: alter_replica_log_dirs,
    DescribeLogDirsRequest: describe_log_dirs,
}
