"""Puts the new segments of a round in the place of those they were made from, on a disk that may refuse any step (see log.swapping)."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from logfleet.storage.cleaning.round import CleanedSegment
from logfleet.storage.disk_failure import Failed
from logfleet.storage.flusher import Flusher
from logfleet.storage.partition_log import PartitionLog
from logfleet.storage.segment_swap import demote, promote


class Aborted(Exception):
    """A round ends early: the log is not what it was when it began, or is not to be compacted any more."""


class Swaps(msgspec.Struct, frozen=True):
    """The swaps of one round. truncations: of the log when the round began.

    check_present: raises Aborted once the log is not there any more; check_wanted: also once nothing is to be put in place.
    What the refusal of a step means stands in `put_in_place`; that the way out is refused as well, in `_way_out`.
    """

    log: PartitionLog
    truncations: int
    flusher: Flusher
    on_disk_failure: Failed
    check_present: Callable[[], None]
    check_wanted: Callable[[], None]

    async def put_in_place(self, cleaned: CleanedSegment, now_ms: int) -> None:
        """The log has the new segment instead of the old ones, or is as it was. Raises Aborted, OSError."""
        async with self.flusher.holding(self.log):
            await self._put_in_place(cleaned, now_ms)

    async def _put_in_place(self, cleaned: CleanedSegment, now_ms: int) -> None:
        log, base_offset = self.log, cleaned.base_offsets[0]
        self.check_wanted()
        if not log.begin_swap(cleaned.base_offsets, self.truncations):
            raise Aborted("its segments are not what they were")
        try:
            await self.flusher.run(promote, log.files, log.directory, base_offset)
        except OSError as error:  # nobody knows how far it came, and what is durable of it: back
            with self._way_out(error):
                await self.flusher.run(demote, log.files, log.directory, base_offset)
            log.cancel_swap()
            raise
        self.check_present()
        try:
            log.complete_swap(cleaned.size, now_ms)
        except OSError as error:  # the new segment counts already: forward, before anybody reads
            with self._way_out(error):
                log.complete_swap(cleaned.size, now_ms)
        await self.flusher.run(log.files.fsync_directory, log.directory)

    @contextmanager
    def _way_out(self, error: OSError) -> Iterator[None]:
        """`error` refused a step, and the block is the only way on. Raises Aborted if the log is gone, or this is refused as well.

        Then the directory has failed, a full one too: only a start, which brings the swap to its end, can serve the log again.
        """
        self.check_present()
        # a full disk gives its reserve up: room for the way out
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
