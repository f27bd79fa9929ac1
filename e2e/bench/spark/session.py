"""Processor time and memory of a session of processes (setsid), as Linux counts them."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

SAMPLE_S = 0.2
_SESSION, _TIMES = 3, slice(11, 15)
"""Fields of /proc/PID/stat behind the command: the session, and utime, stime, cutime, cstime (proc(5))."""


def _stats(session: int) -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[_SESSION]) == session:
                    yield int(entry.name), fields


def cpu_s(session: int) -> float:
    """User and system time of its processes and of those that they have waited for."""
    ticks = sum(sum(map(int, fields[_TIMES])) for _, fields in _stats(session))
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mib(session: int) -> float:
    """Resident memory; pages that forked processes share are counted once (Pss)."""
    kib = 0
    for pid, _ in _stats(session):
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
            self.mib = max(self.mib, rss_mib(self._session))

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
        self.mib = max(self.mib, rss_mib(self._session))
