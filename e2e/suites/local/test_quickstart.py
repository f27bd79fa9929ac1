"""Ctrl-C at any point of `make quickstart` leaves nothing: no process, no file."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.images import ROOT

MARK = "QUICKSTART_OF_TEST"
WITHIN_S = 240.0
# whoever started these tests may have told them to ignore Ctrl-C, and children inherit that
INTERRUPTIBLE = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('e2e.quickstart', run_name='__main__')"
)


def marked(mark: str) -> list[str]:
    """Command lines of all processes that have the mark in their environment, as every child inherits it."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and wanted in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(command.decode(errors="replace"))
    return found


@pytest.fixture
def quickstart(tmp_path, arguments) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """The quickstart as a terminal's foreground job: process, mark of all that it starts, output."""
    mark, output = uuid.uuid4().hex, tmp_path / "output"
    (tmp_path / "tmp").mkdir()
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                MARK: mark,
                "TMPDIR": str(tmp_path / "tmp"),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=stream,
            stderr=stream,
            process_group=0,
        )
    yield process, mark, output
    if process.poll() is None:
        process.terminate()
        process.wait(60)


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], output: Path
) -> None:
    give_up = time.monotonic() + WITHIN_S
    while not condition():
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < give_up, output.read_text()
        time.sleep(0.02)


def is_starting(output: Path, _: str) -> bool:
    return "1. Start one broker" in output.read_text()


def is_publishing(output: Path, _: str) -> bool:
    """The first records are in a log."""
    logs = (output.parent / "tmp").glob("*/broker-1/data/flights-*/*.log")
    return any(log.stat().st_size for log in logs)


def is_counting(_: Path, mark: str) -> bool:
    return any("pyspark.daemon" in command for command in marked(mark))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "point, arguments",
    [(is_starting, []), (is_publishing, []), (is_counting, ["--late"])],  # few flights: soon there
)
def test_ctrl_c_leaves_nothing(quickstart, tmp_path, point):
    """While the broker starts, while records are sent, and while Spark's Python workers run."""
    process, mark, output = quickstart
    wait_until(lambda: point(output, mark), process, output)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(WITHIN_S) == 130, output.read_text()
    # a thread of librdkafka's may still write of the connection that it lost
    assert "stopped; nothing is left running" in output.read_text().splitlines()
    assert marked(mark) == []
    assert list((tmp_path / "tmp").iterdir()) == []
