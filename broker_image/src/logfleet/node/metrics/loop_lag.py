"""Measures how long the event loop makes ready work wait.

A timer is due every PERIOD_S; if it is late, a step of the loop took too long. No step may take
more than 5 ms, so anything above that is a defect or a machine that is too small.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from logfleet.telemetry.histogram import Histogram

PERIOD_S = 0.1
STALL_S: Final = 0.5
"""A longer lag is recorded as a decision (`telemetry.decisions`): a sixth of the broker's lease."""
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Measures the lag of the event loop. histogram: of the lags, in seconds.

    worst_s: the longest since the start. on_stall: called with each lag above STALL_S.
    """

    def __init__(self, on_stall: Callable[[float], None] = lambda _: None) -> None:
        self.worst_s = 0.0
        self._on_stall = on_stall
        self.histogram = Histogram(BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Measure on the running loop until `stop`."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + PERIOD_S
        self._timer = loop.call_at(self._due, self._measure, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self, loop: asyncio.AbstractEventLoop) -> None:
        lag = max(0.0, loop.time() - self._due)
        self.histogram.observe(lag)
        self.worst_s = max(self.worst_s, lag)
        if lag > STALL_S:
            self._on_stall(lag)
        self.start()
