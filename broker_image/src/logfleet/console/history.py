"""The figures of the last 15 minutes: record counts, lags, bytes."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

HISTORY_S: Final = 900.0
RATE_S: Final = 30.0
"""A rate is the growth over this time, or the shortest longer one that was sampled."""
MOVING_MAX: Final = 2_000
"""Topics and groups with a history of their own; a ring takes up to 3 KiB."""


class Ring:
    """One figure over time. Times are seconds since 1970; the oldest are dropped."""

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")

    def add(self, at_s: float, value: float) -> None:
        """Add the newest value, and drop what is older than HISTORY_S."""
        self.times.append(at_s)
        self.values.append(value)
        if (old := bisect_left(self.times, at_s - HISTORY_S)) > 0:
            del self.times[:old], self.values[:old]

    def rate(self) -> float:
        """Growth per second lately; 0 with fewer than two values."""
        if len(self.times) < 2:
            return 0.0
        first = max(bisect_left(self.times, self.times[-1] - RATE_S) - 1, 0)
        seconds = self.times[-1] - self.times[first]
        return (self.values[-1] - self.values[first]) / seconds if seconds > 0 else 0.0

    def reached(self, value: float) -> float | None:
        """When a growing figure had this value; None if that is longer ago than the history."""
        index = bisect_left(self.values, value)
        if index == len(self.values):
            return self.times[-1] if self.times else None
        if index == 0:
            return self.times[0] if self.values[0] == value else None
        before, after = self.values[index - 1], self.values[index]
        share = (value - before) / (after - before)
        return self.times[index - 1] + share * (self.times[index] - self.times[index - 1])

    def points(self, count: int) -> list[tuple[float, float]]:
        """At most `count` + 1 of its (time, value), evenly spread, the newest among them."""
        step = max(1, -(-len(self.times) // count))
        pairs = list(zip(self.times, self.values, strict=True))
        return pairs[:: -1 * step][::-1]


class Rings:
    """Rings by name, of figures that change: one that rests for HISTORY_S needs none."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}
        self._last: dict[str, tuple[float, float]] = {}
        self._changed: dict[str, float] = {}

    def add(self, name: str, at_s: float, value: float) -> None:
        ring, before = self._rings.get(name), self._last.get(name)
        self._last[name] = (at_s, value)
        if before is None or before[1] != value:
            self._changed[name] = at_s
        if ring is not None:
            ring.add(at_s, value)
            if at_s - self._changed[name] > HISTORY_S:
                del self._rings[name]
        elif before is not None and before[1] != value and len(self._rings) < MOVING_MAX:
            ring = self._rings[name] = Ring()
            ring.add(*before)
            ring.add(at_s, value)

    def keep(self, names: Iterable[str]) -> None:
        """Drop all others."""
        for name in self._last.keys() - set(names):
            self._rings.pop(name, None)
            del self._last[name], self._changed[name]

    def get(self, name: str) -> Ring:
        """The ring of a name, empty if the figure does not change."""
        return self._rings.get(name) or Ring()

    def changed_at(self, name: str) -> float | None:
        """When its figure was first seen to be what it is; None if there is no such figure."""
        return self._changed.get(name)

    def moving(self) -> list[str]:
        """The names with a ring."""
        return list(self._rings)


class History:
    """All rings. written: records per second of all topics. Bytes per second, from brokers."""

    def __init__(self) -> None:
        self.ends = Rings()  # by topic: the sum of its log end offsets
        self.lags = Rings()  # by group
        self.commits = Rings()  # by group: the sum of its committed offsets
        self.written = Ring()
        self.bytes_in = Ring()
        self.bytes_out = Ring()
