"""Filters of a batch read cut the ranges of offsets before anything is read.

Topic and partition are the same for all records of a range and offsets rise within it, so filters
on them hold for exactly the records that are read, and Spark need not apply them again. Times need
not rise: below the first offset with a time of at least t all times are lower, so a lower bound
cuts the beginning; behind the first time above an upper bound there may be lower ones again, so
that cuts nothing. Spark applies filters on times again. Of a filter on another column nothing is
known here.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from logfleet.client.offsets import TopicPartition
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from logfleet_spark.offsets import OffsetRange

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
NOTHING = (0.0, 0.0)
"""Bounds that nothing lies within."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left of the ranges of a read.

    of_partitions: filters on topic and partition. low, end: of offsets. from_ms: records are wanted
    from the first one on whose time, in milliseconds since 1970, is not lower; None: whatever their
    times.
    """

    of_partitions: tuple[Filter, ...] = ()
    low: float = 0
    end: float = math.inf
    from_ms: int | None = None

    def partitions(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The ranges of partitions that are wanted."""
        return [r for r in ranges if all(_is_met(f, r.where) for f in self.of_partitions)]

    def offsets(
        self, ranges: Sequence[OffsetRange], first_at: Mapping[TopicPartition, int | None]
    ) -> list[OffsetRange]:
        """The wanted offsets of ranges.

        first_at: by partition that of `from_ms`, None where no record has such a time.
        """
        cut = []
        for r in ranges:
            first = first_at.get(r.where, 0)
            start = r.end if first is None else max(r.start, first, self.low)
            end = min(r.end, self.end)
            if start < end:
                cut.append(OffsetRange(r.where, int(start), int(end)))
        return cut


def understood(filters: Sequence[Filter]) -> tuple[Cut, list[Filter]]:
    """What all filters together leave, and those that Spark has to apply to the records."""
    cut = Cut()
    left: list[Filter] = []
    for each in filters:
        column = _column(each)
        bounds = _bounds(each) if column in {("offset",), ("timestamp",)} else None
        if column in {("topic",), ("partition",)} and _is_known(each):
            cut = replace(cut, of_partitions=(*cut.of_partitions, each))
        elif column == ("offset",) and bounds is not None:
            cut = replace(cut, low=max(cut.low, bounds[0]), end=min(cut.end, bounds[1]))
            if isinstance(each, In):
                left.append(each)
        else:
            left.append(each)
            if column == ("timestamp",) and bounds is not None:
                cut = _from_time(cut, bounds[0])
    return cut, left


def _from_time(cut: Cut, low_us: float) -> Cut:
    """The cut with a lower bound of time; one below 1970 cuts nothing.

    Negative times have a meaning of their own in ListOffsets.
    """
    low_ms = math.ceil(low_us / 1000) if 0 <= low_us < math.inf else 0
    return cut if low_ms <= 0 else replace(cut, from_ms=max(cut.from_ms or 0, low_ms))


def _column(of: Filter) -> tuple[str, ...]:
    if isinstance(of, Not):
        return _column(of.child)
    return tuple(getattr(of, "attribute", ()))


def _bounds(of: Filter) -> tuple[float, float] | None:
    """The least number that meets the filter, and the successor of the greatest.

    Times are in microseconds since 1970. None if the filter bounds nothing.
    """
    match of:
        case IsNotNull():
            return -math.inf, math.inf
        case IsNull():
            return NOTHING
        case In(value=values):
            numbers = [_number(value) for value in values if value is not None]
            if any(number is None for number in numbers):
                return None
            known = [number for number in numbers if number is not None]
            return (min(known), max(known) + 1) if known else NOTHING
        case EqualTo(value=value) | EqualNullSafe(value=value):
            number = _number(value)
            return None if number is None else (number, number + 1)
        case GreaterThan(value=value):
            number = _number(value)
            return None if number is None else (number + 1, math.inf)
        case GreaterThanOrEqual(value=value):
            number = _number(value)
            return None if number is None else (number, math.inf)
        case LessThan(value=value):
            number = _number(value)
            return None if number is None else (-math.inf, number)
        case LessThanOrEqual(value=value):
            number = _number(value)
            return None if number is None else (-math.inf, number + 1)
        case _:
            return None


def _number(value: object) -> int | None:
    if isinstance(value, datetime):
        # Spark's timestamps are moments; one without a zone is of another type, which the column is
        # not
        return None if value.tzinfo is None else (value - EPOCH) // MICROSECOND
    return value if type(value) is int else None


def _is_met(of: Filter, where: TopicPartition) -> bool:
    value = where.topic if _column(of) == ("topic",) else where.partition
    return holds(of, value) is True


def _is_known(of: Filter) -> bool:
    """Whether `holds` knows this kind of filter."""
    try:
        holds(of, "" if _column(of) == ("topic",) else 0)
    except TypeError:
        return False
    return True


def holds(of: Filter, value: str | int) -> bool | None:
    """Whether a value that is not null meets a filter; None where SQL says NULL.

    Raises TypeError for a filter of no known kind.
    """
    match of:
        case Not(child=child):
            found = holds(child, value)
            return None if found is None else not found
        case IsNotNull() | IsNull():
            return isinstance(of, IsNotNull)
        case EqualNullSafe(value=other):
            return bool(value == other)
        case In(value=others):
            return True if value in others else (None if None in others else False)
    compare = COMPARISONS.get(type(of))
    if compare is None:
        raise TypeError(f"{of} is a filter of no known kind")
    other = getattr(of, "value", None)
    return None if other is None else compare(value, other)
