"""The uncommitted batches of a replica: how many bytes a move of the high watermark commits."""

from collections import deque
from typing import Final

COUNT_MAX: Final = 1_000
"""Batches that are counted one by one; more wait only if the high watermark stands or lags far."""
TOGETHER_BYTES: Final = 1024 * 1024
"""Beyond COUNT_MAX, batches are counted together up to this size.

With acks=1 a producer goes on while too few are in sync, for as long as there is disk space.
"""


class Uncommitted:
    """Ends and sizes of batches, oldest first."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, end_offset: int, size: int) -> None:
        """The log ends at `end_offset` now; its last `size` bytes are new."""
        batches = self._batches
        if len(batches) >= COUNT_MAX and batches[-1][1] < TOGETHER_BYTES:
            size += batches.pop()[1]
        batches.append((end_offset, size))

    def take(self, high_watermark: int) -> int:
        """Remove what lies below, and return its size in bytes."""
        batches, size = self._batches, 0
        while batches and batches[0][0] <= high_watermark:
            size += batches.popleft()[1]
        return size

    def clear(self) -> None:
        """The log ends elsewhere."""
        self._batches.clear()
