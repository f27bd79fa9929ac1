"""Replaces segments by those of a round, on a disk where any step may fail.

Rules: log.segments.swap_steps.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from logfleet.log.compaction.round import CleanedSegment
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.swap import demote, promote


class Aborted(Exception):
    """The round ends early.

    The log has changed otherwise than by appends, or is not to be compacted any more.
    """


class Swaps(msgspec.Struct, frozen=True):
    """The swaps of one round. truncations: of the log when the round began.

    check_present: raises Aborted once the log is gone; check_wanted: also once nothing is to be put
    in place any more. `put_in_place` handles a step that fails; `_last_resort` handles that the
    recovery from it fails, too.
    """

    log: PartitionLog
    truncations: int
    flusher: Flusher
    on_disk_failure: OnDiskFailure
    check_present: Callable[[], None]
    check_wanted: Callable[[], None]

    async def put_in_place(self, cleaned: CleanedSegment, now_ms: int) -> None:
        """Replace the old segments by the new one, or leave the log as it was.

        Raises Aborted, OSError.
        """
        async with self.flusher.holding(self.log):
            await self._put_in_place(cleaned, now_ms)

    async def _put_in_place(self, cleaned: CleanedSegment, now_ms: int) -> None:
        log, base_offset = self.log, cleaned.base_offsets[0]
        self.check_wanted()
        if not log.begin_swap(cleaned.base_offsets, self.truncations):
            raise Aborted("its segments are not what they were")
        outdated = log.producers.drop_before(cleaned.markers_end)
        try:
            await self.flusher.run(promote, log.files, log.directory, base_offset, outdated)
        except OSError as error:  # unknown how far it got, and what of it is durable: undo it
            with self._last_resort(error):
                await self.flusher.run(demote, log.files, log.directory, base_offset)
            log.cancel_swap()
            raise
        self.check_present()
        try:
            log.complete_swap(cleaned.size, now_ms)
        except OSError as error:  # the new file is in place: retry before anybody reads the log
            with self._last_resort(error):
                log.complete_swap(cleaned.size, now_ms)
        await self.flusher.run(log.files.fsync_directory, log.directory)

    @contextmanager
    def _last_resort(self, error: OSError) -> Iterator[None]:
        """Run the block after a step failed with `error`: only it can finish or undo the swap.

        Raises Aborted if the log is gone, or the block fails as well. In the latter case the
        directory counts as failed, even if it is only full: only a start, which finishes the swap,
        can serve the log again.
        """
        self.check_present()
        # a full disk releases its reserve here, which makes room for the block
        self.on_disk_failure(self.log.partition, error)
        self.check_present()
        try:
            yield
        except OSError as again:
            self.check_present()
            reason = f"a swap could be neither completed nor undone: {again}"
            failed = OSError(errno.EIO, reason, self.log.directory)
            self.on_disk_failure(self.log.partition, failed)
            raise Aborted(reason) from again
