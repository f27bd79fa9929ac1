"""Counts of values by size, cheap enough for every request: one bisection and two additions.

The histograms of prometheus_client take a lock and a look-up per value.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Bounds from a request answered from memory to one that waits for other brokers."""


class Histogram:
    """counts: values in (bounds[i - 1], bounds[i]], the last one above all bounds.

    total: sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def plus(self, other: "Histogram") -> "Histogram":
        """A histogram with the values of both; their bounds must be the same."""
        assert self.bounds == other.bounds
        both = Histogram(self.bounds)
        both.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both

    def minus(self, earlier: "Histogram") -> "Histogram":
        """A histogram with the values since `earlier`; the bounds must be the same."""
        assert self.bounds == earlier.bounds
        since = Histogram(self.bounds)
        since.counts = [a - b for a, b in zip(self.counts, earlier.counts, strict=True)]
        since.total = self.total - earlier.total
        return since

    def quantile(self, share: float) -> float:
        """The smallest bound that this share of the values does not exceed, or the last bound.

        There must be values.
        """
        rank, seen = share * self.count, 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= rank:
                return bound
        return self.bounds[-1]

    def with_zeros(self, count: int) -> "Histogram":
        """A histogram with `count` more values of 0.

        Phases without a wait are not counted while they happen.
        """
        more = Histogram(self.bounds)
        more.counts = [self.counts[0] + count, *self.counts[1:]]
        more.total = self.total
        return more
