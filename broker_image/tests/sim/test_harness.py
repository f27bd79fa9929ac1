"""The simulation's own machinery: the same seed goes the same way, and a failure is made small."""

import msgspec

from broker_image.tests.sim.mutant import broken
from broker_image.tests.sim.mutants import MUTANTS
from broker_image.tests.sim.report import report
from broker_image.tests.sim.shrinking import Shrinker, kind_of
from broker_image.tests.sim.simulation import drawn_case, run
from broker_image.tests.sim.tape import Tape

BROKEN = next(each for each in MUTANTS if "epoch's start only" in each.name)
RUNS = 60


def failing_case():
    for seed in (BROKEN.seed, *range(100)):
        case = drawn_case(seed)
        outcome = run(case)
        if outcome.failure is not None:
            return case, outcome
    raise AssertionError("the mutant is not found")


def test_a_seed_goes_the_same_way_twice() -> None:
    for seed in range(5):
        first, again = (run(drawn_case(seed), is_told=True) for _ in range(2))
        assert first.trace_hash == again.trace_hash
        assert first.notes == again.notes


def test_a_tape_that_was_recorded_goes_the_same_way() -> None:
    case = drawn_case(3)
    first = run(case, is_told=True)
    assert run(msgspec.structs.replace(case, draws=first.drawn), is_told=True).notes == first.notes


def test_seeds_differ() -> None:
    hashes = {run(drawn_case(seed), is_told=True).trace_hash for seed in range(10)}
    assert len(hashes) == 10


def test_one_more_draw_of_a_stream_changes_no_other() -> None:
    one, other = Tape(7), Tape(7)
    one.draw("net.delay", 100)
    assert [one.draw("faults.at", 100) for _ in range(5)] == [
        other.draw("faults.at", 100) for _ in range(5)
    ]


def test_a_failure_is_made_smaller_and_stays_the_same() -> None:
    with broken(BROKEN):
        case, outcome = failing_case()
        small = Shrinker(case, outcome, RUNS).shrink()
        assert kind_of(run(small).failure) == kind_of(outcome.failure)
        assert len(small.faults) <= len(case.faults)
        assert len(small.load) < len(case.load)


def test_a_report_tells_hosts_times_and_how_to_see_it_again() -> None:
    with broken(BROKEN):
        case, outcome = failing_case()
        text = report(case, outcome, RUNS)
    assert f"SIM_SEED={case.seed} pytest" in text
    assert " ms  b1 " in text
    assert str(kind_of(outcome.failure)) in text.splitlines()[-2]
