"""The wall clock, and clocks that only go forward."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

boot_s: Final[Callable[[], float]] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds since the machine booted, with the time for which it was suspended.

Everything that is compared with the deadline of a lease uses this clock: time.monotonic and
perf_counter stand still while the machine is suspended, and the lease ends meanwhile
(clock_gettime(2)). A call takes 60 ns where perf_counter takes 45. Where the system has no such
clock (macOS) it is time.monotonic's. A virtual machine whose host halts it without a suspend of
its own sees that on no clock.
"""


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since some time in the past."""
    return time.monotonic_ns() // 1_000_000
