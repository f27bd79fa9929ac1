"""Writes the checkpoint files of log directories.

There is one write at a time per directory, so that an older state never replaces a newer one. A new
log start offset is durable before it is acknowledged (I19): Kafka writes that file once a minute;
this broker never shows deleted records again after a crash.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from logfleet.io.files import Files
from logfleet.io.slices import Slices
from logfleet.log.checkpoints.job import CheckpointJob
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import FIRST_DIRTY_OFFSETS, LOG_STARTS, RECOVERY_POINTS, TopicPartition

Names = tuple[str, ...]

HighWatermarkOf = Callable[[TopicPartition], int | None]
"""The high watermark of a partition, None if this broker does not host it."""


class Checkpointer:
    """One per broker. Every write runs in the flusher's threads and may raise OSError."""

    def __init__(self, files: Files, flusher: Flusher) -> None:
        self._files = files
        self._flusher = flusher
        self._slices = Slices()
        self._locks: dict[str, asyncio.Lock] = {}
        self._requested: dict[tuple[str, Names], int] = {}
        self._written: dict[tuple[str, Names], int] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def write(self, log_dir: LogDir, high_watermark_of: HighWatermarkOf) -> None:
        """Write all checkpoints, with the values of the moment at which this write begins."""
        await self._complete(self._write_all(log_dir, high_watermark_of))

    async def write_log_starts(self, log_dir: LogDir) -> None:
        """Return once the present log start offsets are durable. Concurrent calls share a write."""
        await self._write_some(log_dir, (LOG_STARTS,))

    async def write_bounds(self, log_dir: LogDir) -> None:
        """Return once all files that bound recovery are durable.

        These are the recovery points, log starts and first dirty offsets. Concurrent calls share a
        write.
        """
        await self._write_some(log_dir, (RECOVERY_POINTS, LOG_STARTS, FIRST_DIRTY_OFFSETS))

    async def _write_some(self, log_dir: LogDir, names: Names) -> None:
        what = (log_dir.path, names)
        mine = self._requested[what] = self._requested.get(what, 0) + 1
        await self._complete(self._write_shared(log_dir, names, mine))

    async def record_departures(self, log_dir: LogDir, high_watermark_of: HighWatermarkOf) -> None:
        """Return once no checkpoint names a log that has left the directory.

        Its old directory name is durably gone, too. Otherwise the checkpoints would apply to a new
        log of that name. Source: Kafka's LogManager.asyncDelete. Concurrent calls share a write.
        """
        if log_dir.has_departed:
            await self._complete(self._write_departed(log_dir, high_watermark_of))

    async def until_idle(self) -> None:
        """Return once all writes begun by now have ended.

        Call it before log directories are closed.
        """
        if self._running:
            await asyncio.wait(list(self._running))

    async def _complete(self, write: Coroutine[Any, Any, None]) -> None:
        """Finish the write even if the caller is cancelled: its thread does not stop either."""
        task = asyncio.get_running_loop().create_task(write)
        self._running.add(task)
        task.add_done_callback(self._completed)
        await asyncio.shield(task)

    def _completed(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            # the caller gets it; if nobody waits any more, the next write fails too
            task.exception()

    async def _write_shared(self, log_dir: LogDir, names: Names, mine: int) -> None:
        what = (log_dir.path, names)
        async with self._lock(log_dir):
            if self._written.get(what, 0) >= mine:
                return
            covered = self._requested[what]
            await self._run(log_dir.begin_checkpoint(names), log_dir, lambda _: None)
            self._written[what] = covered

    async def _write_all(self, log_dir: LogDir, high_watermark_of: HighWatermarkOf) -> None:
        async with self._lock(log_dir):
            await self._write(log_dir, high_watermark_of)

    async def _write_departed(self, log_dir: LogDir, high_watermark_of: HighWatermarkOf) -> None:
        async with self._lock(log_dir):
            if log_dir.has_departed:
                await self._write(log_dir, high_watermark_of)

    async def _write(self, log_dir: LogDir, high_watermark_of: HighWatermarkOf) -> None:
        job = log_dir.begin_checkpoint()
        await self._run(job, log_dir, high_watermark_of)
        for _ in log_dir.complete_checkpoint(job):
            await self._slices.pause_if_due()

    async def _run(
        self, job: CheckpointJob, log_dir: LogDir, high_watermark_of: HighWatermarkOf
    ) -> None:
        """Add a line for each log. Lines are made at different moments, and each stays true.

        A log that leaves meanwhile counts as departed.
        """
        for partition in {**log_dir.logs, **log_dir.incoming.futures}:
            log_dir.add_to_checkpoint(job, partition, high_watermark_of(partition))
            await self._slices.pause_if_due()
        await self._flusher.run(job.run, self._files)

    def _lock(self, log_dir: LogDir) -> asyncio.Lock:
        return self._locks.setdefault(log_dir.path, asyncio.Lock())
