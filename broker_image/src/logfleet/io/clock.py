"""The wall clock; durations are measured by time.monotonic and the loop's own clock."""

import time


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
