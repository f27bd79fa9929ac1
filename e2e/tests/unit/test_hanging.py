"""A test that hangs must not take the run with it: `make check` ends, and says which test it was."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.harness.program import end_session

ROOT = Path(__file__).parents[3]
RUN_WITHIN_S = 60
GRACE = "GRACE_S = 30.0"
ONE_GROUP = """
import os
from pathlib import Path
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(8))
def test_of_a_group(number):
    with Path(__file__).with_name("workers").open("a") as workers:
        print(os.environ["PYTEST_XDIST_WORKER"], file=workers)
"""
OTHERS = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_well(number):
    pass
"""
REACHED_BY_A_SIGNAL = """
import asyncio, socket, threading

def test_awaits():
    asyncio.run(asyncio.Event().wait())

def test_reads():
    reader, _writer = socket.socketpair()
    reader.recv(1)

def test_waits_for_a_thread():
    thread = threading.Thread(target=threading.Event().wait)
    thread.start()
    thread.join()

def test_comes_later():
    pass
"""
# Its loop logs what a signal handler raises, and goes on.
AWAITS_ON_UVLOOP = """
import asyncio, uvloop

def test_hangs():
    uvloop.run(asyncio.Event().wait())
"""
# No signal handler of Python's runs and no other thread either: the second lock never returns.
KEEPS_PYTHON_LOCKED = """
import ctypes

def test_hangs():
    c, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    c.pthread_mutex_lock(mutex)
    c.pthread_mutex_lock(mutex)
"""


def run_as_make_does(folder: Path, tests: str, grace: str = GRACE) -> tuple[int, str]:
    """(exit code, output) of the tests, run under the configuration of this repository."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    conftest = (ROOT / "conftest.py").read_text()
    assert GRACE in conftest
    (folder / "conftest.py").write_text(conftest.replace(GRACE, grace))
    (folder / "test_some.py").write_text(OTHERS + tests)
    options = ["-q", "-n", "2", "--dist", "loadgroup", "--timeout=2", "test_some.py"]
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = run.communicate(timeout=RUN_WITHIN_S)
    finally:
        end_session(run.pid)
        run.wait()
    return run.returncode, output


def test_a_test_that_hangs_fails_by_name_and_its_worker_goes_on(tmp_path):
    code, output = run_as_make_does(tmp_path, REACHED_BY_A_SIGNAL)
    assert code == 1
    for name in ("awaits", "reads", "waits_for_a_thread"):
        assert f"FAILED test_some.py::test_{name} - Failed: Timeout" in output
    assert "3 failed, 7 passed" in output


@pytest.mark.parametrize(
    "kind", [AWAITS_ON_UVLOOP, KEEPS_PYTHON_LOCKED], ids=["awaits-on-uvloop", "in-c"]
)
def test_what_no_signal_ends_ends_with_its_worker_and_is_named(tmp_path, kind):
    code, output = run_as_make_does(tmp_path, kind, grace="GRACE_S = 1.0")
    assert code == 1
    assert "FAILED test_some.py::test_hangs - worker" in output
    assert "in test_hangs" in output, "the stacks of its threads are shown"
    assert "1 failed, 6 passed" in output


def test_the_tests_of_a_group_run_in_one_worker(tmp_path):
    """Versions of pytest and pytest-xdist that do not fit one another spread them, and say nothing."""
    code, output = run_as_make_does(tmp_path, ONE_GROUP)
    assert code == 0, output
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 8
    assert len(set(workers)) == 1
