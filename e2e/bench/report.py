"""From rounds to figures, the table, and what is kept."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.bench.kafka.rows import Metric, Row
from e2e.bench.rounds import Rounds

OURS, KAFKA = "ours", "kafka"
NOT_RESULTS = "QUICK=1: a trial of the bench itself; these figures say nothing about either broker."


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


@dataclass(frozen=True)
class Figure:
    """One metric of a row, of both sides."""

    metric: Metric
    ours: Spread
    kafka: Spread

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return self.ours.median / self.kafka.median

    @property
    def is_met(self) -> bool | None:
        """None without a goal."""
        if self.metric.goal is None:
            return None
        return self.metric.goal.is_met(self.ours.median, self.kafka.median)

    @property
    def goal(self) -> str:
        return "" if self.metric.goal is None else str(self.metric.goal)


def compared(row: Row, rounds: Rounds) -> list[Figure]:
    """The figures of a row. What Kafka was not asked for is NaN."""
    return [
        Figure(metric, *(_of_side(rounds[side], metric.key) for side in (OURS, KAFKA)))
        for metric in row.metrics
    ]


def _of_side(rounds: Sequence[Mapping[str, float]], key: str) -> Spread:
    return spread([values[key] for values in rounds if key in values])


HEAD = ("row", "figure", "Logfleet", "Kafka", "ratio", "goal", "")
VERDICTS = {None: "", True: "met", False: "missed"}


def table(rows: Sequence[tuple[Row, list[Figure]]], *, quick: bool) -> str:
    """A line per figure: medians with their ranges, the ratio ours / Kafka, the goal."""
    lines: list[Sequence[str]] = [HEAD]
    for row, found in rows:
        lines += [
            (
                row.title if not place else "",
                figure.metric.title,
                str(figure.ours),
                str(figure.kafka),
                "" if math.isnan(figure.ratio) else f"{figure.ratio:.2f}",
                figure.goal,
                "" if quick else VERDICTS[figure.is_met],
            )
            for place, figure in enumerate(found)
        ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([NOT_RESULTS] * quick + text + [NOT_RESULTS] * quick)


def as_json(row: Row, found: Sequence[Figure], rounds: Rounds) -> dict[str, Any]:
    """What is kept of a row: its figures, and all values of each round."""
    kept: dict[str, Any] = {"title": row.title}
    for figure in found:
        kept[figure.metric.key] = {"ours": _kept(figure.ours)}
        if figure.kafka.rounds:
            both = {"kafka": _kept(figure.kafka), "ratio": round(figure.ratio, 3)}
            kept[figure.metric.key] |= both
        if figure.metric.goal is not None:
            kept[figure.metric.key] |= {"goal": figure.goal, "met": figure.is_met}
    kept["rounds"] = {
        side: [{key: _rounded(value) for key, value in values.items()} for values in each]
        for side, each in rounds.items()
    }
    return kept


def _kept(found: Spread) -> dict[str, float]:
    return {
        "median": _rounded(found.median),
        "least": _rounded(found.least),
        "most": _rounded(found.most),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)
