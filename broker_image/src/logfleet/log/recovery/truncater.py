"""Truncates logs in a thread, as a follower does when its log has batches that its leader's lacks.

The log is held meanwhile: a running flush or swap of compacted segments ends first, others wait.
Checkpoints are lowered before the files: a crash must not find checkpoints beyond the end, as
recovery would count later appends as durable, and what is missing of them as damage.
(Kafka's LogManager.truncateTo writes them afterwards.)
"""

import asyncio
from collections.abc import Callable

from logfleet.io.clock import now_ms
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.partition_log import PartitionLog


class Truncater:
    """on_disk_failure: called when a truncation failed; the caller of `truncate` has to retry it.

    on_truncated: each is called with the log and the lowest offset that has changed, 0 if the log
    was emptied.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpointer: Checkpointer,
        on_disk_failure: OnDiskFailure,
    ) -> None:
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._checkpointer = checkpointer
        self._on_disk_failure = on_disk_failure
        self.on_truncated: list[Callable[[PartitionLog, int], None]] = []
        self._running: set[asyncio.Task[bool]] = set()

    async def truncate(self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool]) -> bool:
        """Cut off everything from the batch on that holds `offset`.

        Returns whether that is durably done. Nothing may be appended meanwhile. If nothing is left
        the log is emptied, see Truncation. is_wanted: called once the log is held: a response of a
        former leader must not truncate. The work is finished even if the caller is cancelled.
        """
        return await self._complete(log, offset, is_wanted, empties=False)

    async def reset_to(self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool]) -> bool:
        """Empty the log, durably: it begins at `offset`, without epochs and producers.

        See `truncate`. For a log that ends before its leader's begins (Kafka:
        LogManager.truncateFullyAndStartAt).
        """
        return await self._complete(log, offset, is_wanted, empties=True)

    async def _complete(
        self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool], *, empties: bool
    ) -> bool:
        work = self._truncate(log, offset, is_wanted, empties=empties)
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _truncate(
        self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool], *, empties: bool
    ) -> bool:
        async with self._flusher.holding(log):
            log_dir = self._log_dirs.dir_of(log.partition)
            if log_dir is None or log_dir.logs[log.partition] is not log or not is_wanted():
                return False
            if (
                offset >= log.log_end_offset and not empties
            ):  # an epoch without batches (KAFKA-10706)
                log.epochs.truncate_end(offset)
                return True
            truncation = log.begin_truncation(offset, now_ms(), empties=empties)
            try:
                await self._flusher.run(truncation.find)
                if log.lower_end(truncation.end_offset):
                    await self._checkpointer.write_bounds(log_dir)
                await self._flusher.run(truncation.run)
            except OSError as error:
                log.abandon_truncation()
                self._on_disk_failure(log.partition, error)
                return False
            log.complete_truncation(truncation)
            for callback in self.on_truncated:
                callback(log, 0 if empties else truncation.end_offset)
        return True
