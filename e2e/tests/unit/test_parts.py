import json
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from e2e import parts


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A folder with parts that succeed, fail and cannot be run; gives what was run."""
    (tmp_path / "Makefile").write_text(
        "good:\n\t@echo good >> ran\nbad:\n\t@echo bad >> ran; false\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(parts.OBSTACLES, "heavy", lambda: "it needs root")
    monkeypatch.delenv("CI", raising=False)
    return tmp_path / "ran"


def test_later_parts_run_although_an_earlier_one_failed(machine, capsys):
    assert parts.main(["bad", "good"]) == 1
    assert machine.read_text() == "bad\ngood\n"
    assert "FAILED (2)" in capsys.readouterr().out


def test_what_failed_is_printed_again_at_the_end(machine, capsys):
    (machine.parent / "Makefile").write_text(
        "bad:\n\t@echo FAILED a.py::test_b - assert 1 == 2; echo 1 failed; false\ngood:\n\t@echo fine\n"
    )
    parts.main(["bad", "good"])
    output = capsys.readouterr().out
    assert "bad: FAILED a.py::test_b - assert 1 == 2" in output[output.index("fine") :].splitlines()
    assert output.count("1 failed") == 1


def test_a_part_can_be_interrupted_although_the_run_is_in_the_background(machine):
    """A shell without job control starts `make test &` with SIGINT ignored, and that is inherited."""
    (machine.parent / "Makefile").write_text("status:\n\t@grep SigIgn /proc/self/status > ran\n")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert parts.main(["status"]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    ignored = int(machine.read_text().split()[1], 16)
    assert not ignored >> (signal.SIGINT - 1) & 1


def test_what_cannot_be_run_is_left_out_in_one_line(machine, capsys):
    assert parts.main(["good", "heavy"]) == 0
    assert "left out: it needs root" in capsys.readouterr().out


def test_under_continuous_integration_that_is_a_failure(machine, capsys, monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert parts.main(["good", "heavy"]) == 1
    assert "FAILED: it needs root" in capsys.readouterr().out


def test_what_builds_goes_first():
    """On a machine that has nothing yet `make test` builds, and then leaves nothing out."""
    makefile = Path(__file__).parents[3] / "Makefile"
    joined = makefile.read_text().replace("\\\n", " ")
    runs = re.findall(r"-m e2e\.parts (?:--into \S+ )?(.+)", joined)
    assert len(runs) == 3
    for run in map(shlex.split, runs):
        builders = [part for part in run if part in parts.BUILDERS]
        assert run[: len(builders)] == builders
        assert {parts.BUILT_BY[part] for part in run if part in parts.BUILT_BY} <= {*builders}


@pytest.mark.parametrize(
    "ci, code, result", [("false", 0, "left out"), ("true", 1, "FAILED")], ids=["person", "ci"]
)
def test_what_could_not_be_built_leaves_out_what_needs_it(
    machine, capsys, monkeypatch, ci, code, result
):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(parts, "BUILDERS", ("bad",))
    monkeypatch.setattr(parts, "BUILT_BY", {"good": "bad"})
    assert parts.main(["bad", "good"]) == code
    assert machine.read_text() == "bad\n"
    table = capsys.readouterr().out
    assert f"{result} (2)" in table
    assert f"{result}: make bad failed" in table


def test_the_minutes_of_building_are_summed_apart(machine, capsys, monkeypatch):
    monkeypatch.setattr(parts, "BUILDERS", ("good",))
    seconds = iter([0, 90, 90, 390])
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    parts.main(["good", "bad"])
    assert re.search(r" 6\.5 +1\.5 of them", capsys.readouterr().out.splitlines()[-1])


def test_each_part_is_stored_under_the_commit(machine, tmp_path):
    """With its variables, also if the run ends before the last part."""
    (machine.parent / "Makefile").write_text("good:\n\t@echo $(SIZE) >> ran\nbad:\n\t@false\n")
    into = tmp_path / "release.json"
    assert parts.main(["--into", str(into), "good SIZE=7", "bad"]) == 1
    assert machine.read_text() == "7\n"
    ((commit, entry),) = json.loads(into.read_text()).items()
    assert commit == entry["commit"] == parts.commit()
    assert [(row["part"], row["result"]) for row in entry["parts"]] == [
        ("good SIZE=7", "ok"),
        ("bad", "FAILED (2)"),
    ]
