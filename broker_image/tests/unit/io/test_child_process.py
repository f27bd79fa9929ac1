"""A child's end and its stop meet at every turn of the loop."""

import asyncio
import sys
from pathlib import Path

import pytest
from logfleet.io.child_process import ChildProcess

from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


def deaf(directory: Path) -> ChildProcess:
    """A child that only SIGKILL ends; it prints when it is ready."""
    program = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(60)"
    )
    return ChildProcess("child", [sys.executable, "-S", "-c", program], directory / "log")


@pytest.mark.parametrize("turns", range(6))
async def test_a_child_may_end_just_before_it_is_stopped(
    tmp_path: Path, until: Until, turns: int
) -> None:
    """asyncio drops the process some turns before it wakes the waiters.

    A signal between the two would raise.
    """
    child = deaf(tmp_path)
    await child.start()
    await until(lambda: child.output_tail() == "deaf")
    process = child._process
    assert process is not None
    child.kill()
    await until(lambda: process.returncode is not None)
    for _ in range(turns):
        await asyncio.sleep(0)
    child.kill()
    assert await child.stop(grace_s=30)
    assert child.ended.result() == -9


async def test_a_child_that_does_not_listen_is_killed(tmp_path: Path, until: Until) -> None:
    child = deaf(tmp_path)
    await child.start()
    await until(lambda: child.output_tail() == "deaf")
    assert not await child.stop(grace_s=0.01)
    assert child.ended.result() == -9


async def test_a_child_that_was_never_started_is_stopped(tmp_path: Path) -> None:
    child = deaf(tmp_path)
    child.kill()
    assert await child.stop(grace_s=0)
