"""Decides when a new segment begins (`LogSegment.shouldRoll`)."""

import msgspec

from logfleet.log.config import LogConfig
from logfleet.log.segments.index_entries import (
    OFFSET_ENTRY,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY,
    capacity,
)
from logfleet.records.batch import NO_TIMESTAMP


class ActiveSegment(msgspec.Struct, frozen=True, gc=False):
    """The active segment's state, as `should_roll` needs it.

    first_timestamp: largest timestamp of the first batch, ms; NO_TIMESTAMP if it has none.
    created_ms: wall clock of creation.
    """

    base_offset: int
    size: int
    offset_entries: int
    time_entries: int
    first_timestamp: int
    created_ms: int


def should_roll(
    segment: ActiveSegment,
    config: LogConfig,
    *,
    batch_bytes: int,
    last_offset: int,
    max_timestamp: int,
    now_ms: int,
    jitter_ms: int = 0,
) -> bool:
    """Whether a batch ending at `last_offset` begins a new segment.

    Because of size, time (the batch's timestamp against the segment's first; the wall clock only if
    batches have none), a full index, or an offset too far from the base. jitter_ms: this segment's
    share of segment.jitter.ms.
    """
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if segment.size > config.segment_bytes - batch_bytes:
        return segment.size > 0
    if segment.size == 0:
        return False
    if segment.first_timestamp > NO_TIMESTAMP:
        waited_ms = max_timestamp - segment.first_timestamp
    else:
        waited_ms = now_ms - segment.created_ms
    return (
        waited_ms > config.roll_ms - jitter_ms
        or segment.offset_entries >= capacity(OFFSET_ENTRY, config.segment_index_bytes)
        or segment.time_entries >= capacity(TIME_ENTRY, config.segment_index_bytes) - 1
    )


def base_of_next(log_end_offset: int, first_offset: int, last_offset: int) -> int:
    """Base offset of the new segment that begins with this batch.

    The log end, as recovery counts offsets missing between two segments as lost; the batch's own if
    it lies too far behind.
    """
    return log_end_offset if last_offset - log_end_offset <= RELATIVE_OFFSET_MAX else first_offset


class SegmentRoom(msgspec.Struct, frozen=True, gc=False):
    """Bounds (inclusive) for batches that certainly fit into a segment without a roll.

    size: of the segment with the batch, in bytes.
    """

    size: int
    last_offset: int
    max_timestamp: int

    def holds(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether a batch that ends at `last_offset` and grows the segment to `size` fits."""
        return (
            size <= self.size
            and last_offset <= self.last_offset
            and max_timestamp <= self.max_timestamp
        )


NO_ROOM = SegmentRoom(-1, -1, -1)


def room_in(segment: ActiveSegment, config: LogConfig, *, jitter_ms: int = 0) -> SegmentRoom:
    """Bounds within which `should_roll` is false.

    They hold until another segment is active or the configuration changes. So the rule is
    evaluated about once per segment, not per batch. NO_ROOM if the wall clock decides.
    """
    if segment.first_timestamp <= NO_TIMESTAMP:
        return NO_ROOM
    # An index gets at most one entry per index.interval.bytes, the next one possibly at once.
    entries = max(segment.offset_entries, segment.time_entries) + 1
    limit = min(
        capacity(OFFSET_ENTRY, config.segment_index_bytes),
        capacity(TIME_ENTRY, config.segment_index_bytes),
    )
    until_full = max(0, limit - 2 - entries) * config.index_interval_bytes
    return SegmentRoom(
        size=min(config.segment_bytes, segment.size + until_full),
        last_offset=segment.base_offset + RELATIVE_OFFSET_MAX,
        max_timestamp=segment.first_timestamp + config.roll_ms - jitter_ms,
    )
