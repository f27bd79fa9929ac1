"""Reuses receive buffers: clearing a fresh 64 KiB costs as much as its checksum."""

# Limits of all spare buffers together, and of one (a producer's batch.size is rarely above 1 MiB).
ALL_SPARE_BYTES_MAX = 8 * 1024 * 1024
ONE_SPARE_BYTES_MAX = 1024 * 1024 + 64 * 1024
STEP_BYTES = 16 * 1024


class FrameBuffers:
    """A pool of buffers for large frames."""

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes with arbitrary content."""
        if size > ONE_SPARE_BYTES_MAX:
            return bytearray(size)
        rounded = (size + STEP_BYTES - 1) & -STEP_BYTES
        spare = self._spare.get(rounded)
        if spare:
            self._spare_bytes -= rounded
            return spare.pop()
        return bytearray(rounded)

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer that is not used any more."""
        size = len(buffer)
        if size > ONE_SPARE_BYTES_MAX or size % STEP_BYTES:
            return  # too large, or grown while receiving: `take` never asks for this size
        if self._spare_bytes + size <= ALL_SPARE_BYTES_MAX:
            self._spare_bytes += size
            self._spare.setdefault(size, []).append(buffer)
