"""Three nodes of Kafka beside three brokers of ours, from the first stage to the last that a case is wanted of."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from e2e.compare.corpora import degraded, moves, replicated
from e2e.compare.corpora.fleet_corpus import FleetCorpus
from e2e.compare.corpora.transactions import fleet as transactions
from e2e.compare.fleets import FleetPair
from e2e.compare.runs import Oracle, Tally

NAME: Final = "fleet"


class Stage(NamedTuple):
    """begin: what happens to both fleets before the cases."""

    begin: Callable[[FleetPair], None]
    cases: FleetCorpus


def _make_states(pair: FleetPair) -> None:
    for side in pair.sides:
        transactions.make_states(side)


def _stop_one(pair: FleetPair) -> None:
    for side in pair.sides:
        degraded.make_kept(side)
        transactions.begin_kept(side)
    pair.stop(3)
    _await(pair, "one away")
    for side in pair.sides:
        transactions.await_kept(side)


def _kill_another(pair: FleetPair) -> None:
    pair.kill(2)
    _await(pair, "two away")


def _start_both(pair: FleetPair) -> None:
    """Who stopped in order comes first, and so leads what both had in sync to the last."""
    pair.start(3)
    pair.start(2)
    _await(pair, "back")


def _await(pair: FleetPair, stage: str) -> None:
    for side in pair.sides:
        degraded.await_stage(side, stage)


STAGES: Final = (
    Stage(_make_states, transactions.ALL_THERE),
    Stage(lambda _: None, replicated.CORPUS),
    Stage(lambda _: None, moves.DONE),
    Stage(_stop_one, degraded.ONE_AWAY),
    Stage(lambda _: None, transactions.ONE_AWAY),
    Stage(lambda _: None, moves.HELD),
    Stage(_kill_another, degraded.TWO_AWAY),
    Stage(_start_both, degraded.BACK),
    Stage(lambda pair: pair.silence(3), degraded.SILENT),
)


class Fleets:
    """directory: for all that they write. They run only if a case is wanted, and no longer than it takes."""

    name: Final = NAME

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def play(self, oracle: Oracle, wanted: Callable[[str], bool], tally: Tally) -> None:
        last = last_wanted(wanted)
        if last is None:
            return
        with (
            FleetPair(self._directory) as pair,
            contextlib.closing(oracle.of(pair)) as of_fleets,
        ):
            for stage in STAGES[: last + 1]:
                stage.begin(pair)
                stage.cases.corpus.play(of_fleets, wanted, tally)


def last_wanted(wanted: Callable[[str], bool]) -> int | None:
    """Number of the last stage that has a wanted case; None if no stage has."""
    found = [
        number
        for number, stage in enumerate(STAGES)
        if any(wanted(f"{NAME}/{case.name}") for case in stage.cases.corpus.cases)
    ]
    return max(found, default=None)
