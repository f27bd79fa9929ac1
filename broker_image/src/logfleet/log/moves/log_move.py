"""Moves one log to another log directory of the broker while it is appended to and read (KIP-113).

A copy is filled in slices, through threads, until little is left. Then the log is held, the copy is
made as durable as the log, and in one step of the loop it gets the rest and the log's name: from
there on the log uses the copy's files (`PartitionLog.switch_to`). Flushes are acknowledged only
once that name is durable, and only then the old files are removed. Until then those count after a
crash.

Source: ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog. Compaction pauses
meanwhile, as in Kafka: a copy that has a record from before a round and not the tombstone that the
round removed would bring the record back.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from logfleet.io.clock import now_ms
from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.log.checkpoints.checkpointer import Checkpointer, HighWatermarkOf
from logfleet.log.directories.disk import DiskBusy
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirError, LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.moves.copying import Extent, is_prefix
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.file_slice import FileSlice
from logfleet.records.batch import parse_header
from logfleet.records.errors import RecordsError
from logfleet.replication.leader_epochs import EpochStart, LeaderEpochs
from logfleet.types import LeaderEpoch

T = TypeVar("T")

SLICE_BYTES: Final = 256 * 1024
"""Bytes per step; the loop checks and writes them in a fraction of a millisecond."""
LAST_BYTES: Final = 256 * 1024
"""Bytes that may be left for the last step, which blocks the loop."""
FLUSH_BYTES: Final = 64 * 1024 * 1024
"""Growth after which a copy is flushed: keeps the last flush short, during which the log cannot
be flushed."""
ANY_EPOCH: Final = LeaderEpoch(2**31 - 1)
THROTTLED_MS_MAX: Final = 1_000
"""Longest pause after which a throttled copy checks the rate, and whether it is still wanted."""


class NotMoved(Exception):
    """The log stays where it is. The text says why."""


class MoveTools(msgspec.Struct, frozen=True):
    """The parts of the broker that moves need.

    copied: called with the number of bytes copied; wait_ms: pause that the throttle asks for.
    is_full: whether the directory of that path takes no records now.
    """

    log_dirs: LogDirs
    flusher: Flusher
    checkpointer: Checkpointer
    high_watermark_of: HighWatermarkOf
    copied: Callable[[int], None]
    wait_ms: Callable[[], int]
    is_full: Callable[[str], bool]


class _Prepared(msgspec.Struct, frozen=True):
    """State of the copy that was made durable.

    If it still matches the log, the copy may replace it.
    """

    copy: PartitionLog
    log_start_offset: int
    epochs: tuple[EpochStart, ...]


class LogMove:
    """Moves `partition_log`, which has a topic id, to `target`; used once.

    is_wanted: called often, and before the log is touched.
    """

    def __init__(
        self,
        partition_log: PartitionLog,
        target: LogDir,
        tools: MoveTools,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._log = partition_log
        self._target = target
        self._tools = tools
        self._is_wanted = is_wanted
        self._name = partition_log.partition
        self._source = tools.log_dirs.dir_of(self._name)
        self._copy: PartitionLog | None = None
        self._truncations = 0
        self._unflushed_bytes = 0

    async def run(self) -> None:
        """Return once the log is in the target, and removed from its source.

        Raises NotMoved; OSError of the log, LogDirError of a directory.
        """
        moving = self._tools.log_dirs.moving
        moving.add(self._name)  # no compaction begins, or puts segments in place
        try:
            async with self._tools.flusher.holding(self._log):
                self._require_wanted()  # a swap that was running has ended
            await self._move()
        except (NotMoved, OSError):
            await self._drop()
            raise
        finally:
            moving.discard(self._name)

    async def _move(self) -> None:
        assert self._source is not None, "checked by _require_wanted"
        # the log's own origin in the source directory must not apply to its next life there
        await self._record_origin(self._source, None)
        if await self._on_target(self._target.incoming.is_taken, self._name):
            raise NotMoved(f"{self._target.path}/{self._name} is there already")
        while True:
            copy = await self._catch_up()
            await self._flush(copy)
            if await self._take_over(self._source):
                break
            await asyncio.sleep(TRY_AGAIN_S)  # a slow disk, or the leader has just changed
        try:
            self._source.discard_moved(self._log, now_ms())
            await self._tools.checkpointer.record_departures(
                self._source, self._tools.high_watermark_of
            )
        except OSError as error:
            raise LogDirError(self._source, error) from error
        await self._record_origin(self._target, None)

    # Copying

    async def _catch_up(self, *, is_held: bool = False) -> PartitionLog:
        """Copy until little is missing, and nothing that is durable in the log. Returns the copy.

        is_held: flushes of the log wait for this move, so it is not throttled.
        """
        while True:
            self._require_wanted()
            copy = self._copy
            if copy is None or not self._is_prefix(copy):
                await self._begin()
            elif self._has_enough(copy):
                return copy
            elif is_held or not (wait_ms := self._tools.wait_ms()):
                await self._copy_slice(copy)
            else:
                await asyncio.sleep(min(wait_ms, THROTTLED_MS_MAX) / 1000)

    def _is_prefix(self, copy: PartitionLog) -> bool:
        partition_log = self._log
        is_part = is_prefix(
            _extent(copy),
            _extent(partition_log),
            was_cut=partition_log.truncations != self._truncations,
        )
        self._truncations = partition_log.truncations
        return is_part

    def _has_enough(self, copy: PartitionLog) -> bool:
        rest_bytes = self._rest_bytes(copy)
        is_durable_there = copy.log_end_offset >= self._log.recovery_point or not rest_bytes
        return rest_bytes <= LAST_BYTES and is_durable_there

    def _rest_bytes(self, copy: PartitionLog) -> int:
        first, *others = self._log.segments_from(copy.log_end_offset)
        missing = first.size - first.position_of(copy.log_end_offset)
        return missing + sum(segment.size for segment in others)

    async def _begin(self) -> None:
        """Begin a new copy with the log's first slice; none if the log has changed meanwhile."""
        await self._drop()
        partition_log = self._log
        before = partition_log.truncations, partition_log.log_start_offset
        piece = partition_log.read(partition_log.log_start_offset, SLICE_BYTES)
        data = await self._read(piece) if isinstance(piece, FileSlice) else b""
        self._require_wanted()
        if before != (partition_log.truncations, partition_log.log_start_offset):
            return
        start = partition_log.log_start_offset
        if data:  # the batch that holds the log start may begin before it
            start = min(start, parse_header(data).base_offset)
        assert partition_log.topic_id is not None
        self._truncations = partition_log.truncations
        try:
            self._copy = self._target.incoming.begin(
                self._name, partition_log.topic_id, partition_log.config, start, now_ms()
            )
        except OSError as error:
            raise LogDirError(self._target, error) from error
        self._append(self._copy, data)

    async def _copy_slice(self, copy: PartitionLog) -> None:
        await _until_written(copy)
        truncations = self._log.truncations
        piece = self._log.read(copy.log_end_offset, SLICE_BYTES, self._log.log_end_offset)
        assert isinstance(piece, FileSlice), "the copy lacks something"
        data = await self._read(piece)
        self._require_wanted()
        if truncations == self._log.truncations:
            self._append(copy, data)
        if self._unflushed_bytes >= FLUSH_BYTES:
            await self._flush(copy)

    async def _read(self, piece: FileSlice) -> bytes:
        return await self._tools.flusher.run(piece.read)

    def _append(self, copy: PartitionLog, data: bytes) -> None:
        try:
            copy.append_as_follower(memoryview(data), ANY_EPOCH, now_ms())
        except DiskBusy:
            return  # the next step reads this data again
        except RecordsError as error:
            raise NotMoved(f"it cannot be read: {error}") from error
        except OSError as error:
            raise LogDirError(self._target, error) from error
        self._tools.copied(len(data))
        self._unflushed_bytes += len(data)

    async def _flush(self, copy: PartitionLog) -> None:
        try:
            await self._tools.flusher.flush(copy)
        except OSError as error:
            raise LogDirError(self._target, error) from error
        self._unflushed_bytes = 0
        self._require_wanted()

    # Taking its place

    async def _take_over(self, source: LogDir) -> bool:
        """Let the copy become the log.

        False if the log has changed otherwise than by appends meanwhile, or a disk is slow.
        """
        async with self._tools.flusher.holding(self._log):
            prepared = await self._prepare(source)
            copy = await self._catch_up(is_held=True)
            if not self._still_matches(prepared, copy):
                return False
            # no await from here to the rename
            while isinstance(piece := self._log.read(copy.log_end_offset, LAST_BYTES), FileSlice):
                self._append(copy, piece.read())
                if not _is_written(copy):
                    return False
            if copy.log_end_offset < self._log.log_end_offset:
                return False
            try:
                self._target.take_over(self._name, source)
            except OSError as error:
                raise LogDirError(self._target, error) from error
            self._copy = None
            await self._on_target(self._target.make_names_durable)
        return True

    async def _prepare(self, source: LogDir) -> _Prepared:
        """Make everything durable that a start needs to use the copy as the log.

        The log is held: nobody flushes it meanwhile.
        """
        copy = await self._catch_up(is_held=True)
        partition_log = self._log
        if copy.log_end_offset < partition_log.log_end_offset and not self._rest_bytes(copy):
            self._skip(copy)
        copy.config = partition_log.config
        copy.epochs = LeaderEpochs(partition_log.epochs.entries)
        copy.delete_records_before(min(partition_log.log_start_offset, copy.log_end_offset))
        copy.ends.compacted(partition_log.first_dirty_offset)
        prepared = _Prepared(copy, copy.log_start_offset, copy.epochs.entries)
        await self._flush(copy)
        try:
            await self._tools.checkpointer.write(self._target, self._tools.high_watermark_of)
        except OSError as error:
            raise LogDirError(self._target, error) from error
        await self._record_origin(self._target, source.identity.directory_id)
        return prepared

    def _skip(self, copy: PartitionLog) -> None:
        """Move the copy's end to the log's: compaction removed all batches in between."""
        try:
            copy.skip_to(self._log.log_end_offset, now_ms())
        except OSError as error:
            raise LogDirError(self._target, error) from error

    def _still_matches(self, prepared: _Prepared, copy: PartitionLog) -> bool:
        partition_log = self._log
        return (
            prepared.copy is copy
            and prepared.log_start_offset == partition_log.log_start_offset
            and prepared.epochs == partition_log.epochs.entries
            and copy.recovery_point >= partition_log.recovery_point
            and _is_written(copy)
            and _is_written(partition_log)
        )

    async def _record_origin(self, log_dir: LogDir, directory_id: str | None) -> None:
        try:
            await self._tools.flusher.run(log_dir.incoming.record_origin, self._name, directory_id)
        except OSError as error:
            raise LogDirError(log_dir, error) from error

    async def _on_target(self, work: Callable[..., T], *args: object) -> T:
        try:
            return await self._tools.flusher.run(work, *args)
        except OSError as error:
            raise LogDirError(self._target, error) from error

    # Ending

    def _require_wanted(self) -> None:
        present = self._tools.log_dirs.dirs
        if self._target not in present:
            raise NotMoved(f"{self._target.path} has failed")
        if self._source not in present or self._source.logs.get(self._name) is not self._log:
            raise NotMoved("it is not where it was any more")
        if self._tools.is_full(self._target.path):
            raise NotMoved(f"{self._target.path} is full")
        if not self._is_wanted():
            raise NotMoved("it is not wanted any more")

    async def _drop(self) -> None:
        """Drop the copy.

        If its directory or the source has failed, its files stay, as they may be all that is left.
        """
        copy, self._copy = self._copy, None
        if copy is None:
            return
        await self._tools.flusher.until_idle(copy)
        if self._source in self._tools.log_dirs.dirs and self._target in self._tools.log_dirs.dirs:
            self._target.drop_future(self._name, now_ms())
        else:
            copy.drop_files()
            del self._target.incoming.futures[self._name]


def _is_written(partition_log: PartitionLog) -> bool:
    """Whether no batch of the log waits for a slow disk."""
    return partition_log.written_end_offset == partition_log.log_end_offset


def _extent(partition_log: PartitionLog) -> Extent:
    return Extent(
        partition_log.log_start_offset, partition_log.log_end_offset, partition_log.epochs
    )


async def _until_written(copy: PartitionLog) -> None:
    """Wait for queued writes of the copy, for a limited time.

    A disk that has failed never reports them.
    """
    written = asyncio.Event()
    copy.when_written(written.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TRY_AGAIN_S):
            await written.wait()
