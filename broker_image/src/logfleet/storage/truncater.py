"""Shortens logs without holding the loop up, as a follower does when its leader never had what it has.

A log is taken over from who else changes its files: a flush or a swap of compacted segments is waited for, others wait. A crash must
not find checkpoints that tell of more than is left: recovery would take what is appended next for durable, and what is missing of it for
damage. So they are written first (Kafka: LogManager.truncateTo, afterwards).
"""

import asyncio
from collections.abc import Callable

from logfleet.io.clock import now_ms
from logfleet.storage.checkpointer import Checkpointer
from logfleet.storage.disk_failure import Failed
from logfleet.storage.flusher import Flusher
from logfleet.storage.log_dirs import LogDirs
from logfleet.storage.partition_log import PartitionLog


class Truncater:
    """on_disk_failure: called when a log could not be shortened; whoever wants it to be tries again, if it is still there.

    on_truncated: called with a log that was shortened and the offset from which on nothing is as it was, which is 0 where it begins anew.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpointer: Checkpointer,
        on_disk_failure: Failed,
    ) -> None:
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._checkpointer = checkpointer
        self._on_disk_failure = on_disk_failure
        self.on_truncated: Callable[[PartitionLog, int], None] = lambda *_: None
        self._running: set[asyncio.Task[bool]] = set()

    async def truncate(self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool]) -> bool:
        """Cut off everything from the batch on that holds `offset`: whether that is durably done. Nothing may be appended meanwhile.

        Where nothing is left the log begins anew, see Truncation. is_wanted: asked once nobody else is at the log: the answer of one who
        leads no more must not truncate. What was begun is completed, also if the caller is cancelled.
        """
        return await self._complete(log, offset, is_wanted, anew=False)

    async def reset_to(self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool]) -> bool:
        """As `truncate`, but nothing is left, and the log begins at `offset`, without epochs and producers.

        For a log that ends before its leader's begins (Kafka: LogManager.truncateFullyAndStartAt).
        """
        return await self._complete(log, offset, is_wanted, anew=True)

    async def _complete(
        self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool], *, anew: bool
    ) -> bool:
        work = self._truncate(log, offset, is_wanted, anew=anew)
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _truncate(
        self, log: PartitionLog, offset: int, is_wanted: Callable[[], bool], *, anew: bool
    ) -> bool:
        async with self._flusher.holding(log):
            log_dir = self._log_dirs.dir_of(log.partition)
            if log_dir is None or log_dir.logs[log.partition] is not log or not is_wanted():
                return False
            if offset >= log.log_end_offset and not anew:  # an epoch without batches (KAFKA-10706)
                log.epochs.truncate_end(offset)
                return True
            truncation = log.begin_truncation(offset, now_ms(), anew=anew)
            try:
                await self._flusher.run(truncation.find)
                if log.lower(truncation.end_offset):
                    await self._checkpointer.write_bounds(log_dir)
                await self._flusher.run(truncation.run)
            except OSError as error:
                log.abandon_truncation()
                self._on_disk_failure(log.partition, error)
                return False
            log.complete_truncation(truncation)
            self.on_truncated(log, 0 if anew else truncation.end_offset)
        return True
