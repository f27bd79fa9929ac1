"""Receive buffers that are used again: clearing a fresh 64 KiB costs as much as its checksum."""

# All buffers kept together, and the largest one kept (a producer's batch.size is rarely above 1 MiB).
ALL_SPARE_BYTES_MAX = 8 * 1024 * 1024
ONE_SPARE_BYTES_MAX = 1024 * 1024 + 64 * 1024
STEP_BYTES = 16 * 1024


class FrameBuffers:
    """Buffers for large frames, kept to be used again."""

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes with any content."""
        if size > ONE_SPARE_BYTES_MAX:
            return bytearray(size)
        rounded = (size + STEP_BYTES - 1) & -STEP_BYTES
        spare = self._spare.get(rounded)
        if spare:
            self._spare_bytes -= rounded
            return spare.pop()
        return bytearray(rounded)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer that nobody looks at any more."""
        size = len(buffer)
        if size > ONE_SPARE_BYTES_MAX or size % STEP_BYTES:
            return  # huge, or grown as its frame came: not a size that is asked for
        if self._spare_bytes + size <= ALL_SPARE_BYTES_MAX:
            self._spare_bytes += size
            self._spare.setdefault(size, []).append(buffer)
