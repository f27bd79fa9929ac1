"""The test of the tests: with any of these rules broken, the simulation fails."""

import pytest

from broker_image.tests.sim.mutant import SEEDS_MAX, broken, found
from broker_image.tests.sim.mutants import BY_SEED, MUTANTS
from broker_image.tests.sim.simulation import drawn_case, run
from broker_image.tests.sim.test_scenarios import RULES


@pytest.mark.timeout(
    900
)  # where its seed finds it no more, as rules have changed, another one is looked for
@pytest.mark.parametrize("mutant", BY_SEED, ids=lambda each: each.name)
def test_it_is_found_that(mutant) -> None:
    assert found(mutant, [mutant.seed, *range(SEEDS_MAX)]) is not None


def test_a_mutant_that_no_seed_finds_is_found_by_a_scenario() -> None:
    assert {each.name for each in MUTANTS if each.seed is None} <= set(RULES.values())


def test_a_mutant_is_gone_when_it_has_been_tried() -> None:
    before = run(drawn_case(0)).failure
    for mutant in MUTANTS:
        with broken(mutant):
            pass
    assert run(drawn_case(0)).failure is before is None
