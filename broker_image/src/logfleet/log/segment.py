"""When the active segment is full (`LogSegment.shouldRoll`)."""

import msgspec

from logfleet.log.config import LogConfig
from logfleet.log.index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY, capacity
from logfleet.records.batch import NO_TIMESTAMP


class ActiveSegment(msgspec.Struct, frozen=True, gc=False):
    """What the decision to roll looks at.

    first_timestamp: largest timestamp of the first batch, ms; NO_TIMESTAMP if it has none. created_ms: wall clock of creation.
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

    By size, by time (the batch's own timestamp against the segment's first; the wall clock only where batches carry none), by a full
    index, or because its offset is too far from the base. jitter_ms: this segment's share of segment.jitter.ms.
    """
    if segment.size > config.segment_bytes - batch_bytes:
        return segment.size > 0
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if segment.size == 0:
        return False
    if segment.first_timestamp > NO_TIMESTAMP:
        waited_ms = max_timestamp - segment.first_timestamp
    else:
        waited_ms = now_ms - segment.created_ms
    return (
        waited_ms > config.segment_ms - jitter_ms
        or segment.offset_entries >= capacity(OFFSET_ENTRY, config.segment_index_bytes)
        or segment.time_entries >= capacity(TIME_ENTRY, config.segment_index_bytes) - 1
    )
