import signal

import pytest

from e2e import parts
from e2e.lab.settings import settings_from
from e2e.lab.tools import CONTROL_PLANE


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


def test_an_api_server_is_built_by_ci_and_not_unasked_for_a_person(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_ROOT", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    assert "make apiserver" in (parts.no_control_plane() or "")
    monkeypatch.setenv("CI", "true")
    assert parts.no_control_plane() is None
    monkeypatch.delenv("CI")
    settings = settings_from({"LAB_ROOT": str(tmp_path)}, tmp_path)
    for module in CONTROL_PLANE:
        module.built(settings).mkdir(parents=True)
    assert parts.no_control_plane() is None
