"""Sparse indexes of a segment: entry formats, and which entries are sound.

Offset index: (offset of a batch's last record - base offset, position of the batch), 8 bytes. Time
index: (largest timestamp so far, offset of its batch - base offset), 12 bytes. Each gets one entry
about every `index.interval.bytes` of log, so a look-up ends at most that far (and one batch) before
its target. Source: `OffsetIndex`, `TimeIndex`, `LogSegment.append`.
"""

import struct
from collections.abc import Iterable, Iterator

from logfleet.records.batch import NO_TIMESTAMP, BatchHeader
from logfleet.types import Position

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
RELATIVE_OFFSET_MAX = 2**31 - 1
"""No offset of a segment lies further from its base: entries are 32 bits wide."""

Entries = Iterable[tuple[int, int]]


def unpack_entries(entry: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    """All whole entries in `data`, lazily.

    A Kafka that was killed leaves millions, mostly zeros.
    """
    return entry.iter_unpack(data[: len(data) - len(data) % entry.size])


def sound_length(entries: Entries, *, first_max: int, second_min: int, second_max: int) -> int:
    """How many leading entries can be true.

    Both fields ascend strictly, the second one within its bounds (inclusive). What a power loss
    leaves behind the synced part (zeros, an older file, a torn tail) breaks the order. No entry has
    position 0, so zeros at the very beginning are refused, too.
    """
    last_first, last_second = -1, second_min - 1
    count = 0
    for first, second in entries:
        if not (last_first < first <= first_max and last_second < second <= second_max):
            break
        last_first, last_second = first, second
        count += 1
    return count


def offset_entries(
    batches: Iterable[tuple[Position, BatchHeader]], base_offset: int, interval_bytes: int
) -> Iterator[tuple[int, Position]]:
    """The offset index of a segment with these batches, the same as appending them writes."""
    since_entry = 0
    for position, header in batches:
        if since_entry > interval_bytes:
            yield header.last_offset - base_offset, position
            since_entry = 0
        since_entry += header.size


def time_entries(
    batches: Iterable[tuple[Position, BatchHeader]], base_offset: int, interval_bytes: int
) -> Iterator[tuple[int, int]]:
    """The time index of a closed segment with these batches, the same as appending writes."""
    largest, held_at, indexed = NO_TIMESTAMP, base_offset, NO_TIMESTAMP
    since_entry = 0
    for _, header in batches:
        if header.record_count and header.max_timestamp > largest:
            largest, held_at = header.max_timestamp, header.last_offset
        if since_entry > interval_bytes:
            if largest > indexed:
                yield largest, held_at - base_offset
                indexed = largest
            since_entry = 0
        since_entry += header.size
    if largest > indexed:
        yield largest, held_at - base_offset


def capacity(entry: struct.Struct, index_bytes_max: int) -> int:
    """Entries that fit into `segment.index.bytes`.

    A segment is rolled when either index is full.
    """
    return index_bytes_max // entry.size
