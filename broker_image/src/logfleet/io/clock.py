"""The wall clock and monotonic clocks."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

boot_s: Final[Callable[[], float]] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds since the machine booted, including the time for which it was suspended.

Everything that is compared with the deadline of a lease uses this clock: time.monotonic and
perf_counter stop while the machine is suspended, but the lease does not (clock_gettime(2)). A call
takes 60 ns, one of perf_counter 45. Systems without this clock (macOS) use time.monotonic's. If a
host halts a virtual machine without suspending it, no clock of the guest shows that.
"""


_ahead_ms = 0


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def advance_wall_clock(ms: int) -> None:
    """Have `now_ms` be later by this from now on, in this process: a test does not wait for days.

    What has a deadline by a monotonic clock (sessions, leases) is not moved.
    """
    global _ahead_ms
    _ahead_ms += ms


def monotonic_ms() -> int:
    """Milliseconds since an arbitrary time in the past."""
    return time.monotonic_ns() // 1_000_000


class Clock(Protocol):
    """The clocks that a module is given, so that a simulation can have clocks of its own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary time in the past."""
        ...

    def boot_s(self) -> float:
        """Seconds since the machine booted; see `boot_s` of this module."""
        ...


class SystemClock:
    """The clocks of this machine."""

    now_ms = staticmethod(now_ms)
    monotonic_ms = staticmethod(monotonic_ms)
    boot_s = staticmethod(boot_s)


SYSTEM_CLOCK: Final[Clock] = SystemClock()
