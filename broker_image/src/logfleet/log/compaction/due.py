"""Which logs are compacted, when, and how far.

Source: Kafka's LogCleanerManager, LogToClean and Cleaner.groupSegmentsBySize. A log is clean below
its first dirty offset, and may be cleaned up to the first segment that is active, not stable, not
durable, or too young. The part in between is dirty. The log with the largest share of dirty bytes
is cleaned first (`min.cleanable.dirty.ratio`); one that has a dirty record older than
max.compaction.lag.ms is cleaned whatever its share (KIP-354).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from logfleet.log.config import LogConfig
from logfleet.log.segments.index_entries import RELATIVE_OFFSET_MAX

RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 600.0


class CleanableSegment(msgspec.Struct, frozen=True, gc=False):
    """A segment, as `cleanable` needs it.

    Timestamps in ms, called only when needed, as they may cost a read. first_timestamp: largest of
    the first batch. largest_timestamp: of the segment.
    """

    base_offset: int
    size: int
    first_timestamp: Callable[[], int]
    largest_timestamp: Callable[[], int]


class Cleanable(msgspec.Struct, frozen=True):
    """The part of a log that could be cleaned now.

    These are the dirty offsets [first_dirty, first_uncleanable), the latter a segment's base.
    overdue_ms: how long ago its oldest dirty record should have been compacted, 0 if that time has
    not come.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        """Share of dirty bytes in what would be cleaned; 0 if there is nothing."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (
            self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio
        )


def cleanable(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    *,
    first_dirty: int,
    stable_end: int,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
) -> Cleanable:
    """Determine what of the log could be cleaned.

    segments: all, oldest first; the last is the active one. first_dirty: end of the last round; a
    value outside the log counts as the log start. stable_end: offset below which everything is
    committed, decided and durable.
    """
    if not log_start_offset <= first_dirty <= log_end_offset:
        first_dirty = log_start_offset
    first = _number_of(segments, first_dirty)
    last = _number_of(segments, min(stable_end, segments[-1].base_offset))
    if config.min_compaction_lag_ms > 0:
        latest = now_ms - config.min_compaction_lag_ms
        young = (n for n in range(first, last) if segments[n].largest_timestamp() > latest)
        last = next(young, last)
    dirty = segments[first:last]
    return Cleanable(
        first_dirty=first_dirty,
        first_uncleanable=segments[last].base_offset,
        clean_bytes=sum(s.size for s in segments[:last] if s.base_offset < first_dirty),
        dirty_bytes=sum(segment.size for segment in dirty),
        overdue_ms=_overdue_ms(segments[first:-1], config, now_ms),
    )


def retry_pause_s(failures: int, backoff_s: float) -> float:
    """Pause after a number of failed rounds in a row (at least 1) that were no fault of the log.

    It doubles each time.
    """
    pause_s = max(backoff_s, RETRY_S_MIN) * (1 << min(failures - 1, 16))
    return min(pause_s, max(backoff_s, RETRY_S_MAX))


def _number_of(segments: Sequence[CleanableSegment], offset: int) -> int:
    """Number of the segment that holds `offset`."""
    number = len(segments) - 1
    while number > 0 and segments[number].base_offset > offset:
        number -= 1
    return number


def _overdue_ms(dirty: Iterable[CleanableSegment], config: LogConfig, now_ms: int) -> int:
    clean_until = now_ms - config.max_compaction_lag_ms
    if clean_until <= 0:
        return 0
    timestamps = (timestamp for segment in dirty if (timestamp := segment.first_timestamp()) > 0)
    return max(0, clean_until - min(timestamps, default=clean_until))


class SegmentFiles(msgspec.Struct, frozen=True, gc=False):
    """Sizes in bytes of one segment's files."""

    base_offset: int
    size: int
    index_size: int = 0
    time_index_size: int = 0


SEGMENTS_PER_GROUP_MAX = 32
"""Segments replaced in one step on the broker's loop, some 50 us each; a later round merges the
rest."""


def group_segments(
    segments: Sequence[SegmentFiles],
    *,
    end_offset: int,
    segment_bytes: int,
    segment_index_bytes: int,
) -> list[list[SegmentFiles]]:
    """Group neighbours that become one segment each, within the limits of a segment's size.

    end_offset: exclusive, of the last segment. No offset lies further from its segment's base than
    an index entry can express.
    """
    groups: list[list[SegmentFiles]] = []
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if groups:
            group = [*groups[-1], segment]
            if (
                len(group) <= SEGMENTS_PER_GROUP_MAX
                and sum(each.size for each in group) <= segment_bytes
                and sum(each.index_size for each in group) <= segment_index_bytes
                and sum(each.time_index_size for each in group) <= segment_index_bytes
                and (segment.size == 0 or end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
            ):
                groups[-1] = group
                continue
        groups.append([segment])
    return groups
