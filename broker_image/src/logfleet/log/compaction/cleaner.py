"""Compacts logs, as Kafka's LogCleaner does.

It chooses the dirtiest log, lets a child process write its new segments, and puts those in place.
The rules are in log.compaction; `program` reads and writes the bytes; `running_round` follows the
round of one log. Work on the loop is short: a walk over the logs in slices, and some renames per
new segment. The round of a log ends if the log is truncated, deleted, led elsewhere or no longer to
be compacted; segments that were put in place by then stay, as each is right by itself.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import msgspec
import structlog

from logfleet.config.cleaner import CleanerSettings
from logfleet.io.clock import now_ms
from logfleet.io.files import is_shortage
from logfleet.io.slices import Slices
from logfleet.log.compaction.due import Cleanable, retry_pause_s
from logfleet.log.compaction.job import cleaning_job, find_cleanable
from logfleet.log.compaction.process import CleanerProcess
from logfleet.log.compaction.program import NotCleaned
from logfleet.log.compaction.round import Cleaned, CleaningJob
from logfleet.log.compaction.round_swap import Aborted
from logfleet.log.compaction.running_round import RunningRound
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog

log = structlog.get_logger(__name__)


class CleanerStats(msgspec.Struct):
    """Totals since the start, and values of the last check and round; see CleanerMetrics."""

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

    def add_round(self, cleaned: Cleaned, duration_s: float) -> None:
        """Add the results of a round that has ended."""
        self.cleanings += 1
        self.bytes_read += cleaned.bytes_read
        self.bytes_kept += cleaned.bytes_kept
        self.records_read += cleaned.records_read
        self.records_kept += cleaned.records_kept
        self.keyless_records += cleaned.keyless
        self.cpu_s += cleaned.cpu_s
        self.last_duration_s = duration_s
        self.last_map_utilization = cleaned.map_utilization


class CompactedReplica(Protocol):
    """A replica whose log may be compacted."""

    @property
    def log(self) -> PartitionLog: ...

    @property
    def is_current(self) -> bool:
        """Whether this broker still has to compact the replica's log."""

    @property
    def last_stable_offset(self) -> int:
        """Offset below which everything is committed and decided."""


class Cleaner:
    """settings: called before each check. table: the replicas of this broker.

    checkpoint: makes first dirty offsets durable. room: bytes that rounds may take of a directory,
    None for no limit; limited while it is full, see DiskSpace.room_to_compact. uncleanable: logs
    that cannot be compacted, with the reason; they are skipped until the next start, as by Kafka's
    LogCleaner. A log that could not be compacted for a passing reason is retried, after growing
    pauses.
    """

    def __init__(
        self,
        settings: Callable[[], CleanerSettings],
        *,
        table: Iterable[CompactedReplica],
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpoint: Callable[[LogDir], Awaitable[None]],
        room: Callable[[str], int | None],
        on_disk_failure: OnDiskFailure,
    ) -> None:
        self.stats = CleanerStats()
        self.uncleanable: dict[PartitionLog, str] = {}
        self._settings = settings
        self._table = table
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._checkpoint = checkpoint
        self._room = room
        self._on_disk_failure = on_disk_failure
        self._rounds: dict[TopicPartition, RunningRound] = {}
        self._idle: list[CleanerProcess] = []
        self._failures: dict[PartitionLog, tuple[int, float]] = {}  # how many, earliest retry
        self._bug: BaseException | None = None
        self._slices = Slices()

    async def run(self) -> None:
        """Compact until cancelled; then the running rounds are aborted."""
        try:
            while self._bug is None:
                settings = self._settings()
                for each in self._rounds.values():
                    each.check_wanted()
                while len(self._rounds) < settings.threads and await self._begin_round(settings):
                    pass
                if not self._rounds:
                    await self._stop_idle()
                await self._wait(settings.backoff_s)
            raise self._bug
        finally:
            for each in self._rounds.values():
                each.abort("the broker stops")
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
            self._idle.remove(process)  # last: a cancelled stop is repeated by the final one

    async def _wait(self, backoff_s: float) -> None:
        tasks = [each.task for each in self._rounds.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=backoff_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(backoff_s)

    def abort_round(self, partition: CompactedReplica) -> None:
        """Abort the round of a replica that changed its role or is gone.

        Its log may be cut soon.
        """
        running = self._rounds.get(partition.log.partition)
        if running is not None:
            running.abort("the partition's leader has changed, or it was deleted")

    async def compact_now(self, partition: CompactedReplica) -> None:
        """Compact what is dirty of a log, however little it is, and wait until that is done.

        What is active, not durable or too young (min.compaction.lag.ms) stays.
        """
        name = partition.log.partition
        if self._may_be_cleaned(partition):
            found = find_cleanable(partition.log, partition.last_stable_offset, now_ms())
            if found.dirty_bytes:
                self._begin(partition, self._settings())
        running = self._rounds.get(name)
        if running is not None and running.task is not None:
            await asyncio.wait([running.task])

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._bug = self._bug or task.exception()

    # Choosing

    async def _begin_round(self, settings: CleanerSettings) -> bool:
        """Begin to compact the dirtiest log that is due; False if none is."""
        self.stats.last_run = time.monotonic()
        self._drop_removed_logs()
        ratio_max, overdue_max = 0.0, 0
        best: tuple[Cleanable, CompactedReplica] | None = None
        for partition in self._table:
            await self._slices.pause_if_due()
            if not self._may_be_cleaned(partition):
                continue
            name = partition.log.partition
            try:
                found = find_cleanable(partition.log, partition.last_stable_offset, now_ms())
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

    def _may_be_cleaned(self, partition: CompactedReplica) -> bool:
        partition_log = partition.log
        return (
            partition.is_current
            and partition_log.config.compacts
            and partition_log not in self.uncleanable
            and partition_log.partition not in self._rounds
            and partition_log.partition not in self._log_dirs.moving
            and self._failures.get(partition_log, (0, 0.0))[1] <= time.monotonic()
        )

    def _has_room(self, log_dir: LogDir | None) -> bool:
        """Whether a round may begin there.

        In a full directory one at a time, and only if there is some room to begin with.
        """
        if log_dir is None:
            return False
        room_bytes = self._room(log_dir.path)
        return room_bytes is None or (
            room_bytes > 0 and all(each.log_dir is not log_dir for each in self._rounds.values())
        )

    def _drop_removed_logs(self) -> None:
        if self.uncleanable or self._failures:
            present = {each for log_dir in self._log_dirs for each in log_dir.logs.values()}
            self.uncleanable = {p: why for p, why in self.uncleanable.items() if p in present}
            self._failures = {p: n for p, n in self._failures.items() if p in present}

    def _begin(self, partition: CompactedReplica, settings: CleanerSettings) -> bool:
        name = partition.log.partition
        log_dir = self._log_dirs.dir_of(name)
        if log_dir is None or not partition.is_current or not self._has_room(log_dir):
            return False
        now = now_ms()
        try:
            found = find_cleanable(
                partition.log, partition.last_stable_offset, now
            )  # checked again, because the walk took time
        except OSError as error:
            self._on_disk_failure(name, error)
            return False
        job = cleaning_job(partition.log, found, settings, now, self._room(log_dir.path))
        process = self._idle.pop() if self._idle else CleanerProcess()
        running = self._rounds[name] = RunningRound(
            log_dir,
            partition.log,
            process,
            log_dirs=self._log_dirs,
            flusher=self._flusher,
            on_disk_failure=self._on_disk_failure,
        )
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

    async def _clean(self, running: RunningRound, job: CleaningJob, backoff_s: float) -> None:
        is_complete, started = False, time.monotonic()
        try:
            event = await running.run(job)
            if isinstance(event, Cleaned):
                await self._cleaned(running, event, started)
            else:
                self._not_cleaned(running, event, backoff_s)
            is_complete = running.aborted is None
        except Aborted as aborted:
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
            await running.remove_cleaned()
            del self._rounds[running.name]

    async def _cleaned(self, running: RunningRound, cleaned: Cleaned, started: float) -> None:
        await self._checkpoint(running.log_dir)
        self._failures.pop(running.log, None)
        duration_s = time.monotonic() - started
        self.stats.add_round(cleaned, duration_s)
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

    def _not_cleaned(self, running: RunningRound, event: NotCleaned, backoff_s: float) -> None:
        if event.is_disk:
            self._on_disk_failure(running.name, OSError(event.reason))
            return
        if event.is_lasting:
            self.stats.failures += 1
            self.uncleanable[running.log] = event.reason
            log.error("log_uncleanable", partition=str(running.name), reason=event.reason)
        else:
            self._put_off(running, event.reason, backoff_s)

    def _put_off(self, running: RunningRound, reason: str, backoff_s: float) -> None:
        """The round failed through no fault of the log: retry it later."""
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
