import json
import time

import pytest
from click.testing import CliRunner
from logfleet.cli.fleet.admin_port import Answers
from logfleet.cli.fleet.events import _cause, columns, merged, subject_of
from logfleet.cli.main import cli


@pytest.mark.parametrize("text", ["", "soon", "25:00", "m", "2026-13-01"])
def test_what_is_no_time_is_told_in_one_line(text: str) -> None:
    result = CliRunner().invoke(cli, ["events", "--since", text], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: Invalid value for '--since': ")


def decision(time_ms: int, by: int, number: int) -> str:
    return json.dumps({"time_ms": time_ms, "by": by, "number": number, "kind": "k", "cause": "c"})


def test_what_several_brokers_tell_is_put_in_order() -> None:
    answers = Answers(
        {
            2: decision(5, 2, 1) + "\n" + decision(7, 2, 2) + "\n",
            1: decision(5, 1, 8) + "\n" + decision(5, 1, 9) + "\n" + decision(6, 1, 10) + "\n",
            3: "",
        },
        {},
        {},
    )
    order = [(each["time_ms"], each["by"], each["number"]) for each in merged(answers)]
    assert order == [(5, 1, 8), (5, 1, 9), (5, 2, 1), (6, 1, 10), (7, 2, 2)]


def test_a_row_says_what_changed() -> None:
    cause = _cause(
        {
            "time_ms": 0,
            "by": 1,
            "kind": "election",
            "cause": "broker 2 is fenced",
            "facts": {"leader_epoch": [4, 5], "isr": [[1, 2], [1]], "path": "/data", "n": [1]},
        }
    )
    assert cause == (
        "broker 2 is fenced (leader_epoch 4 -> 5, isr [1, 2] -> [1], path /data, n [1])"
    )


def test_times_are_shown_in_the_zone_that_the_title_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    try:
        shown, *_ = columns()
        assert (shown.title, shown.of({"time_ms": 1999})) == (
            "TIME (XYZ)",
            "1970-01-01 05:00:01.999",
        )
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_row_says_whom_it_concerns() -> None:
    assert subject_of({"topic": "t", "partition": 3, "broker": 1}) == "t-3"
    assert subject_of({"topic": "t"}) == "t"
    assert subject_of({"broker": 1}) == "broker 1"
    assert subject_of({}) == ""
