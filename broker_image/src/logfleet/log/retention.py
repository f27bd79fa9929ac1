"""Which segments of a log retention removes (`retention.ms`, `retention.bytes`, log start offset).

Upholds I19: nothing within both limits is removed, and nothing above the high watermark.
Source: `UnifiedLog.deleteOldSegments`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from logfleet.log.config import LogConfig

REMOVED_AT_ONCE: Final = 4
"""Segments removed in one step; each costs four renames."""


class SegmentAge(msgspec.Struct, frozen=True, gc=False):
    """A segment as retention needs it. end_offset: exclusive; the last segment is the active one.

    largest_timestamp: ms; called only when needed, as it may cost a read.
    """

    end_offset: int
    size: int
    largest_timestamp: Callable[[], int]


class AgingSegment(Protocol):
    """The parts of a segment that retention looks at."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def largest_timestamp(self) -> int:
        """In ms; may read from the disk."""


def ages_of(segments: Sequence[AgingSegment], log_end_offset: int) -> list[SegmentAge]:
    """The segments of a log, oldest first, as retention needs them."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    found = zip(segments, ends, strict=True)
    return [SegmentAge(end, each.size, each.largest_timestamp) for each, end in found]


class Retention(msgspec.Struct, frozen=True):
    """The first `count` segments are to be removed.

    If that is all, a new active one is rolled first. reason: for the log.
    """

    count: int
    reason: str


def plan_retention(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    count_max: int,
) -> Retention:
    """The oldest segments that may be removed now, including an expired active one.

    A topic without producers expires completely. An active segment without records stays.
    count_max: limit of removed segments, and of those whose time is read.
    """
    plans = [_below_start(segments, log_start_offset)]
    if config.deletes:
        plans.append(_expired(segments[:count_max], config.retention_ms, now_ms))
        plans.append(_oversize(segments, config.retention_bytes))
    best = max(plans, key=lambda plan: plan.count)
    count = 0
    for segment in segments[: min(best.count, count_max)]:
        if segment.end_offset > high_watermark or (segment is segments[-1] and segment.size == 0):
            break
        count += 1
    return Retention(count, best.reason)


def _below_start(segments: Sequence[SegmentAge], log_start_offset: int) -> Retention:
    count = 0
    for segment in segments[:-1]:  # the active one stays, whatever the log start
        if segment.end_offset > log_start_offset:
            break
        count += 1
    return Retention(count, f"all records are below the log start offset {log_start_offset}")


def _expired(segments: Sequence[SegmentAge], retention_ms: int, now_ms: int) -> Retention:
    reason = f"the newest record is older than retention.ms={retention_ms}"
    if retention_ms < 0:
        return Retention(0, reason)
    count = 0
    for segment in segments:
        if now_ms - segment.largest_timestamp() <= retention_ms:
            break
        count += 1
    return Retention(count, reason)


def _oversize(segments: Sequence[SegmentAge], retention_bytes: int) -> Retention:
    reason = f"the log is larger than retention.bytes={retention_bytes}"
    if retention_bytes < 0:  # every negative number: UnifiedLog.deleteRetentionSizeBreachedSegments
        return Retention(0, reason)
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        if segment.size > excess:  # removing it would leave less than retention.bytes
            break
        excess -= segment.size
        count += 1
    return Retention(count, reason)
