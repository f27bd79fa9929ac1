"""Finds the valid batches of a segment, up to the first that is damaged or not whole.

A process killed in the middle of a write leaves a torn batch at the end; a power loss may leave
holes, zeros or old bytes anywhere beyond what was fsynced. So beyond the recovery point a log is
what can be read in order with right checksums (I18).
"""

from collections.abc import Callable, Iterator

from logfleet.log.config import LONG_MAX
from logfleet.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_MIN,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_matches,
    parse_header,
)
from logfleet.records.control import Marker, read_marker
from logfleet.records.errors import CorruptRecords
from logfleet.types import Position

Read = Callable[[int, Position], bytes]
"""Reads a file: (length, position) -> bytes, fewer at the end of the file."""

VERIFY_CHUNK_BYTES = 1024 * 1024
"""Bytes per read if everything is checked."""

MAGIC_AT = 16
"""Position of the magic byte within a batch."""

HEADERS_CHUNK_BYTES = 16 * 1024
"""Bytes per read if only headers are needed: one small read per large batch, one for many small
ones."""


def scan_batches(
    read: Read,
    start: Position,
    end: int,
    *,
    next_offset: int,
    verify: bool,
    end_offset: int = LONG_MAX,
) -> Iterator[tuple[Position, BatchHeader]]:
    """(position, header) of the batches in [start, end), up to the first invalid one.

    That is one that is damaged or not whole. next_offset: no batch may begin below it, nor below
    the end of the one before. verify: check the checksums. end_offset: exclusive; no batch may
    reach beyond it.
    """
    chunk_bytes = VERIFY_CHUNK_BYTES if verify else HEADERS_CHUNK_BYTES
    position = chunk_start = start
    chunk = b""
    while end - position >= HEADER_SIZE:
        if chunk_start + len(chunk) - position < HEADER_SIZE:
            chunk, chunk_start = read(min(chunk_bytes, end - position), position), position
            if len(chunk) < HEADER_SIZE:
                return
        header = parse_header(chunk, position - chunk_start)
        if (
            not is_plausible(header, next_offset)
            or header.size > end - position
            or header.next_offset > end_offset
        ):
            return
        if verify:
            if chunk_start + len(chunk) - position < header.size:
                wanted = min(max(chunk_bytes, header.size), end - position)
                chunk, chunk_start = read(wanted, position), position
                if len(chunk) < header.size:
                    return
            if not crc_matches(chunk, header, position - chunk_start):
                return
        yield position, header
        position += header.size
        next_offset = header.next_offset


def read_batches(
    read: Read, start: Position, end: int, *, next_offset: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    """(header, bytes) of all batches in [start, end), with checked checksums.

    Memory holds a chunk and a batch at most. Raises CorruptRecords where `scan_batches` would end
    early.
    """
    chunks = _Chunks(read)
    expected = start
    for position, header in scan_batches(
        chunks.read, start, end, next_offset=next_offset, verify=True
    ):
        yield header, chunks.batch(position, header)
        expected = position + header.size
    if expected != end:
        raise CorruptRecords(f"no whole valid batch at position {expected} of {end}")


def scan_markers(
    read: Read, start: Position, end: int, *, next_offset: int
) -> Iterator[tuple[BatchHeader, Marker | None]]:
    """(header, its marker if it is one) of the batches in [start, end), up to an invalid one.

    A marker is read with the headers around it.
    """
    chunks = _Chunks(read)
    for position, header in scan_batches(
        chunks.read, start, end, next_offset=next_offset, verify=False
    ):
        is_control = header.attributes & CONTROL_BIT
        yield header, read_marker(chunks.batch(position, header)) if is_control else None


class _Chunks:
    """Reads a file by chunks and keeps the last one, which has the batch of the last header."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._chunk = b""
        self._start = Position(0)

    def read(self, length: int, position: Position) -> bytes:
        self._chunk, self._start = self._read(length, position), position
        return self._chunk

    def batch(self, position: Position, header: BatchHeader) -> bytes:
        """The whole batch; read by itself if the chunk ends within it."""
        at = position - self._start
        batch = self._chunk[at : at + header.size]
        return batch if len(batch) == header.size else self._read(header.size, position)


def holds_old_messages(read: Read, end: int) -> bool:
    """Whether a message of format v0 or v1 follows the batches of a segment before `end`.

    We cannot read those. Such a message has its size and its magic at the same positions as a batch
    (`LegacyRecord`). One segment may have both: the format could be changed without a roll, and
    compaction merges segments. All headers are read; nothing behind damage is checked. The
    message's checksum does not matter: recovery would cut it off in any case.
    """
    position = Position(0)
    for at, header in scan_batches(read, position, end, next_offset=0, verify=False):
        position = at + header.size
    if end - position <= MAGIC_AT:
        return False
    head = read(MAGIC_AT + 1, position)
    length = int.from_bytes(head[LENGTH_OVERHEAD - 4 : LENGTH_OVERHEAD], signed=True)
    fits = LENGTH_MIN <= length <= end - position - LENGTH_OVERHEAD
    return fits and head[MAGIC_AT] < MAGIC


def is_plausible(header: BatchHeader, next_offset: int) -> bool:
    """Whether these fields can be those of a batch at or after `next_offset`."""
    return (
        header.magic == MAGIC
        and header.batch_length >= HEADER_SIZE - LENGTH_OVERHEAD
        and header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.record_count >= 0
    )
