"""Where the newest batches of the active segment begin and end, so that consumers at the end of a log need no look-up on disk."""

from array import array
from bisect import bisect_right

BOUNDARIES_KEPT = 128
"""At most twice as many are held: 4 KiB per partition."""


class RecentBatches:
    """Boundaries between the newest batches, as (offset, position) pairs: what lies below the offset ends at the position."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self, offset: int, position: int) -> None:
        """Start with the boundary behind which the next batch goes."""
        self._offsets = array("q", (offset,))
        self._positions = array("q", (position,))

    def add(self, next_offset: int, end_position: int) -> None:
        """A batch was appended that ends here."""
        self._offsets.append(next_offset)
        self._positions.append(end_position)
        if len(self._offsets) > 2 * BOUNDARIES_KEPT:
            del self._offsets[:-BOUNDARIES_KEPT]
            del self._positions[:-BOUNDARIES_KEPT]

    def position_of(self, offset: int) -> int | None:
        """Position of the batch that holds `offset` (at or beyond the end: the end), None if it is no recent one."""
        if offset < self._offsets[0]:
            return None
        return self._positions[bisect_right(self._offsets, offset) - 1]

    def boundary_before(self, position: int) -> int | None:
        """The last boundary at or before `position`, None if that is no recent one."""
        if position < self._positions[0]:
            return None
        return self._positions[bisect_right(self._positions, position) - 1]
