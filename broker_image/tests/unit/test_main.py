"""Every way into the code that there is."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from logfleet.storage.cleaning.process import COMMAND

(SCRIPT,) = entry_points(group="console_scripts", name="logfleet")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "logfleet", "--help"],
        ["-c", f"from {SCRIPT.module} import {SCRIPT.attr}; {SCRIPT.attr}()"],
        list(COMMAND[1:]),
        ["-c", "import logfleet.client.producer"],
    ],
    ids=["module", "console script", "compaction", "library"],
)
def test_without_assertions_nothing_begins_and_one_line_says_why(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-O", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "logfleet: assertions guard the data; do not run with python -O"
    ]
