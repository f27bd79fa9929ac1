"""The transactions of one partition that hold its last stable offset (LSO) back.

Those are the open ones, and those whose marker is not replicated yet: a reader of committed records
must not see what a new leader may lack the outcome of (KAFKA-5121). Source: Kafka's
`ProducerStateManager.firstUnstableOffset`, `lastStableOffset(CompletedTxn)`.

First offsets only grow, so both questions are answered at the front of a queue. A transaction that
has ended stays in it until it comes to the front, or until most of the queue has ended. Upholds
I31.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

OPEN: Final = -1
"""Instead of the offset of a marker."""

_KEPT: Final = 64
"""Ended transactions behind an open one that are kept in any case."""


class _Transaction:
    """first: offset of its first record in the partition. marker: offset of its marker, or OPEN."""

    __slots__ = ("first", "marker", "producer_id")

    def __init__(self, first: int, producer_id: int) -> None:
        self.first = first
        self.producer_id = producer_id
        self.marker = OPEN


class Unstable:
    """The unstable transactions; false while there is none.

    queue: those and some that have ended, by first offset. Each fetch checks if it is empty, so
    that it is an attribute.
    """

    __slots__ = ("_all_max", "_by_first", "_open", "_open_max", "queue")

    def __init__(self, opened: Iterable[tuple[int, int]] = ()) -> None:
        """opened: (first offset, producer id) of the open transactions, in any order."""
        self._by_first: dict[int, _Transaction] = {}  # the open ones by first offset
        self._open: deque[_Transaction] = deque()  # begins with an open one
        self.queue: deque[_Transaction] = deque()
        # above these lengths of `_open` and `queue`, those that have ended are removed
        self._open_max = self._all_max = _KEPT
        for first, producer_id in sorted(opened):
            self.begun(first, producer_id)

    def __bool__(self) -> bool:
        return bool(self.queue)

    @property
    def oldest(self) -> int | None:
        """The producer of the open transaction that began before all others, if there is one."""
        return self._open[0].producer_id if self._open else None

    def begun(self, first_offset: int, producer_id: int) -> None:
        """Add a transaction whose first record was appended, behind those of all others."""
        added = self._by_first[first_offset] = _Transaction(first_offset, producer_id)
        self._open.append(added)
        self.queue.append(added)

    def ended(self, first_offset: int, marker_offset: int) -> int:
        """End the transaction that began at `first_offset`.

        Returns the LSO that follows if all of the log is replicated: the first offset of the next
        open transaction, else the one behind the marker.
        """
        self._by_first.pop(first_offset).marker = marker_offset
        opened = self._open
        while opened and opened[0].marker != OPEN:
            opened.popleft()
        if len(opened) > self._open_max:
            self._open = opened = deque(each for each in opened if each.marker == OPEN)
            self._open_max = 2 * len(opened) + _KEPT
        return opened[0].first if opened else marker_offset + 1

    def first(self, high_watermark: int) -> int | None:
        """The first offset of all that are unstable while the log is replicated up to here.

        None if there is none. What is stable by now is forgotten.
        """
        unstable = self.queue
        while unstable and OPEN != unstable[0].marker < high_watermark:
            unstable.popleft()
        if len(unstable) > self._all_max:
            self.queue = unstable = deque(
                each for each in unstable if not OPEN != each.marker < high_watermark
            )
            self._all_max = 2 * len(unstable) + _KEPT
        return unstable[0].first if unstable else None
