"""Boundaries of the newest batches: consumers at the end of a log need no look-up on disk."""

from array import array
from bisect import bisect_right

BOUNDARIES_KEPT = 128
"""Batch boundaries kept per partition; up to twice as many are held, which is 4 KiB."""


class RecentBatches:
    """(offset, position) pairs between the newest batches.

    Everything below the offset ends at the position.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self, offset: int, position: int) -> None:
        """offset, position: of the next batch, where the cache begins."""
        self._offsets = array("q", (offset,))
        self._positions = array("q", (position,))

    def add(self, next_offset: int, end_position: int) -> None:
        """Add the end of a batch that was appended."""
        self._offsets.append(next_offset)
        self._positions.append(end_position)
        if len(self._offsets) > 2 * BOUNDARIES_KEPT:
            del self._offsets[:-BOUNDARIES_KEPT]
            del self._positions[:-BOUNDARIES_KEPT]

    def position_of(self, offset: int) -> int | None:
        """Position of the batch that holds `offset`, None if it is not cached.

        At or beyond the end it is the end.
        """
        if offset < self._offsets[0]:
            return None
        return self._positions[bisect_right(self._offsets, offset) - 1]

    def boundary_before(self, position: int) -> int | None:
        """The last boundary at or before `position`, None if it is not cached."""
        if position < self._positions[0]:
            return None
        return self._positions[bisect_right(self._positions, position) - 1]
