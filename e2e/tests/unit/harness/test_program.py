import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.processes import Rig
from e2e.harness.program import Program, ProgramFailed

READY = "import signal, sys; print('ready', flush=True); signal.pause()"


@pytest.fixture
def rig(tmp_path: Path):
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def python(rig: Rig, text: str) -> Program:
    return rig.program("program", [sys.executable, "-c", text])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def started(rig: Rig, text: str = READY) -> Program:
    program = python(rig, text)
    program.launch()
    program.wait_until(lambda: "ready\n" in program.said())
    return program


def test_a_program_is_known_though_ctrl_c_comes_amid_its_launch(rig, monkeypatch):
    popen: Any = subprocess.Popen
    fork = popen._execute_child

    def interrupted(*args):
        fork(*args)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    program = python(rig, READY)
    monkeypatch.setattr(popen, "_execute_child", interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.launch()
    signal.signal(signal.SIGINT, before)
    assert alive(program.pid)
    rig.close()
    assert not alive(program.pid)


def test_a_program_runs_in_its_directory_until_it_is_stopped(rig: Rig) -> None:
    program = started(rig, f"import os; print(os.getcwd(), flush=True); {READY}")
    assert program.said().splitlines() == [str(program.directory), "ready"]
    assert program.running
    assert program.exit_code is None
    assert program.terminate() == -signal.SIGTERM
    assert not program.running


def test_a_program_that_ends_too_early_shows_its_last_words(rig: Rig) -> None:
    program = python(rig, "import sys; sys.exit('port 9092 is taken')")
    program.launch()
    with pytest.raises(ProgramFailed, match=r"(?s)ended with 1.*port 9092 is taken"):
        program.wait_until(lambda: False)


def test_a_program_that_is_never_ready_is_given_up(rig: Rig) -> None:
    program = started(rig)
    with pytest.raises(ProgramFailed, match=r"not ready in 0\.05 s"):
        program.wait_until(lambda: False, timeout_s=0.05)


def test_a_program_that_ignores_sigterm_is_killed_and_told_of(rig: Rig) -> None:
    program = started(rig, f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}")
    with pytest.raises(ProgramFailed, match="did not end"):
        program.terminate(timeout_s=0.05)
    assert program.exit_code == -signal.SIGKILL


def test_the_log_goes_on_over_a_restart_and_said_begins_anew(rig: Rig) -> None:
    program = started(rig)
    program.kill()
    program.launch()
    program.wait_until(lambda: "ready\n" in program.said())
    assert program.log.read_text() == "ready\nready\n"
    assert program.said() == "ready\n"


def test_a_paused_program_uses_no_processor_and_a_resumed_one_does(rig: Rig) -> None:
    program = started(rig, "print('ready', flush=True)\nwhile True: pass")
    assert program.rss_bytes() > 1024 * 1024
    program.pause()
    before = program.cpu_seconds()
    assert before > 0
    program.resume()
    give_up = time.monotonic() + 20
    while program.cpu_seconds() == before:
        assert time.monotonic() < give_up


@pytest.mark.parametrize("ends_first", [False, True])
def test_what_a_program_has_started_ends_with_it(tmp_path, ends_first):
    """Even in a process group of its own, and though the program itself has ended long before."""
    own_group = f"import os; os.setpgid(0, 0); {READY}"
    parent = (
        "import subprocess, sys, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True)\n"
        + ("import os; os._exit(0)" if ends_first else "signal.pause()")
    )
    rig = Rig(tmp_path)
    program = rig.program("parent", [sys.executable, "-c", parent, own_group])
    program.launch()
    if ends_first:
        assert program.wait() == 0
    else:
        program.wait_until(lambda: program.said().endswith("\n"))
    child = int(program.said())
    assert alive(child)
    rig.close()
    assert not alive(child)


def test_nothing_survives_the_death_of_the_tests(tmp_path: Path) -> None:
    parent = (
        "import sys, pathlib, signal; from e2e.harness.program import Program\n"
        "program = Program('child', [sys.executable, '-c', sys.argv[2]], pathlib.Path(sys.argv[1]))\n"
        "program.launch(); program.wait_until(lambda: 'ready' in program.said())\n"
        "print(program.pid, flush=True); signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(tmp_path), READY], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert alive(child)
        process.kill()
    give_up = time.monotonic() + 20
    while alive(child):
        assert time.monotonic() < give_up


def test_a_prefix_becomes_the_program_that_it_runs(rig: Rig) -> None:
    program = python(rig, f"import os; print(os.environ['SEEN'], os.getpid(), flush=True); {READY}")
    program.prefix = ["env", "SEEN=yes"]
    program.launch()
    program.wait_until(lambda: program.said().endswith("ready\n"))
    assert program.said().splitlines()[0] == f"yes {program.pid}"
