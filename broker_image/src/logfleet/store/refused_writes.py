"""Writes that the metadata store refuses: a permission is missing, or etcd's limits are too low.

Such a write is not made, and the broker goes on with everything else. It tries again after a pause
that grows, as an operator may fix the cause. A broker cannot do without its watch of the store and
the lease of its registration.
"""

import asyncio

import structlog

from logfleet.io.clock import SYSTEM_CLOCK, Clock
from logfleet.metadata import attempts
from logfleet.metadata.attempts import GrowingPause
from logfleet.metadata.store import MetadataStore, StoreRefused, Txn, TxnResult
from logfleet.store.claims import settle

log = structlog.get_logger()


class RefusedWrites:
    """The refused writes of one part of a broker. count: attempts that were refused."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.count = 0
        self._clock = clock
        # write -> pauses, end of the last
        self._waiting: dict[str, tuple[GrowingPause, float]] = {}

    def refused(self, write: str, error: StoreRefused) -> float:
        """Count a refusal; return how many seconds to wait before the next attempt.

        It is logged the first time.
        """
        self.count += 1
        pause, _ = self._waiting.get(write, (None, 0.0))
        if pause is None:
            log.error("metadata_write_refused", write=write, reason=str(error))
            pause = GrowingPause(attempts.REFUSED_MS)
        pause_s = pause.next_ms() / 1000
        self._waiting[write] = pause, self._clock.monotonic_ms() / 1000 + pause_s
        return pause_s

    def is_waiting(self, write: str) -> bool:
        """Whether it was refused, and its pause is not over."""
        _, until_s = self._waiting.get(write, (None, 0.0))
        return self._clock.monotonic_ms() / 1000 < until_s

    def accepted(self, write: str) -> None:
        """The store has taken the write: end its pauses."""
        if self._waiting.pop(write, None) is not None:
            log.info("metadata_write_accepted", write=write)


async def settle_when_accepted(
    store: MetadataStore, txn: Txn, refused: RefusedWrites, write: str
) -> TxnResult:
    """As `settle`, but repeat the write for as long as the store refuses it.

    write: its name in the log. Raises StoreReplaced, LeaseNotFound.
    """
    while True:
        try:
            result = await settle(store, txn)
        except StoreRefused as error:
            await asyncio.sleep(refused.refused(write, error))
        else:
            refused.accepted(write)
            return result
