"""Each timer in a process of its own, as it kills the process that has it."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from logfleet.io.dead_mans_timer import KernelTimer, Unavailable

PATIENCE_S = 30
BEGIN = (
    "import os, signal, subprocess, sys, time\n"
    "from logfleet.io.clock import boot_s\n"
    "from logfleet.io.dead_mans_timer import KernelTimer\n"
    "timer = KernelTimer()\n"
)


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGIN + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_stopped_process_is_killed_at_the_time_set_and_its_files_close() -> None:
    program = (
        "began_s = boot_s()\ntimer.arm(began_s + 1)\nprint(began_s, flush=True)\nsignal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        began_s = float(process.stdout.readline())
        process.send_signal(signal.SIGSTOP)
        assert process.stdout.read() == ""
        took_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert 1 <= took_s < 1 + PATIENCE_S / 2


@pytest.mark.parametrize(
    "set_again, code",
    [
        ("", -signal.SIGKILL),
        ("timer.arm(boot_s() + 60)", 0),
        ("timer.arm(boot_s() + 60); timer.arm(boot_s() + 0.2)", -signal.SIGKILL),
        ("timer.disarm()", 0),
        ("timer.disarm(); timer.arm(boot_s() + 0.2)", -signal.SIGKILL),
        ("timer.close()", 0),
    ],
)
def test_only_the_last_setting_counts(set_again: str, code: int) -> None:
    done = run(f"timer.arm(boot_s() + 1)\n{set_again}\ntime.sleep(1.5)")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_child_outlives_the_time_set_by_its_parent() -> None:
    """By fork alone, and by the fork and exec of which subprocesses are made."""
    done = run(
        "timer.arm(boot_s() + 0.5)\n"
        "subprocess.Popen(['sh', '-c', 'sleep 1; echo executed'])\n"
        "if os.fork():\n"
        "    signal.pause()\n"
        "time.sleep(1)\n"
        "print('forked')"
    )
    assert done.returncode == -signal.SIGKILL
    assert sorted(done.stdout.split()) == ["executed", "forked"]


@pytest.mark.parametrize(
    "lacking, words",
    [
        (lambda patch: patch.setattr(os, "getpid", lambda: 1), "process 1"),
        (lambda patch: patch.delattr(time, "CLOCK_BOOTTIME"), "CLOCK_BOOTTIME"),
        (lambda patch: patch.setattr(time, "CLOCK_BOOTTIME", 99), "timer_create: Invalid"),
        (
            lambda patch: patch.setattr(ctypes, "CDLL", lambda *_, **__: object()),
            "timer_create",
        ),
    ],
)
def test_where_it_cannot_kill_it_is_unavailable_with_the_reason(
    lacking: Callable[[pytest.MonkeyPatch], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(monkeypatch)
    with pytest.raises(Unavailable, match=words):
        KernelTimer()
