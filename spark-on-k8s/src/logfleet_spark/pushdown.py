"""Filters of a batch read narrow the ranges of offsets before anything is read.

- Topic and partition: they are the same for all records of a range, so a filter on them selects or
  drops whole ranges, and Spark need not apply it again.
- Offset: offsets rise within a range, so a filter on them cuts both ends, and Spark need not apply
  it again either.
- Timestamp: times need not rise. A lower bound t cuts all offsets below the first one whose time is
  at least t, as all times before it are lower. An upper bound cuts nothing, as lower times may
  follow a higher one. Spark applies filters on times again.
- Other columns: their filters are left to Spark.
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
"""Bounds for a filter that no value meets."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a read's ranges that its filters leave.

    of_partitions: filters on topic and partition. low, end: bounds of the offsets, `end` exclusive.
    from_ms: the range begins at the first record whose time (ms since 1970) is at least this; None:
    no such bound.
    """

    of_partitions: tuple[Filter, ...] = ()
    low: float = 0
    end: float = math.inf
    from_ms: int | None = None

    def partitions(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges whose topic and partition meet the filters."""
        return [r for r in ranges if all(_is_met(f, r.where) for f in self.of_partitions)]

    def offsets(
        self, ranges: Sequence[OffsetRange], first_at: Mapping[TopicPartition, int | None]
    ) -> list[OffsetRange]:
        """Cut the ranges by the bounds of offsets and times.

        first_at: of each partition, the first offset at or after `from_ms`; None where no record is
        that new.
        """
        cut = []
        for r in ranges:
            first = first_at.get(r.where, 0)
            start = r.end if first is None else max(r.start, first, self.low)
            end = min(r.end, self.end)
            if start < end:
                cut.append(OffsetRange(r.where, int(start), int(end)))
        return cut


def translate_filters(filters: Sequence[Filter]) -> tuple[Cut, list[Filter]]:
    """Translate the filters to a cut.

    Return it and the filters that Spark has to apply to the records.
    """
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
    """Add a lower bound of time to the cut.

    A bound before 1970 is ignored, because ListOffsets gives negative times special meanings.
    """
    low_ms = math.ceil(low_us / 1000) if 0 <= low_us < math.inf else 0
    return cut if low_ms <= 0 else replace(cut, from_ms=max(cut.from_ms or 0, low_ms))


def _column(of: Filter) -> tuple[str, ...]:
    if isinstance(of, Not):
        return _column(of.child)
    return tuple(getattr(of, "attribute", ()))


def _bounds(of: Filter) -> tuple[float, float] | None:
    """Return the least number that meets the filter, and the greatest one plus one.

    Times are in microseconds since 1970. None if the filter sets no bounds.
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
        # the column is a TIMESTAMP, a point in time; a value without a zone is a TIMESTAMP_NTZ
        return None if value.tzinfo is None else (value - EPOCH) // MICROSECOND
    return value if type(value) is int else None


def _is_met(of: Filter, where: TopicPartition) -> bool:
    value = where.topic if _column(of) == ("topic",) else where.partition
    return holds(of, value) is True


def _is_known(of: Filter) -> bool:
    """Return whether `holds` supports this kind of filter."""
    try:
        holds(of, "" if _column(of) == ("topic",) else 0)
    except TypeError:
        return False
    return True


def holds(of: Filter, value: str | int) -> bool | None:
    """Return whether a value that is not null meets a filter; None where SQL says NULL.

    Raises TypeError for a filter of a kind that is not supported.
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
        raise TypeError(f"{of}: filters of this kind are not supported")
    other = getattr(of, "value", None)
    return None if other is None else compare(value, other)
