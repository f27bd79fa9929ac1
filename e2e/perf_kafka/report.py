"""From rounds to figures, the table, and what is kept."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2e.perf_kafka.rounds import Rounds
from e2e.perf_kafka.rows import Metric, Row, metrics

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
        if self.rounds == 1:
            return short(self.median)
        return f"{short(self.median)} ({short(self.least)}-{short(self.most)})"


def spread(values: Sequence[float]) -> Spread:
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
        goal = self.metric.goal
        return "" if goal is None else f"{goal.bound} {goal.limit:g}"


def compared(row: Row, rounds: Rounds) -> list[Figure]:
    """The figures of a row."""
    return [
        Figure(
            metric,
            *(spread([values[metric.key] for values in rounds[side]]) for side in (OURS, KAFKA)),
        )
        for metric in metrics(row)
    ]


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
                f"{figure.ratio:.2f}",
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
        kept[figure.metric.key] = {
            "ours": _kept(figure.ours),
            "kafka": _kept(figure.kafka),
            "ratio": round(figure.ratio, 3),
        }
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
