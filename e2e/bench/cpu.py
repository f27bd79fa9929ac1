"""Processor time and memory of other processes, as the kernel counts them."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_CPUCLOCK_SCHED = 2
"""Linux, include/linux/posix-timers_types.h: a negative clock id is (~pid << 3) | clock; this clock is what the scheduler counts."""
REALTIME_PRIORITY = 10
SAMPLE_S = 0.2
_SESSION, _TIMES = 3, slice(11, 15)
"""Fields of /proc/PID/stat behind the command: the session, and utime, stime, cutime, cstime (proc(5))."""


@dataclass(frozen=True)
class CpuTime:
    """total_ns: user and system time of all threads, exact. user_s and system_s: the same split, in steps of a clock tick (10 ms)."""

    total_ns: int
    user_s: float
    system_s: float

    def since(self, earlier: "CpuTime") -> "CpuTime":
        return CpuTime(
            self.total_ns - earlier.total_ns,
            self.user_s - earlier.user_s,
            self.system_s - earlier.system_s,
        )


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the third on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_time(pid: int) -> CpuTime:
    """Processor time of a process so far. Raises FileNotFoundError if it is gone."""
    tick_hz = os.sysconf("SC_CLK_TCK")
    user_s, system_s = (int(field) / tick_hz for field in _fields(pid)[11:13])
    return CpuTime(time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED), user_s, system_s)


def rss_kib(pid: int) -> int:
    """Resident memory, in KiB (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmRSS":
            return int(value.split()[0])
    raise OSError(f"process {pid} has no memory any more")


def run_undisturbed(pid: int, cpu: int) -> None:
    """Give a process, all its threads, one processor and the real-time scheduler (SCHED_FIFO). Raises PermissionError.

    Whatever else the machine does then neither interrupts it nor empties its caches.
    """
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cpu})
        os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))


# --- sessions of processes (setsid)


def _members(session: int) -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = _fields(int(entry.name))
                if int(fields[_SESSION]) == session:
                    yield int(entry.name), fields


def session_cpu_s(session: int) -> float:
    """User and system time of its processes and of those that they have waited for."""
    ticks = sum(sum(map(int, fields[_TIMES])) for _, fields in _members(session))
    return ticks / os.sysconf("SC_CLK_TCK")


def session_rss_mib(session: int) -> float:
    """Resident memory; pages that forked processes share are counted once (Pss)."""
    kib = 0
    for pid, _ in _members(session):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kib += int(line.split()[1])
    return kib / 1024


class PeakRss:
    """The most that a session held within the block, looked at every SAMPLE_S."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.mib = 0.0

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.mib = max(self.mib, session_rss_mib(self._session))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.mib = max(self.mib, session_rss_mib(self._session))
