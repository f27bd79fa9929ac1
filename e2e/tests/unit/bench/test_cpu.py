import os
import subprocess
import sys
import threading
import time

import pytest

from e2e.bench.cpu import cpu_time, rss_kib, run_undisturbed


def test_own_processor_time_is_what_the_process_says_itself():
    before, own_before = cpu_time(os.getpid()), time.process_time_ns()
    while time.process_time_ns() < own_before + 50_000_000:
        pass
    used = cpu_time(os.getpid()).since(before)
    assert used.total_ns >= 50_000_000
    assert used.total_ns <= time.process_time_ns() - own_before + 1_000_000_000
    # ticks of 10 ms, and one may be cut off at either end
    assert used.user_s + used.system_s >= 0.02


def test_another_process_is_measured_and_not_this_one():
    program = "import sys; [0 for _ in range(3_000_000)]; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    first = cpu_time(child.pid)
    assert first.total_ns > 10_000_000
    while time.process_time_ns() % 50_000_000 < 40_000_000:
        pass
    assert cpu_time(child.pid).since(first).total_ns < 30_000_000
    assert rss_kib(child.pid) > 1024
    child.communicate()
    with pytest.raises(FileNotFoundError):
        cpu_time(child.pid)


def test_all_threads_of_a_process_get_one_processor_and_real_time(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: calls.append(given))
    monkeypatch.setattr(os, "sched_setscheduler", lambda *given: calls.append(given[:2]))
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        run_undisturbed(os.getpid(), 1)
    finally:
        done.set()
        other.join()
    assert other.native_id is not None
    for thread in (os.getpid(), other.native_id):
        assert (thread, {1}) in calls
        assert (thread, os.SCHED_FIFO) in calls
