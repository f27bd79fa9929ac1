"""Deadlines that move often and expire seldom.

Every heartbeat moves its member's deadline, so moving one later costs only an assignment. A heap
entry is therefore just the latest time to check a deadline: if that has moved, the entry goes back
into the heap. One heap serves a whole coordinator, and the runtime arms a single timer for it
(`next_ms`).
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

Context = TypeVar("Context")

STALE_ENTRIES_MIN = 1_024
"""Below this many dead entries the heap is never rebuilt: they cost less than the rebuild."""


class Deadline(Generic[Context]):
    """A moment at which `expire` is called unless it is moved or cleared before.

    at_ms: the moment on the monotonic clock, None while not set. Changed through `Timers` only.
    """

    __slots__ = ("at_ms", "entry", "expire", "queued_ms")

    def __init__(self, expire: Callable[[Context], None]) -> None:
        self.expire = expire
        self.at_ms: int | None = None
        self.queued_ms: int | None = None
        self.entry = 0


class Timers(Generic[Context]):
    """All deadlines of one coordinator."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline[Context]]] = []
        self._sequence = 0
        self._stale = 0

    def schedule(self, deadline: Deadline[Context], at_ms: int) -> None:
        """Set or move a deadline. Moving it later is free."""
        deadline.at_ms = at_ms
        if deadline.queued_ms is None or at_ms < deadline.queued_ms:
            superseded = deadline.queued_ms is not None
            self._push(deadline, at_ms)
            if superseded:
                self._drop_one()

    def cancel(self, deadline: Deadline[Context]) -> None:
        """Clear a deadline; clearing one that is not set does nothing."""
        deadline.at_ms = None
        if deadline.queued_ms is not None:
            deadline.queued_ms = None
            deadline.entry = 0
            self._drop_one()

    def clear(self) -> None:
        """Drop all deadlines; none of them expires."""
        for _, entry, deadline in self._heap:
            if deadline.entry == entry:
                deadline.at_ms = deadline.queued_ms = None
                deadline.entry = 0
        self._heap.clear()
        self._stale = 0

    def next_ms(self) -> int | None:
        """When to call `expire_until` next, at the latest; None when nothing is set."""
        while self._heap and self._heap[0][2].entry != self._heap[0][1]:
            heapq.heappop(self._heap)
            self._stale -= 1
        return self._heap[0][0] if self._heap else None

    def expire_until(self, now_ms: int, context: Context, limit: int) -> None:
        """Call `expire(context)` of every deadline at or before now, earliest entry first.

        Deadlines that an expiry sets at or before now expire in the same call. limit: heap entries
        to handle; the rest stays due, so that many deadlines can be handled in slices.
        """
        for _ in range(limit):
            if not self._heap or self._heap[0][0] > now_ms:
                return
            _, entry, deadline = heapq.heappop(self._heap)
            if deadline.entry != entry:
                self._stale -= 1
                continue
            deadline.queued_ms = None
            deadline.entry = 0
            assert deadline.at_ms is not None, "a cleared deadline leaves the queue"
            if deadline.at_ms > now_ms:
                self._push(deadline, deadline.at_ms)
            else:
                deadline.at_ms = None
                deadline.expire(context)

    def __len__(self) -> int:
        return len(self._heap) - self._stale

    def _push(self, deadline: Deadline[Context], at_ms: int) -> None:
        self._sequence += 1
        deadline.queued_ms = at_ms
        deadline.entry = self._sequence
        heapq.heappush(self._heap, (at_ms, self._sequence, deadline))

    def _drop_one(self) -> None:
        """Count an entry as dead and rebuild the heap when most are: churn must not let it grow."""
        self._stale += 1
        if self._stale > STALE_ENTRIES_MIN and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].entry == entry[1]]
            heapq.heapify(self._heap)
            self._stale = 0
