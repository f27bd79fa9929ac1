"""Measures how long the event loop makes ready work wait.

A timer that is due every PERIOD_S and comes late was held up by a step of the loop that took too long; no
step may take more than 5 ms, so what shows up above that is a defect or a machine that is too small.
"""

import asyncio

from logfleet.telemetry.histogram import Histogram

PERIOD_S = 0.1
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """histogram: of the lags, in seconds. worst_s: the longest since the start."""

    def __init__(self) -> None:
        self.worst_s = 0.0
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
        self.start()
