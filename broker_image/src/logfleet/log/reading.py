"""Finds ranges of whole batches by the cached newest batches, else by the indexes."""

from collections.abc import Sequence

from logfleet.log.newest_batches import RecentBatches
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.segment import Segment, segment_number
from logfleet.types import Position


def number_of(segments: Sequence[Segment], offset: int) -> int:
    """Number of the segment that holds `offset`."""
    if offset >= segments[-1].base_offset:  # the usual case
        return len(segments) - 1
    return segment_number(segments, offset)


def read_slice(
    segments: Sequence[Segment],
    recent: RecentBatches,
    offset: int,
    end_offset: int,
    *,
    log_end_offset: int,
    max_bytes: int,
    at_least_one: bool,
) -> FileSlice | None:
    """Find what PartitionLog.read returns. recent: newest batches of the last segment."""
    number = number_of(segments, offset)
    while offset < end_offset and number < len(segments):
        segment = segments[number]
        number += 1
        newest = recent if number == len(segments) else None
        start = _position_of(segment, newest, offset)
        if start == segment.size:  # no batch from this offset to the next segment
            continue
        next_base = log_end_offset if newest else segments[number].base_offset
        goes_on = end_offset > next_base
        limit = (
            segment.size if end_offset >= next_base else _position_of(segment, newest, end_offset)
        )
        end = limit
        slice_end: int | None = next_base if goes_on else end_offset
        if limit - start > max_bytes:
            end = _cut(segment, newest, start, max_bytes, at_least_one=at_least_one)
        if end < limit:
            segment.add_resumption(end)
            slice_end = None
        if end == start:
            return None
        cut = end < limit or goes_on
        return FileSlice(segment.file, start, end - start, is_cut=cut, end_offset=slice_end)
    return None


def _position_of(segment: Segment, newest: RecentBatches | None, offset: int) -> Position:
    position = newest.position_of(offset) if newest else None
    return segment.position_of(offset) if position is None else position


def _cut(
    segment: Segment,
    newest: RecentBatches | None,
    start: Position,
    max_bytes: int,
    *,
    at_least_one: bool,
) -> Position:
    """End of the whole batches from `start` that fit; called if not all do."""
    wanted = start + max_bytes
    end = newest.boundary_before(wanted) if newest else None
    if end is None:
        end = segment.boundary_before(wanted)
    if end > start:
        return end
    end = start
    for _, header in segment.headers(start):
        if end + header.size > wanted:
            return end + header.size if end == start and at_least_one else end
        end += header.size
    return end
