"""Moves this broker's replicas between its log directories, by AlterReplicaLogDirs (KIP-113).

One log at a time is moved, the others wait in the order of the requests; Kafka moves as many as it
has directories. A move ends with the broker's process: after a restart it has to be requested
again, where Kafka goes on with the copy it finds.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec
import structlog

from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dir import LogDir, absolute
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.moves.log_move import LogMove, MoveTools, NotMoved
from logfleet.log.names import TopicPartition, future_directory
from logfleet.log.partition_log import PartitionLog
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

_ANY_HEX: Final = "0" * 32


class Future(msgspec.Struct, frozen=True):
    """A copy that is being made, or queued: its size in bytes, and how many offsets it lags."""

    partition: TopicPartition
    size: int
    offset_lag: int


class LogMoves:
    """The moves of one broker. on_disk_failure: called when a disk error has ended a move."""

    def __init__(
        self,
        table: PartitionTable,
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpointer: Checkpointer,
        *,
        throttle: ReplicationThrottle,
        disk_space: DiskSpace,
        on_disk_failure: OnDiskFailure,
    ) -> None:
        self._table = table
        self._log_dirs = log_dirs
        self._disk_space = disk_space
        self._on_disk_failure = on_disk_failure
        self._tools = MoveTools(
            log_dirs,
            flusher,
            checkpointer,
            table.high_watermark_of,
            throttle.moved,
            throttle.move_wait_ms,
            disk_space.full.__contains__,
        )
        self._wanted: dict[TopicPartition, LogDir] = {}
        self._requested = asyncio.Event()

    def request(self, name: TopicPartition, path: str) -> ErrorCode:
        """Move the replica's log to the log directory at this absolute path.

        A move to another one is cancelled. NONE: it is there, or will be. REPLICA_NOT_AVAILABLE:
        this broker has no such replica; if it gets one, the log is made there. Errors:
        INVALID_TOPIC_EXCEPTION (the name is too long), LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the
        directory or the replica is offline), UNKNOWN_TOPIC_OR_PARTITION. Source:
        ReplicaManager.alterReplicaLogDirs.
        """
        if future_directory(name, _ANY_HEX) is None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        target = next((each for each in self._log_dirs if each.absolute_path == path), None)
        if target is None:
            has_failed = path in map(absolute, self._log_dirs.failed)
            return ErrorCode.KAFKA_STORAGE_ERROR if has_failed else ErrorCode.LOG_DIR_NOT_FOUND
        if self._wanted.get(name) not in {None, target}:
            del self._wanted[name]
        if self._replica(name) is None:
            error = self._table.error_for(name.topic, name.partition)
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._log_dirs.prefer(name, target)
                return ErrorCode.REPLICA_NOT_AVAILABLE
            return error
        if self._log_dirs.dir_of(name) is not target:
            self._wanted.setdefault(name, target)
            self._requested.set()
        return ErrorCode.NONE

    def futures(self, log_dir: LogDir) -> Iterator[Future]:
        """The moves into this directory that run or wait."""
        for name, target in self._wanted.items():
            replica = self._replica(name)
            if target is not log_dir or replica is None or name in log_dir.logs:
                continue
            copy = log_dir.incoming.futures.get(name)
            begin = replica.log.log_start_offset if copy is None else copy.log_end_offset
            size = 0 if copy is None else copy.size
            yield Future(name, size, replica.log.log_end_offset - begin)

    async def run(self) -> None:
        """Carry out the requested moves until cancelled."""
        while True:
            if not self._wanted:
                self._requested.clear()
                await self._requested.wait()
            name, target = next(iter(self._wanted.items()))
            replica = self._replica(name)
            if replica is not None and self._log_dirs.dir_of(name) is not None:
                await self._move(replica.log, target)
            if self._wanted.get(name) is target:
                del self._wanted[name]

    async def _move(self, partition_log: PartitionLog, target: LogDir) -> None:
        name, began = partition_log.partition, time.monotonic()
        log.info("log_move_begun", partition=str(name), path=target.path, bytes=partition_log.size)

        def is_wanted() -> bool:
            replica = self._replica(name)
            is_hosted = replica is not None and replica.log is partition_log
            return is_hosted and self._wanted.get(name) is target

        try:
            self._require_room(partition_log, target)
            await LogMove(partition_log, target, self._tools, is_wanted).run()
        except NotMoved as reason:
            log.warning("log_not_moved", partition=str(name), path=target.path, reason=str(reason))
        except OSError as error:
            log.warning("log_not_moved", partition=str(name), path=target.path, reason=str(error))
            self._on_disk_failure(name, error)
        else:
            seconds = round(time.monotonic() - began, 3)
            log.info("log_moved", partition=str(name), path=target.path, seconds=seconds)

    def _require_room(self, partition_log: PartitionLog, target: LogDir) -> None:
        """Refuse a move that would fill up the disk. Raises NotMoved."""
        room = self._disk_space.rooms.get(target.path)
        if room is not None and partition_log.size > room.free_bytes:
            free = f"{room.free_bytes} bytes are free, its log has {partition_log.size}"
            raise NotMoved(f"{target.path} has no room for it: {free}")

    def _replica(self, name: TopicPartition) -> Replica | None:
        topic = self._table.by_name.get(name.topic)
        return None if topic is None else topic.replicas.get(name.partition)
