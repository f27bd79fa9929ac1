"""A round as the broker sees it: puts the child's segments in place while the log is there."""

import asyncio
from contextlib import aclosing

from logfleet.io.clock import now_ms
from logfleet.log.compaction.process import CleanerProcess
from logfleet.log.compaction.program import NotCleaned
from logfleet.log.compaction.round import Cleaned, CleanedSegment, CleaningJob
from logfleet.log.compaction.round_swap import Aborted, Swaps
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.swap import remove_cleaned


class RunningRound:
    """Compaction of a log of `log_dir` by `process`.

    task: awaits `run`. aborted: why the round has to end early.
    """

    def __init__(
        self,
        log_dir: LogDir,
        log: PartitionLog,
        process: CleanerProcess,
        *,
        log_dirs: LogDirs,
        flusher: Flusher,
        on_disk_failure: OnDiskFailure,
    ) -> None:
        self.log_dir = log_dir
        self.log = log
        self.process = process
        self.task: asyncio.Task[None] | None = None
        self.aborted: str | None = None
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._on_disk_failure = on_disk_failure
        self._truncations = log.truncations

    @property
    def name(self) -> TopicPartition:
        return self.log.partition

    def abort(self, reason: str) -> None:
        self.aborted = self.aborted or reason
        self.process.kill()

    def check_wanted(self) -> None:
        """Abort if the log's cleanup.policy lost `compact`, or the log is moved or deleted.

        Source: Kafka's LogManager.updateTopicConfig, abortAndPauseCleaning.
        """
        if not self.log.config.compacts:
            self.abort("its cleanup.policy no longer has compact")
        elif (
            self.name in self._log_dirs.moving
            or self._log_dirs.dir_of(self.name) is not self.log_dir
        ):
            self.abort("it is moved to another directory, or was deleted")

    async def run(self, job: CleaningJob) -> Cleaned | NotCleaned:
        """Run the job and handle its events. Raises Aborted, OSError."""
        # leftovers of the previous round, beside which this round's swaps would not count after a
        # crash
        await self._flusher.run(remove_cleaned, self.log.files, self.log.directory)
        swaps = Swaps(
            self.log,
            self._truncations,
            self._flusher,
            self._on_disk_failure,
            self._check_present,
            self._check_wanted_and_present,
        )
        async with aclosing(self.process.run(job)) as events:
            async for event in events:
                self._check_wanted_and_present()
                if isinstance(event, CleanedSegment):
                    await swaps.put_in_place(event, now_ms())
                    continue
                if isinstance(event, Cleaned):
                    self._record_clean(event.end_offset)
                return event
        raise AssertionError("the last event is Cleaned or NotCleaned")

    def _record_clean(self, end_offset: int) -> None:
        self._check_present()
        if self.log.truncations != self._truncations:
            raise Aborted("it was truncated")
        self.log.ends.compacted(end_offset)

    def _check_present(self) -> None:
        if (
            self._log_dirs.dir_of(self.name) is not self.log_dir
            or self.log_dir.logs.get(self.name) is not self.log
        ):
            raise Aborted("it was deleted, or its directory failed")

    def _check_wanted_and_present(self) -> None:
        self.check_wanted()
        if self.aborted is not None:
            raise Aborted(self.aborted)
        self._check_present()

    async def remove_cleaned(self) -> None:
        """Remove the files that the round leaves beside the log."""
        try:
            await self._flusher.run(remove_cleaned, self.log.files, self.log.directory)
        except OSError as error:
            self._on_disk_failure(self.name, error)
