"""DescribeLogDirs: what lies in the directories of the broker that is asked, and how much room they have (KIP-113, KIP-827).

Source: ReplicaManager.describeLogDirs.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from logfleet.log.names import TopicPartition
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.host import PartitionHost
from logfleet.storage.log_dir import LogDir
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DescribeLogDirsRequest, DescribeLogDirsResponse

ROOM_SINCE: Final = 4
LOGS_AT_ONCE: Final = 500
"""Logs looked at without letting the loop do something else: about 1 ms."""

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
_Row = DescribeLogDirsResponse.DescribeLogDirsPartition


async def describe_log_dirs(
    broker: PartitionHost, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """All partitions, or those that are named and here: led or not, as each directory has them."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        }
    results = []
    for log_dir in broker.log_dirs:
        result = _Result(log_dir=_absolute(log_dir.path), topics=await _topics(log_dir, wanted))
        if context.api_version >= ROOM_SINCE:
            await _add_room(broker, result, log_dir.path)
        results.append(result)
    results += [
        _Result(log_dir=_absolute(path), error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        for path in broker.log_dirs.failed
    ]
    return DescribeLogDirsResponse(results=results)


async def _topics(log_dir: LogDir, wanted: set[TopicPartition] | None) -> list[_Topic]:
    topics: dict[str, _Topic] = {}
    names = sorted(log_dir.logs if wanted is None else wanted)
    for number, name in enumerate(names):
        if number % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
            await asyncio.sleep(0)
        log = log_dir.logs.get(name)
        if log is not None:
            topic = topics.setdefault(name.topic, _Topic(name=name.topic))
            topic.partitions.append(_Row(partition_index=name.partition, partition_size=log.size))
    return list(topics.values())


async def _add_room(broker: PartitionHost, result: _Result, path: str) -> None:
    """A disk that hangs is asked in a thread."""
    try:
        space = await broker.run_in_thread(broker.log_dirs.open_files.files.space, path)
    except OSError:
        result.error_code, result.topics = ErrorCode.KAFKA_STORAGE_ERROR, []
    else:
        result.total_bytes, result.usable_bytes = space.total_bytes, space.usable_bytes


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


HANDLERS: dict[type, Handler[Any]] = {DescribeLogDirsRequest: describe_log_dirs}
