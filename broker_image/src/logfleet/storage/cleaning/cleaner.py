"""Compacts logs: chooses the dirtiest, has a child process write its new segments, puts those in place (Kafka's LogCleaner).

Rules are in log.compaction, the bytes are read and written by cleaner_program. What is done here on the loop is short: a walk over the
logs in slices, and for each new segment some renames. A log that is truncated, deleted, led elsewhere or no longer to be compacted meanwhile
ends its round; what was put in place by then stays, it is right by itself.
"""

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Protocol

import msgspec
import structlog

from logfleet.control.cleaner_settings import CleanerSettings
from logfleet.io.clock import now_ms
from logfleet.io.files import Files, is_shortage
from logfleet.io.slices import Slices
from logfleet.log.compaction import Cleanable, CleanableSegment, cleanable, retry_pause_s
from logfleet.log.names import TopicPartition
from logfleet.records.batch import NO_TIMESTAMP
from logfleet.records.record import DECOMPRESSED_BYTES_MAX
from logfleet.storage.cleaning.process import CleanerProcess
from logfleet.storage.cleaning.program import NotCleaned
from logfleet.storage.cleaning.round import NOT_KNOWN, Cleaned, CleanedSegment, CleaningJob
from logfleet.storage.disk_failure import Failed
from logfleet.storage.flusher import Flusher
from logfleet.storage.log_dir import LogDir
from logfleet.storage.log_dirs import LogDirs
from logfleet.storage.partition_log import PartitionLog
from logfleet.storage.segment import Segment
from logfleet.storage.segment_swap import demote, promote, remove_cleaned

log = structlog.get_logger(__name__)


class CleanerStats(msgspec.Struct):
    """Since the start, and of the last look and round; see CleanerMetrics."""

    cleanings: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0
    cpu_s: float = 0.0
    last_duration_s: float = 0.0
    last_map_utilization: float = 0.0
    dirty_ratio_max: float = 0.0
    overdue_ms_max: int = 0
    last_run: float = msgspec.field(default_factory=time.monotonic)


class CompactedPartition(Protocol):
    """A partition whose log may be compacted."""

    @property
    def log(self) -> PartitionLog: ...

    @property
    def is_leading(self) -> bool:
        """Whether it is to be compacted here still."""

    @property
    def last_stable_offset(self) -> int:
        """Offset below which everything is committed and decided."""


class _Round(msgspec.Struct):
    """A log being cleaned. aborted: why it is to end early."""

    name: TopicPartition
    log_dir: LogDir
    log: PartitionLog
    process: CleanerProcess
    task: asyncio.Task[None] | None = None
    aborted: str | None = None


class _Aborted(Exception):
    """The log is not what it was when the round began."""


def look(partition_log: PartitionLog, committed_end: int, now: int) -> Cleanable:
    """What of the log could be cleaned now. committed_end: offset below which everything is committed and decided."""
    return cleanable(
        [
            CleanableSegment(
                segment.base_offset,
                segment.size,
                _FirstTimestamp(segment),
                segment.largest_timestamp,
            )
            for segment in partition_log.segments
        ],
        partition_log.config,
        first_dirty=partition_log.first_dirty_offset,
        stable_end=min(committed_end, partition_log.checkpointed_point),
        log_start_offset=partition_log.log_start_offset,
        log_end_offset=partition_log.log_end_offset,
        now_ms=now,
    )


class _FirstTimestamp:
    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def __call__(self) -> int:
        return self._segment.as_active().first_timestamp if self._segment.size else NO_TIMESTAMP


def cleaning_job(
    partition_log: PartitionLog,
    found: Cleanable,
    settings: CleanerSettings,
    now: int,
    room_bytes: int | None = None,
) -> CleaningJob:
    """The round that cleans what was found. room_bytes: what it may take of the disk, None for no limit."""
    config, end_offset = partition_log.config, found.first_uncleanable
    return CleaningJob(
        directory=partition_log.directory,
        segments=tuple(
            (segment.base_offset, segment.size)
            for segment in partition_log.segments
            if segment.base_offset < end_offset
        ),
        first_dirty=found.first_dirty,
        first_uncleanable=end_offset,
        producers=_producers(partition_log, end_offset),
        now_ms=now,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        map_bytes_max=settings.map_bytes,
        load_factor=settings.load_factor,
        bytes_per_second=settings.bytes_per_second,
        room_bytes=room_bytes,
    )


def _producers(partition_log: PartitionLog, end_offset: int) -> dict[int, int]:
    """Producers whose state what lies below `end_offset` has to hold: all but those whose last batch lies behind it and is durable.

    One that is behind it and not durable may be lost with the machine, and then the one before it is the last.
    """
    last_offsets = dict(partition_log.producers.states.last_offsets())
    return {
        producer_id: offset if offset < end_offset else NOT_KNOWN
        for producer_id, offset in last_offsets.items()
        if offset < end_offset or offset >= partition_log.checkpointed_point
    }


class Cleaner:
    """settings: asked before each look. table: the partitions that this broker leads. checkpoint: makes durable how far the logs of a directory are clean.

    room: what rounds may take of a directory in bytes, None for no limit; it has one while it is full, see DiskSpace.room_to_compact.
    uncleanable: logs that cannot be compacted, with the reason; they are left alone until the next start, as by Kafka's LogCleaner. One
    that could not be compacted for another reason is tried again, after pauses that grow.
    """

    def __init__(
        self,
        files: Files,
        settings: Callable[[], CleanerSettings],
        *,
        table: Iterable[CompactedPartition],
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpoint: Callable[[LogDir], Awaitable[None]],
        room: Callable[[str], int | None],
        on_disk_failure: Failed,
    ) -> None:
        self.stats = CleanerStats()
        self.uncleanable: dict[PartitionLog, str] = {}
        self._files = files
        self._settings = settings
        self._table = table
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._checkpoint = checkpoint
        self._room = room
        self._on_disk_failure = on_disk_failure
        self._rounds: dict[TopicPartition, _Round] = {}
        self._idle: list[CleanerProcess] = []
        self._failures: dict[PartitionLog, tuple[int, float]] = {}  # how many, not again before
        self._bug: BaseException | None = None
        self._slices = Slices()

    async def run(self) -> None:
        """Clean until cancelled; rounds under way are ended then."""
        try:
            while self._bug is None:
                settings = self._settings()
                for each in self._rounds.values():
                    self._check_wanted(each)
                while len(self._rounds) < settings.threads and await self._begin_round(settings):
                    pass
                if not self._rounds:
                    await self._stop_idle()
                await self._wait(settings.backoff_s)
            raise self._bug
        finally:
            for each in self._rounds.values():
                self._abort(each, "the broker stops")
            await asyncio.shield(self._end())

    async def _end(self) -> None:
        tasks = [each.task for each in self._rounds.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self._stop_idle()

    async def _stop_idle(self) -> None:
        while self._idle:
            process = self._idle[0]
            await process.stop()
            self._idle.remove(process)  # only now: a cancelled stop is done again by the last one

    async def _wait(self, backoff_s: float) -> None:
        tasks = [each.task for each in self._rounds.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=backoff_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(backoff_s)

    def lost(self, partition: CompactedPartition) -> None:
        """This broker no longer leads the partition: a round over its log ends."""
        running = self._rounds.get(partition.log.partition)
        if running is not None:
            self._abort(running, "the partition is led elsewhere or deleted")

    def _check_wanted(self, running: _Round) -> None:
        """The round ends if the log's cleanup.policy lost `compact` meanwhile (LogManager.updateTopicConfig)."""
        if not running.log.config.compacts:
            self._abort(running, "its cleanup.policy no longer has compact")

    @staticmethod
    def _abort(running: _Round, reason: str) -> None:
        running.aborted = running.aborted or reason
        running.process.kill()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._bug = self._bug or task.exception()

    # Choosing

    async def _begin_round(self, settings: CleanerSettings) -> bool:
        """Begin to clean the dirtiest log that is due; False if none is."""
        self.stats.last_run = time.monotonic()
        self._forget_what_is_gone()
        ratio_max, overdue_max = 0.0, 0
        best: tuple[Cleanable, CompactedPartition] | None = None
        for partition in self._table:
            await self._slices.breathe()
            if not self._may_be_cleaned(partition):
                continue
            name = partition.log.partition
            try:
                found = look(partition.log, partition.last_stable_offset, now_ms())
            except OSError as error:
                self._on_disk_failure(name, error)
                continue
            ratio_max = max(ratio_max, found.dirty_ratio)
            overdue_max = max(overdue_max, found.overdue_ms)
            if (
                found.is_due(partition.log.config)
                and (best is None or found.dirty_ratio > best[0].dirty_ratio)
                and self._has_room(self._log_dirs.dir_of(name))
            ):
                best = found, partition
        self.stats.dirty_ratio_max, self.stats.overdue_ms_max = ratio_max, overdue_max
        return best is not None and self._begin(best[1], settings)

    def _may_be_cleaned(self, partition: CompactedPartition) -> bool:
        partition_log = partition.log
        return (
            partition.is_leading
            and partition_log.config.compacts
            and partition_log not in self.uncleanable
            and partition.log.partition not in self._rounds
            and self._failures.get(partition_log, (0, 0.0))[1] <= time.monotonic()
        )

    def _has_room(self, log_dir: LogDir | None) -> bool:
        """Whether a round may begin there: in a full directory one at a time, which makes room, as long as there is some to begin with."""
        if log_dir is None:
            return False
        room_bytes = self._room(log_dir.path)
        return room_bytes is None or (
            room_bytes > 0 and all(each.log_dir is not log_dir for each in self._rounds.values())
        )

    def _forget_what_is_gone(self) -> None:
        if self.uncleanable or self._failures:
            present = {each for log_dir in self._log_dirs for each in log_dir.logs.values()}
            self.uncleanable = {p: why for p, why in self.uncleanable.items() if p in present}
            self._failures = {p: n for p, n in self._failures.items() if p in present}

    def _begin(self, partition: CompactedPartition, settings: CleanerSettings) -> bool:
        name = partition.log.partition
        log_dir = self._log_dirs.dir_of(name)
        if log_dir is None or not partition.is_leading or not self._has_room(log_dir):
            return False
        now = now_ms()
        try:
            found = look(
                partition.log, partition.last_stable_offset, now
            )  # as it is at this moment
        except OSError as error:
            self._on_disk_failure(name, error)
            return False
        job = cleaning_job(partition.log, found, settings, now, self._room(log_dir.path))
        process = self._idle.pop() if self._idle else CleanerProcess()
        running = self._rounds[name] = _Round(name, log_dir, partition.log, process)
        work = self._clean(running, job, settings.backoff_s)
        running.task = asyncio.get_running_loop().create_task(work)
        running.task.add_done_callback(self._ended)
        log.debug(
            "cleaning",
            partition=str(name),
            first_dirty=found.first_dirty,
            first_uncleanable=found.first_uncleanable,
            dirty_ratio=round(found.dirty_ratio, 3),
        )
        return True

    # Cleaning

    async def _clean(self, running: _Round, job: CleaningJob, backoff_s: float) -> None:
        is_complete = False
        try:
            await self._follow(running, job, backoff_s)
            is_complete = running.aborted is None
        except _Aborted as aborted:
            log.info("cleaning_aborted", partition=str(running.name), reason=str(aborted))
        except OSError as error:
            self._on_disk_failure(running.name, error)
            if is_shortage(error):
                self._put_off(running, str(error), backoff_s)
        finally:
            if is_complete and not running.process.has_ended:
                self._idle.append(running.process)
            else:
                await running.process.stop()
            await self._remove_cleaned(running)
            del self._rounds[running.name]

    async def _follow(self, running: _Round, job: CleaningJob, backoff_s: float) -> None:
        """Act on what the child process tells. Raises _Aborted, OSError."""
        started, truncations = time.monotonic(), running.log.truncations
        # what the round before could not remove: beside it the swaps of this one would not count after a crash
        await self._flusher.run(remove_cleaned, self._files, running.log.directory)
        async with aclosing(running.process.run(job)) as events:
            async for event in events:
                self._check_wanted(running)
                if running.aborted is not None:
                    raise _Aborted(running.aborted)
                if isinstance(event, CleanedSegment):
                    await self._swap(running, event, truncations)
                elif isinstance(event, Cleaned):
                    await self._cleaned(running, event, truncations, started)
                else:
                    self._not_cleaned(running, event, backoff_s)

    async def _remove_cleaned(self, running: _Round) -> None:
        try:
            await self._flusher.run(remove_cleaned, self._files, running.log.directory)
        except OSError as error:
            self._on_disk_failure(running.name, error)

    async def _swap(self, running: _Round, cleaned: CleanedSegment, truncations: int) -> None:
        """Put a new segment in place. Raises _Aborted, OSError."""
        self._check_present(running)
        if not running.log.begin_swap(cleaned.base_offsets, truncations):
            raise _Aborted("its segments are not what they were")
        directory, base_offset = running.log.directory, cleaned.base_offsets[0]
        try:
            await self._flusher.run(promote, self._files, directory, base_offset)
        except OSError as error:
            self._check_present(running)
            await self._cancel_swap(running, base_offset, error)
            raise
        self._check_present(running)
        self._complete_swap(running, cleaned.size)
        await self._flusher.run(self._files.fsync_directory, directory)

    async def _cancel_swap(self, running: _Round, base_offset: int, error: OSError) -> None:
        """The new segment was not promoted, or nobody knows for how long: it does not count. Raises _Aborted."""
        # a full disk gives its reserve up: room for this
        self._on_disk_failure(running.name, error)
        self._check_present(running)
        try:
            await self._flusher.run(demote, self._files, running.log.directory, base_offset)
        except OSError as again:
            self._check_present(running)
            raise self._stuck(running, again) from again
        running.log.cancel_swap()

    def _complete_swap(self, running: _Round, size: int) -> None:
        """A promoted segment counts, so there is no way back; nobody may read the log in between. Raises _Aborted."""
        try:
            running.log.complete_swap(size, now_ms())
        except OSError as error:
            self._on_disk_failure(running.name, error)
            self._check_present(running)
            try:
                running.log.complete_swap(size, now_ms())
            except OSError as again:
                raise self._stuck(running, again) from again

    def _stuck(self, running: _Round, error: OSError) -> _Aborted:
        """The log can be served again only by a start, which brings the swap to its end: even a full disk has failed then."""
        reason = f"a swap could be neither completed nor undone: {error}"
        self._on_disk_failure(running.name, OSError(errno.EIO, reason, running.log.directory))
        return _Aborted(reason)

    def _check_present(self, running: _Round) -> None:
        if (
            self._log_dirs.dir_of(running.name) is not running.log_dir
            or running.log_dir.logs.get(running.name) is not running.log
        ):
            raise _Aborted("it was deleted, or its directory failed")

    async def _cleaned(
        self, running: _Round, cleaned: Cleaned, truncations: int, started: float
    ) -> None:
        self._check_present(running)
        if running.log.truncations != truncations:
            raise _Aborted("it was truncated")
        running.log.first_dirty_offset = cleaned.end_offset
        await self._checkpoint(running.log_dir)
        self._failures.pop(running.log, None)
        stats, duration_s = self.stats, time.monotonic() - started
        stats.cleanings += 1
        stats.bytes_read += cleaned.bytes_read
        stats.bytes_kept += cleaned.bytes_kept
        stats.records_read += cleaned.records_read
        stats.records_kept += cleaned.records_kept
        stats.keyless_records += cleaned.keyless
        stats.cpu_s += cleaned.cpu_s
        stats.last_duration_s = duration_s
        stats.last_map_utilization = cleaned.map_utilization
        log.info(
            "log_cleaned",
            partition=str(running.name),
            end_offset=cleaned.end_offset,
            bytes_read=cleaned.bytes_read,
            bytes_kept=cleaned.bytes_kept,
            records_read=cleaned.records_read,
            records_kept=cleaned.records_kept,
            records_without_key=cleaned.keyless,
            map_utilization=round(cleaned.map_utilization, 3),
            seconds=round(duration_s, 3),
            cpu_seconds=round(cleaned.cpu_s, 3),
        )

    def _not_cleaned(self, running: _Round, event: NotCleaned, backoff_s: float) -> None:
        if event.is_disk:
            self._on_disk_failure(running.name, OSError(event.reason))
            return
        if event.is_lasting:
            self.stats.failures += 1
            self.uncleanable[running.log] = event.reason
            log.error("log_uncleanable", partition=str(running.name), reason=event.reason)
        else:
            self._put_off(running, event.reason, backoff_s)

    def _put_off(self, running: _Round, reason: str, backoff_s: float) -> None:
        """The round failed for no fault of the log: try it again later."""
        self.stats.failures += 1
        count = self._failures.get(running.log, (0, 0.0))[0] + 1
        pause_s = retry_pause_s(count, backoff_s)
        self._failures[running.log] = (count, time.monotonic() + pause_s)
        log.warning(
            "log_not_cleaned",
            partition=str(running.name),
            reason=reason,
            again_in_s=round(pause_s, 3),
        )
