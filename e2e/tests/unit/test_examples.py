"""Hypothesis as conftest.py sets it for all tests, on a person's machine and under continuous integration."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import conftest
from hypothesis import given, strategies as st

drawn = []

@given(st.integers(0, 2**64))
def fails(number):
    drawn.append(number)
    assert number < 1000

try:
    fails()
finally:
    print(drawn)
"""


def run(folder: Path, *, ci: bool) -> tuple[str, str]:
    """What was drawn, and what was said of the failure. Examples of failures are kept in `folder`."""
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({"CI": "true"} if ci else {})
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("ci", [False, True], ids=["person", "ci"])
def test_each_run_draws_examples_of_its_own_and_tells_how_to_repeat_a_failure(tmp_path, ci):
    one, failure = run(tmp_path / "one", ci=ci)
    two, _ = run(tmp_path / "two", ci=ci)
    assert "@reproduce_failure(" in failure
    assert one != two
