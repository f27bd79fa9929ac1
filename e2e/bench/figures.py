"""What benches measure and how it is judged: rows of metrics with goals, spreads over rounds, figures and their table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar


class Bound(StrEnum):
    """What a goal compares: the ratio ours / theirs from above or from below, or our own figure from above."""

    RATIO_MAX = "ratio <="
    RATIO_MIN = "ratio >="
    OURS_MAX = "ours <="


@dataclass(frozen=True)
class Goal:
    """ours_max: our own figure may not be larger either."""

    bound: Bound
    limit: float
    ours_max: float = math.inf

    def __str__(self) -> str:
        also = f", {Bound.OURS_MAX} {self.ours_max:,g}" if self.ours_max < math.inf else ""
        return f"{self.bound} {self.limit:g}{also}"

    def is_met(self, ours: float, ratio: float) -> bool:
        """ratio: NaN where the other side has no such figure; then no bound of the ratio is met."""
        if ours > self.ours_max:
            return False
        if self.bound is Bound.OURS_MAX:
            return ours <= self.limit
        return ratio <= self.limit if self.bound is Bound.RATIO_MAX else ratio >= self.limit


@dataclass(frozen=True)
class Metric:
    """One figure of a row. key: in the measured values and in the JSON."""

    key: str
    title: str
    goal: Goal | None = None


class Row(Protocol):
    """What is measured together, under one name."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def metrics(self) -> tuple[Metric, ...]: ...


R = TypeVar("R", bound=Row)


def chosen(patterns: str, rows: Sequence[R]) -> list[R]:
    """Return the rows whose name contains one of the words (all for none). Raises ValueError for a word that no name contains."""
    words = patterns.replace(",", " ").split()
    for word in words:
        if not any(word in row.name for row in rows):
            names = ", ".join(row.name for row in rows)
            raise ValueError(f"no row is named like {word!r}; there are {names}")
    return [row for row in rows if not words or any(word in row.name for word in words)]


@dataclass(frozen=True)
class Spread:
    """The median of the rounds and their range."""

    median: float
    least: float
    most: float
    rounds: int

    def __str__(self) -> str:
        if math.isnan(self.median):
            return "-"
        if self.rounds == 1:
            return short(self.median)
        return f"{short(self.median)} ({short(self.least)}-{short(self.most)})"


def spread(values: Sequence[float]) -> Spread:
    """NaN of no values at all."""
    if not values:
        return Spread(math.nan, math.nan, math.nan, 0)
    return Spread(statistics.median(values), min(values), max(values), len(values))


def short(value: float) -> str:
    """Three digits, or all before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3}f}"


Values = dict[str, float]
Rounds = dict[str, list[Values]]
"""The values of each round, by side."""


@dataclass(frozen=True)
class Figure:
    """One metric of a row, of all sides. ratio: of our median to that of the other side."""

    metric: Metric
    sides: Mapping[str, Spread]
    ratio: float

    @property
    def ours(self) -> Spread:
        return next(iter(self.sides.values()))

    @property
    def is_met(self) -> bool | None:
        """None without a goal."""
        goal = self.metric.goal
        return None if goal is None else goal.is_met(self.ours.median, self.ratio)

    @property
    def goal(self) -> str:
        return "" if self.metric.goal is None else str(self.metric.goal)


def compared(row: Row, rounds: Rounds) -> list[Figure]:
    """The figures of a row."""
    return [figure_of(metric, rounds) for metric in row.metrics]


def figure_of(metric: Metric, rounds: Rounds) -> Figure:
    """rounds: ours first, then those of the other side. What a side did not measure is NaN."""
    sides = {
        side: spread([values[metric.key] for values in each if metric.key in values])
        for side, each in rounds.items()
    }
    ours, theirs = list(sides.values())[:2]
    return Figure(metric, sides, ours.median / theirs.median)


NOT_RESULTS = "QUICK=1: a trial of the bench itself; these figures say nothing."
VERDICTS = {None: "", True: "met", False: "missed"}


def table(head: Sequence[str], rows: Sequence[tuple[Row, list[Figure]]], *, quick: bool) -> str:
    """A line per figure: medians with their ranges, the ratio, the goal. head: of the row and of its sides, in their order."""
    lines: list[Sequence[str]] = [(head[0], "figure", *head[1:], "ratio", "goal", "")]
    for row, found in rows:
        for place, figure in enumerate(found):
            title = "" if place else row.title
            ratio = "" if math.isnan(figure.ratio) else f"{figure.ratio:.2f}"
            verdict = "" if quick else VERDICTS[figure.is_met]
            sides = map(str, figure.sides.values())
            lines.append((title, figure.metric.title, *sides, ratio, figure.goal, verdict))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([NOT_RESULTS] * quick + text + [NOT_RESULTS] * quick)


def between(page: str, begin: str, end: str, inner: str) -> str:
    """The page with this text between its marks. Raises ValueError without them."""
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the page lacks its marks: {begin} and {end}")
    return f"{before}{begin}\n{inner}{end}{after}"
