"""What a replica has that is not committed: how many bytes become visible when the high watermark moves."""

from collections import deque
from typing import Final

COUNT_MAX: Final = 1_000
"""Batches that are counted one by one; more wait only where the high watermark stands still, or far behind."""
TOGETHER_BYTES: Final = 1024 * 1024
"""Beyond them so many bytes count as one batch. With acks=1 a producer goes on while too few are in sync, for as long as there is disk."""


class Uncommitted:
    """Ends and sizes of batches, oldest first."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, end_offset: int, size: int) -> None:
        """What the log ends with now, `size` bytes of it, is new."""
        batches = self._batches
        if len(batches) >= COUNT_MAX and batches[-1][1] < TOGETHER_BYTES:
            size += batches.pop()[1]
        batches.append((end_offset, size))

    def take(self, high_watermark: int) -> int:
        """Forget what lies below; how many bytes that was."""
        batches, size = self._batches, 0
        while batches and batches[0][0] <= high_watermark:
            size += batches.popleft()[1]
        return size

    def clear(self) -> None:
        """The log ends elsewhere."""
        self._batches.clear()
