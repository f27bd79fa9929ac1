"""Runs transactions/*.txt; transaction_script.py says what the words mean."""

from pathlib import Path

import pytest

from broker_image.tests.scenario.group_script import steps
from broker_image.tests.scenario.transaction_script import Script

SCENARIOS = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_it_goes_as_the_scenario_says(path):
    script = Script()
    for number, command, expected in steps(path):
        assert script.run(command) == expected, f"{path.name}:{number}: {command}"


def test_there_are_scenarios():
    assert len(SCENARIOS) >= 20
