"""Boundaries of the newest batches: consumers at the end of a log need no look-up on disk."""

from array import array
from bisect import bisect_right
from typing import Any

from logfleet.types import Position

BOUNDARIES_KEPT = 128
"""Batch boundaries kept per partition; up to twice as many are held, which is 4 KiB."""


class RecentBatches:
    """(offset, position) pairs between the newest batches.

    Everything below the offset ends at the position.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self, offset: int, position: Position) -> None:
        """offset, position: of the next batch, where the cache begins."""
        self._offsets = array("q", (offset,))
        self._positions: array[Any] = array("q", (position,))  # of Positions

    def add(self, next_offset: int, end_position: Position) -> None:
        """Add the end of a batch that was appended."""
        self._offsets.append(next_offset)
        self._positions.append(end_position)
        if len(self._offsets) > 2 * BOUNDARIES_KEPT:
            del self._offsets[:-BOUNDARIES_KEPT]
            del self._positions[:-BOUNDARIES_KEPT]

    def position_of(self, offset: int) -> Position | None:
        """Position of the batch that holds `offset`, None if it is not cached.

        At or beyond the end it is the end.
        """
        if offset < self._offsets[0]:
            return None
        position: Position = self._positions[bisect_right(self._offsets, offset) - 1]
        return position

    def boundary_before(self, position: Position) -> Position | None:
        """The last boundary at or before `position`, None if it is not cached."""
        if position < self._positions[0]:
            return None
        boundary: Position = self._positions[bisect_right(self._positions, position) - 1]
        return boundary
