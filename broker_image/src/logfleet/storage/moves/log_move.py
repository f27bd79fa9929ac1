"""Moves one log to another log directory of the broker while it is appended to and read (KIP-113).

A copy is filled in slices, through threads, until little is left. Then the log is taken over from who else changes its files, the copy is made as durable as
the log is, and in one turn of the loop it gets the rest and the log's name: from there on the log is what was the copy (`PartitionLog.become`).
What is flushed is acknowledged only when that name is durable, and only then what was copied goes. Until then it counts after a crash.

Source: ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog. Compaction pauses meanwhile, as in Kafka: a copy that has a record
from before a round and not the tombstone that the round removed would bring the record back.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from logfleet.io.clock import now_ms
from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.log.copying import Extent, goes_on
from logfleet.log.epochs import EpochStart, LeaderEpochs
from logfleet.records.batch import parse_header
from logfleet.records.errors import RecordsError
from logfleet.storage.checkpointer import Checkpointer, HighWatermarkOf
from logfleet.storage.disk import DiskBusy
from logfleet.storage.file_slice import FileSlice
from logfleet.storage.flusher import Flusher
from logfleet.storage.log_dir import LogDir
from logfleet.storage.log_dirs import LogDirError, LogDirs
from logfleet.storage.partition_log import PartitionLog

T = TypeVar("T")

SLICE_BYTES: Final = 256 * 1024
"""Copied in one step; the loop checks and writes it in a fraction of a millisecond."""
LAST_BYTES: Final = 256 * 1024
"""So much the last turn may copy while everything else waits."""
FLUSH_BYTES: Final = 64 * 1024 * 1024
"""A copy is flushed each time it has grown by so much: the last flush, for which flushes of the log wait, is a short one."""
ANY_EPOCH: Final = 2**31 - 1
THROTTLED_MS_MAX: Final = 1_000
"""A copy that is throttled looks so often whether it is still wanted, and at which rate."""


class NotMoved(Exception):
    """The log is where it was. The text says why."""


class Tools(msgspec.Struct, frozen=True):
    """What moves need. copied: called with bytes that were copied; wait_ms: for how long no more may be.

    is_full: whether the directory of that path takes no records now.
    """

    log_dirs: LogDirs
    flusher: Flusher
    checkpointer: Checkpointer
    high_watermark_of: HighWatermarkOf
    copied: Callable[[int], None]
    wait_ms: Callable[[], int]
    is_full: Callable[[str], bool]


class _Promised(msgspec.Struct, frozen=True):
    """What the target's files say of the copy: if it holds for the log still, the copy may take its place."""

    copy: PartitionLog
    log_start_offset: int
    epochs: tuple[EpochStart, ...]


class LogMove:
    """Of `partition_log`, which has a topic id, to `target`; used once. is_wanted: asked all the time, and before the log is touched."""

    def __init__(
        self,
        partition_log: PartitionLog,
        target: LogDir,
        tools: Tools,
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
        """Return once the log is in the target, and nothing of it where it was. Raises NotMoved; OSError of the log, LogDirError of a directory."""
        moving = self._tools.log_dirs.moving
        moving.add(self._name)  # no round of compaction begins, nor puts anything in place
        try:
            async with self._tools.flusher.holding(self._log):
                self._require_wanted()  # what a round was about to put in place is there by now
            await self._move()
        except (NotMoved, OSError):
            await self._drop()
            raise
        finally:
            moving.discard(self._name)

    async def _move(self) -> None:
        assert self._source is not None, "it is wanted"
        # that it once came from elsewhere must not be said of what it becomes there
        await self._note_origin(self._source, None)
        if await self._on_target(self._target.incoming.is_taken, self._name):
            raise NotMoved(f"{self._target.path}/{self._name} is there already")
        while True:
            copy = await self._catch_up()
            await self._flush(copy)
            if await self._take_over(self._source):
                break
            await asyncio.sleep(TRY_AGAIN_S)  # a slow disk, or another leader just now
        try:
            self._source.discard_moved(self._log, now_ms())
            await self._tools.checkpointer.forget_departed(
                self._source, self._tools.high_watermark_of
            )
        except OSError as error:
            raise LogDirError(self._source, error) from error
        await self._note_origin(self._target, None)

    # Copying

    async def _catch_up(self, *, is_held: bool = False) -> PartitionLog:
        """The copy, once little is missing in it, and nothing that is durable.

        is_held: nobody flushes the log, but waits for it; so it is not throttled.
        """
        while True:
            self._require_wanted()
            copy = self._copy
            if copy is None or not self._goes_on(copy):
                await self._begin()
            elif self._has_enough(copy):
                return copy
            elif is_held or not (wait_ms := self._tools.wait_ms()):
                await self._copy_slice(copy)
            else:
                await asyncio.sleep(min(wait_ms, THROTTLED_MS_MAX) / 1000)

    def _goes_on(self, copy: PartitionLog) -> bool:
        partition_log = self._log
        is_part = goes_on(
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
        """A new copy with the log's first slice; none if the log has changed meanwhile."""
        await self._drop()
        partition_log = self._log
        before = partition_log.truncations, partition_log.log_start_offset
        piece = partition_log.read(partition_log.log_start_offset, SLICE_BYTES)
        data = await self._read(piece) if isinstance(piece, FileSlice) else b""
        self._require_wanted()
        if before != (partition_log.truncations, partition_log.log_start_offset):
            return
        start = partition_log.log_start_offset
        if data:  # the batch that holds the log's start may begin before it
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
        piece = self._log.read(copy.log_end_offset, SLICE_BYTES)
        assert isinstance(piece, FileSlice), "something is missing in the copy"
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
            return  # it is read again
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
        """Whether the copy has become the log: not so if the log has changed otherwise than by appends meanwhile, or a disk is slow."""
        async with self._tools.flusher.holding(self._log):
            promised = await self._promise(source)
            copy = await self._catch_up(is_held=True)
            if not self._is_kept(promised, copy):
                return False
            # nothing is awaited from here to the rename
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

    async def _promise(self, source: LogDir) -> _Promised:
        """Bring to the disk all that a start would need to take the copy for the log. Nobody flushes the log meanwhile."""
        copy = await self._catch_up(is_held=True)
        partition_log = self._log
        if copy.log_end_offset < partition_log.log_end_offset and not self._rest_bytes(copy):
            self._skip(copy)
        copy.config = partition_log.config
        copy.epochs = LeaderEpochs(partition_log.epochs.entries)
        copy.delete_records_before(min(partition_log.log_start_offset, copy.log_end_offset))
        copy.first_dirty_offset = partition_log.first_dirty_offset
        promised = _Promised(copy, copy.log_start_offset, copy.epochs.entries)
        await self._flush(copy)
        try:
            await self._tools.checkpointer.write(self._target, self._tools.high_watermark_of)
        except OSError as error:
            raise LogDirError(self._target, error) from error
        await self._note_origin(self._target, source.identity.directory_id)
        return promised

    def _skip(self, copy: PartitionLog) -> None:
        """What the log has had behind the copy's end was compacted."""
        try:
            copy.skip_to(self._log.log_end_offset, now_ms())
        except OSError as error:
            raise LogDirError(self._target, error) from error

    def _is_kept(self, promised: _Promised, copy: PartitionLog) -> bool:
        partition_log = self._log
        return (
            promised.copy is copy
            and promised.log_start_offset == partition_log.log_start_offset
            and promised.epochs == partition_log.epochs.entries
            and copy.recovery_point >= partition_log.recovery_point
            and _is_written(copy)
            and _is_written(partition_log)
        )

    async def _note_origin(self, log_dir: LogDir, directory_id: str | None) -> None:
        try:
            await self._tools.flusher.run(log_dir.incoming.note_origin, self._name, directory_id)
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
        """Give up the copy; its bytes stay where there is nothing else of the log, as its directory has failed."""
        copy, self._copy = self._copy, None
        if copy is None:
            return
        await self._tools.flusher.until_idle(copy)
        if self._source in self._tools.log_dirs.dirs and self._target in self._tools.log_dirs.dirs:
            self._target.drop_future(self._name, now_ms())
        else:
            copy.forget_files()
            del self._target.incoming.futures[self._name]


def _is_written(partition_log: PartitionLog) -> bool:
    """Whether nothing of the log waits for a slow disk."""
    return partition_log.written_end_offset == partition_log.log_end_offset


def _extent(partition_log: PartitionLog) -> Extent:
    return Extent(
        partition_log.log_start_offset, partition_log.log_end_offset, partition_log.epochs
    )


async def _until_written(copy: PartitionLog) -> None:
    """The disk has taken what waits for it, or does not soon: one that has failed never tells."""
    written = asyncio.Event()
    copy.disk.when_written(written.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TRY_AGAIN_S):
            await written.wait()
