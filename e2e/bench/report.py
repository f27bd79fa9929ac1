"""Figures of the benches beside Apache Kafka: what is kept of them."""

from collections.abc import Sequence
from typing import Any

from e2e.bench.figures import Figure, Rounds, Row, Spread

HEAD = ("row", "Logfleet", "Kafka")
KAFKA = "kafka"


def as_json(row: Row, found: Sequence[Figure], rounds: Rounds) -> dict[str, Any]:
    """What is kept of a row: its figures, and all values of each round."""
    kept: dict[str, Any] = {"title": row.title}
    for figure in found:
        one: dict[str, Any] = {
            side: _kept(each) for side, each in figure.sides.items() if each.rounds
        }
        if KAFKA in one:
            one["ratio"] = round(figure.ratio, 3)
        if figure.metric.goal is not None:
            one |= {"goal": figure.goal, "met": figure.is_met}
        kept[figure.metric.key] = one
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
