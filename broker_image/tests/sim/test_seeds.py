"""Seeds of the simulation: a share of them on every run of the unit tests; `make sim` runs thousands.

`SIM_SEED=7 pytest broker_image/tests/sim/test_seeds.py` runs that one, and tells what happened in it.
"""

import os

import pytest

from broker_image.tests.sim.report import report_of, timeline
from broker_image.tests.sim.simulation import drawn_case, run

SHARES = 8
SEEDS = 200
WHOLE = os.environ.get("SIM_SEED")


@pytest.mark.parametrize("share", range(SHARES) if WHOLE is None else [int(WHOLE)])
def test_nothing_that_was_acknowledged_is_lost_whatever_fails(share) -> None:
    for seed in range(share, SEEDS, SHARES) if WHOLE is None else [share]:
        failure = run(drawn_case(seed)).failure
        if WHOLE is not None:
            print(timeline(drawn_case(seed)))
        if failure is not None:
            pytest.fail(failure if WHOLE else report_of(seed) or failure, pytrace=False)
