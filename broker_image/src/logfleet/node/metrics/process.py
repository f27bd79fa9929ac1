"""The process: processor time, memory, descriptors; and the lag of its loop.

The names are those of prometheus_client's ProcessCollector. That one lists the open files one by
one on the event loop, which with some thousand of them takes longer than a step may; Linux reports
their number (since 6.2).
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logfleet import __version__
from logfleet.node.metrics.loop_lag import LoopLag
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, labelled, single

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PROCESS: Final = Path("/proc/self")


def process(lag: LoopLag) -> Iterator[Family]:
    """Metrics of this process; only the loop's lag and the version where there is no /proc."""
    yield single(table.LOOP_LAG, lag.histogram)
    yield single(table.LOOP_LAG_MAX, lag.worst_s)
    yield labelled(table.BUILD_INFO, [((__version__,), 1)])
    try:
        # fields of proc_pid_stat(5) from the third, the state: the second may hold any character
        fields = (_PROCESS / "stat").read_text().rpartition(")")[2].split()
        booted_s = _boot_time_s()
        open_fds = _open_fds()
    except FileNotFoundError:
        return
    yield single(table.PROCESS_CPU, (int(fields[11]) + int(fields[12])) / _TICKS_PER_S)
    yield single(table.PROCESS_RSS, int(fields[21]) * _PAGE_BYTES)
    yield single(table.PROCESS_VIRTUAL, int(fields[20]))
    yield single(table.PROCESS_STARTED, booted_s + int(fields[19]) / _TICKS_PER_S)
    yield single(table.PROCESS_OPEN_FDS, open_fds)
    yield single(table.PROCESS_MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _boot_time_s() -> float:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("btime "))


def _open_fds() -> int:
    files = _PROCESS / "fd"
    return files.stat().st_size or sum(1 for _ in files.iterdir())
