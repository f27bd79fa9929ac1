"""The wall clock, and one that only goes forward, for durations; some are measured by the loop's own clock."""

import time


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since some time in the past."""
    return time.monotonic_ns() // 1_000_000
