"""Processor time and memory of another process, as the kernel counts them."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_CPUCLOCK_SCHED = 2
"""Linux, include/linux/posix-timers_types.h: a negative clock id is (~pid << 3) | clock; this clock is what the scheduler counts."""


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


def cpu_time(pid: int) -> CpuTime:
    """Processor time of a process so far. Raises FileNotFoundError if it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick_hz = os.sysconf("SC_CLK_TCK")
    user_s, system_s = (int(field) / tick_hz for field in fields[11:13])
    return CpuTime(time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED), user_s, system_s)


def rss_kib(pid: int) -> int:
    """Resident memory, in KiB (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmRSS":
            return int(value.split()[0])
    raise OSError(f"process {pid} has no memory any more")


REALTIME_PRIORITY = 10


def run_undisturbed(pid: int, cpu: int) -> None:
    """Give a process, all its threads, one processor and the real-time scheduler (SCHED_FIFO). Raises PermissionError.

    Whatever else the machine does then neither interrupts it nor empties its caches.
    """
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cpu})
        os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
