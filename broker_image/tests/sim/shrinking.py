"""A case that fails, made as small as it gets while it fails in the same way: fewer faults, fewer records, then dull draws."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from broker_image.tests.sim.simulation import Case, Outcome, run

T = TypeVar("T")
SHRINK_RUNS_MAX = 300


def kind_of(failure: str | None) -> str | None:
    """Which invariant broke, without the numbers."""
    return None if failure is None else failure[: failure.find(":", failure.find(":") + 1)]


class Shrinker:
    """case: the smallest so far. runs: after so many runs it is left as it is."""

    def __init__(self, case: Case, outcome: Outcome, runs: int = SHRINK_RUNS_MAX) -> None:
        draws = {stream: list(values) for stream, values in outcome.drawn.items()}
        self.case = msgspec.structs.replace(case, draws=draws)
        self._kind = kind_of(outcome.failure)
        self._runs_left = runs

    def shrink(self) -> Case:
        if self._fails(self.case):
            self._fewer(self.case.faults, lambda faults: self._with(faults=tuple(faults)))
            self._fewer(self.case.load, lambda load: self._with(load=tuple(load)))
            self._fewer(self.case.faults, lambda faults: self._with(faults=tuple(faults)))
            for stream in sorted(self.case.draws or {}):
                self._dull(stream)
        return self.case

    def _with(self, **changes: object) -> Case:
        return msgspec.structs.replace(self.case, **changes)

    def _fails(self, case: Case) -> bool:
        if self._runs_left == 0:
            return False
        self._runs_left -= 1
        if kind_of(run(case).failure) != self._kind:
            return False
        self.case = case
        return True

    def _fewer(self, whole: Sequence[T], made: Callable[[Sequence[T]], Case]) -> None:
        """Leave out as much as can be, in ever smaller pieces (ddmin)."""
        size = len(whole)
        while size:
            start = 0
            while start < len(whole):
                left = [*whole[:start], *whole[start + size :]]
                if self._fails(made(left)):
                    whole = left
                else:
                    start += size
            size //= 2

    def _dull(self, stream: str) -> None:
        """Make draws zero: all at once, else in ever smaller runs."""
        values = list((self.case.draws or {})[stream])
        size = len(values)
        while size >= 8:
            for start in range(0, len(values), size):
                if any(values[start : start + size]):
                    dull = [*values]
                    dull[start : start + size] = [0] * len(values[start : start + size])
                    if self._fails(self._with(draws={**(self.case.draws or {}), stream: dull})):
                        values = dull
            size //= 4
