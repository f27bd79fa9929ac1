"""How late the loop of this process is, a thousand times a second, and which step it was.

Of each lateness it is told apart how long the thread waited for a processor (/proc/thread-self/schedstat), which on a machine that
others use says nothing of the broker; what is left is its own: work, and system calls that blocked.
"""

import asyncio
import os
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

PERIOD_S: Final = 0.001
LIMIT_S: Final = 0.005
"""No step may take longer."""
SAMPLE_S: Final = 0.002
STACK_FRAMES: Final = 5
SLOWEST_STEPS: Final = 12
MS: Final = 1000


class Figures(msgspec.Struct):
    """Of one phase, in ms. lag: as a clock on the wall has it. own: without waiting for a processor. work: processor time of the
    loop's thread between two looks. over: how often own was more than 5 ms. steps: what ran then, most often first.
    """

    name: str
    seconds: float
    looks: int
    lag_ms: dict[str, float]
    own_ms: dict[str, float]
    work_ms: dict[str, float]
    over: int
    steps: dict[str, int]


def spread(values: list[float]) -> dict[str, float]:
    """p50, p99, p99.9 and max of times in seconds, in ms."""
    ordered = sorted(values) or [0.0]
    last = len(ordered) - 1
    places = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: round(ordered[round(last * at)] * MS, 2) for name, at in places.items()}


class Probe:
    """Looks while it runs. phases: what was seen, by phase; `begin` begins one."""

    def __init__(self) -> None:
        self.phases: list[Figures] = []
        self._name = ""
        self._began = 0.0
        self._lag: list[float] = []
        self._own: list[float] = []
        self._work: list[float] = []
        self._steps: Counter[str] = Counter()
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._thread = threading.get_ident()
        self._sampled: str | None = None
        self._looked = (0.0, 0.0, 0.0)

    def start(self) -> None:
        """On the running loop, until its end."""
        self._looked = self._now()
        asyncio.get_running_loop().call_later(PERIOD_S, self._look)
        threading.Thread(target=self._sample, daemon=True).start()

    def begin(self, name: str) -> None:
        """End the phase, if one is under way; begin another unless the name is empty."""
        now = time.perf_counter()
        if self._name:
            figures = Figures(
                self._name,
                round(now - self._began, 1),
                len(self._lag),
                spread(self._lag),
                spread(self._own),
                spread(self._work),
                sum(own > LIMIT_S for own in self._own),
                dict(self._steps.most_common(SLOWEST_STEPS)),
            )
            self.phases.append(figures)
        self._name, self._began = name, now
        self._lag, self._own, self._work = [], [], []
        self._steps = Counter()
        self._looked = self._now()

    def _now(self) -> tuple[float, float, float]:
        """Time, processor time of the thread, and how long it has waited for a processor, in seconds."""
        waited_ns = int(os.pread(self._schedstat, 100, 0).split()[1])
        return time.perf_counter(), time.thread_time(), waited_ns / 1e9

    def _look(self) -> None:
        now = self._now()
        wall, work, waited = (a - b for a, b in zip(now, self._looked, strict=True))
        lag = max(0.0, wall - PERIOD_S)
        own = max(0.0, lag - waited)
        self._lag.append(lag)
        self._own.append(own)
        self._work.append(work)
        if own > LIMIT_S:
            self._steps[self._sampled or "not seen"] += 1
        self._sampled = None
        self._looked = self._now()
        asyncio.get_running_loop().call_later(PERIOD_S, self._look)

    def _sample(self) -> None:
        """In a thread: where the loop is while it is late."""
        while True:
            time.sleep(SAMPLE_S)
            if self._sampled is None and time.perf_counter() - self._looked[0] > LIMIT_S:
                frame = sys._current_frames().get(self._thread)  # noqa: SLF001  the only way
                if frame is not None:
                    self._sampled = where(traceback.extract_stack(frame))


def where(stack: Any) -> str:
    """The innermost frames of a stack, outermost first."""
    inner = [frame for frame in stack if frame.name != "_look"][-STACK_FRAMES:]
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in inner)
