"""Rounds of a bench: all sides in every row, in turns."""

import sys
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

from e2e.bench.figures import Rounds, Row, Values

R = TypeVar("R", bound=Row)


def rotated(sides: Sequence[str], turn: int) -> list[str]:
    """The sides in the order of their turn: each is first as often as any other."""
    first = turn % len(sides)
    return [*sides[first:], *sides[:first]]


def report(row: str, side: str, values: Values) -> None:
    """Print what an interrupted run has measured."""
    figures = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
    print(f"{row}, {side}: {figures}", file=sys.stderr, flush=True)


def run_rounds(
    rows: Sequence[R],
    sides: Sequence[str],
    measure: Callable[[R, str, int], Values],
    *,
    rounds: int,
    warmups: int,
    taking: Callable[[R], Sequence[str]] | None = None,
    until_s: float = inf,
) -> dict[str, Rounds]:
    """By row. measure: of a row, a side and the number of the round. taking: the sides of a row, if not all.

    The first `warmups` rounds are whole rounds whose values are thrown away: a cold Java machine needs 3 to 6 times as long. No round
    that counts begins after `until_s` (monotonic), but for the first.
    """
    found: dict[str, Rounds] = {row.name: {side: [] for side in sides} for row in rows}
    for number in range(warmups + rounds):
        if number > warmups and time.monotonic() > until_s:
            print(f"the time is up after {number - warmups} of {rounds} rounds", file=sys.stderr)
            break
        for place, row in enumerate(rows):
            for side in rotated(taking(row) if taking else sides, number + place):
                values = measure(row, side, number)
                if number >= warmups:
                    found[row.name][side].append(values)
                    report(row.name, side, values)
        kind = "warm-up round" if number < warmups else "round"
        print(f"{kind} {number + 1} of {warmups + rounds}", file=sys.stderr)
    return found
