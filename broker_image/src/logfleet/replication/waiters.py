"""Parked requests of one partition, by what they wait for.

Interests are bits; a waiter names all of its own at once.
"""

from collections.abc import Iterable
from typing import Final

WRITTEN: Final = 1
"""Records were written: followers may read them."""
COMMITTED: Final = 2
"""Records were committed: consumers may read them."""
LOG_START: Final = 4
"""The log start offset has moved up."""
LOW_WATERMARK: Final = 8
"""The log start offset of another replica may have moved, or the set of replicas changed."""
STABLE: Final = 16
"""Records became stable: consumers that read only committed transactions may read them (KIP-98)."""
NEXT_COMMITTED: Final = 32
"""Records were committed, and the waiter is notified once: it reads the rest by itself.

Only for waiters for STABLE.
"""


class Waiter:
    """A parked request that waits for news of a partition.

    Only the methods of its interests are called, and `role_ended`.
    """

    __slots__ = ()

    def written(self, size: int) -> None:
        """Records of `size` bytes were written."""

    def committed(self, size: int) -> None:
        """Records of `size` bytes were committed."""

    def stable(self, size: int) -> None:
        """Records of `size` bytes became stable; an upper bound if they are in many segments."""

    def log_start_moved(self) -> None:
        """The log start offset has moved up."""

    def low_watermark_moved(self) -> None:
        """The log start offset of another replica may have moved."""

    def role_ended(self) -> None:
        """The partition has another leader, or was deleted."""


class Waiters:
    """The waiters of one partition in one role. A waiter may leave while it is notified.

    of_stable: those for stable records, None or empty if there are none.
    """

    __slots__ = (
        "_committed",
        "_log_start",
        "_low_watermark",
        "_next_committed",
        "_written",
        "of_stable",
    )

    def __init__(self) -> None:
        # sets are made when they are needed: most partitions have no waiters
        self._written: set[Waiter] | None = None
        self._committed: set[Waiter] | None = None
        self._log_start: set[Waiter] | None = None
        self._low_watermark: set[Waiter] | None = None
        self.of_stable: set[Waiter] | None = None
        self._next_committed: set[Waiter] | None = None

    def __len__(self) -> int:
        return len(self._all())

    def add(self, waiter: Waiter, interests: int) -> None:
        """Notify it of these, until `remove`; what it waited for before stays."""
        if interests & WRITTEN:
            self._written = _with(self._written, waiter)
        if interests & COMMITTED:
            self._committed = _with(self._committed, waiter)
        if interests & LOG_START:
            self._log_start = _with(self._log_start, waiter)
        if interests & LOW_WATERMARK:
            self._low_watermark = _with(self._low_watermark, waiter)
        if interests & STABLE:
            self.of_stable = _with(self.of_stable, waiter)
        if interests & NEXT_COMMITTED:
            self._next_committed = _with(self._next_committed, waiter)

    def remove(self, waiter: Waiter) -> None:
        """It waits for nothing any more; ignored if it is not there."""
        for waiting in self._sets():
            waiting.discard(waiter)

    def written(self, size: int) -> None:
        if self._written:
            for waiter in tuple(self._written):
                waiter.written(size)

    def committed(self, size: int) -> None:
        if self._committed:
            for waiter in tuple(self._committed):
                waiter.committed(size)

    def next_committed(self, size: int) -> None:
        if self._next_committed:
            notified, self._next_committed = self._next_committed, None
            for waiter in notified:
                waiter.committed(size)

    def stable(self, size: int) -> None:
        if self.of_stable:
            for waiter in tuple(self.of_stable):
                waiter.stable(size)

    def log_start_moved(self) -> None:
        for waiter in tuple(self._log_start or ()):
            waiter.log_start_moved()

    def low_watermark_moved(self) -> None:
        if self._low_watermark:
            for waiter in tuple(self._low_watermark):
                waiter.low_watermark_moved()

    def role_ended(self) -> None:
        """Notify each of them once."""
        for waiter in self._all():
            waiter.role_ended()

    def _all(self) -> set[Waiter]:
        return set().union(*self._sets())

    def _sets(self) -> Iterable[set[Waiter]]:
        every = (
            self._written,
            self._committed,
            self._log_start,
            self._low_watermark,
            self.of_stable,
            self._next_committed,
        )
        return (each for each in every if each is not None)


def _with(waiters: set[Waiter] | None, waiter: Waiter) -> set[Waiter]:
    if waiters is None:
        return {waiter}
    waiters.add(waiter)
    return waiters
