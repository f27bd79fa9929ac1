"""Every way into the code that there is."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from logfleet.log.compaction.process import COMMAND

(SCRIPT,) = entry_points(group="console_scripts", name="logfleet")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "logfleet", "--help"],
        ["-c", f"from {SCRIPT.module} import {SCRIPT.attr}; {SCRIPT.attr}()"],
        list(COMMAND[1:]),
    ],
    ids=["module", "console script", "compaction"],
)
def test_without_assertions_nothing_begins_and_one_line_says_why(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-O", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "logfleet: assertions guard the data; do not run with python -O"
    ]


BROKER = """
import asyncio
from logfleet.config.broker import broker_config
from logfleet.node.broker import Broker, StartError
import logfleet.client.producer

async def main():
    try:
        async with Broker(broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"})):
            print("it serves")
    except StartError as error:
        print(error)

asyncio.run(main())
print("the program goes on")
"""


def test_a_program_of_somebody_else_is_not_ended_and_no_broker_starts_in_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-O", "-c", BROKER],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout.splitlines()) == (
        0,
        [
            "logfleet: assertions guard the data; do not run with python -O",
            "the program goes on",
        ],
    ), ended.stderr
    assert list(tmp_path.iterdir()) == []
