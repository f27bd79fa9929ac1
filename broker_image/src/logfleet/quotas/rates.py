"""The rate of a client, and how long it must be throttled to come down to its quota.

Byte and request rates are measured over the last windows (KIP-13): Kafka's Rate over a SampledStat,
with QuotaUtils.throttleTime. Topic changes are counted by a token bucket instead (KIP-599), which
allows a burst that it makes up for later: Kafka's TokenBucket and ControllerMutationQuotaManager.
Times are milliseconds of a monotonic clock.
"""

import math
from collections import deque
from typing import Final

import msgspec

THROTTLE_MS_MAX: Final = 2**31 - 1
"""The largest value of the `throttle_time_ms` of a response."""


class Windows(msgspec.Struct, frozen=True):
    """Windows of a rate: `count` of `length_ms` each, including the current one.

    Keys: quota.window.num, quota.window.size.seconds.
    """

    count: int = 11
    length_ms: int = 1_000


class _Sample:
    """The sum of one window, which begins with its first event, not at a full second."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.total = 0.0


class RateMeter:
    """The sum over the last windows, per second. recorded_ms: time of the last record."""

    __slots__ = ("_samples", "_windows", "recorded_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        self.recorded_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`; a negative one undoes earlier counts."""
        samples, windows = self._samples, self._windows
        if not samples or now_ms - samples[-1].start_ms >= windows.length_ms:
            if (
                len(samples) > windows.count
            ):  # one more than the windows: the oldest may reach into the span
                samples.popleft()
            samples.append(_Sample(now_ms))
        newest = samples[-1]
        newest.total += value
        newest.last_ms = self.recorded_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """(rate per second, milliseconds it was measured over).

        Windows not reached yet count as empty.
        """
        windows = self._windows
        span_ms = windows.count * windows.length_ms
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= span_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = windows.count - 1 - elapsed_ms // windows.length_ms
        elapsed_ms += max(0, missing) * windows.length_ms
        if not elapsed_ms:  # one window only, and it has just begun
            elapsed_ms = 1
        return sum(sample.total for sample in samples) / (elapsed_ms / 1_000), elapsed_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Milliseconds without records until the rate is down to `quota` (above 0).

        0 if it is not exceeded.

        With rate O over a window W, O * W / (W + X) = quota gives X = (O - quota) / quota * W.
        """
        rate, window_ms = self.measure(now_ms)
        if rate <= quota:
            return 0
        return _rounded((rate - quota) / quota * window_ms)


class TokenBucket:
    """Tokens that arrive at the rate of the quota, at most those of all windows.

    Admits while not below 0.

    recorded_ms: time of the last take.
    """

    __slots__ = ("_filled_ms", "_tokens", "_windows", "recorded_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf  # full, whatever the quota is
        self._filled_ms = 0
        self.recorded_ms = 0

    def take(self, permits: float, quota: float, now_ms: int) -> None:
        """Take tokens, even more than there are."""
        self._tokens = self.tokens(quota, now_ms) - permits
        self.recorded_ms = now_ms

    def tokens(self, quota: float, now_ms: int) -> float:
        """Tokens left now, at `quota` tokens a second; negative if more were taken."""
        burst = self._windows.count * self._windows.length_ms / 1_000 * quota
        came = quota * (now_ms - self._filled_ms) / 1_000
        self._tokens = min(burst, self._tokens + came)
        self._filled_ms = now_ms
        return self._tokens

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Milliseconds until the tokens are back at 0; 0 if they are not below."""
        tokens = self.tokens(quota, now_ms)
        return _rounded(-tokens / quota * 1_000) if tokens < 0 else 0


def _rounded(milliseconds: float) -> int:
    """Rounded as by Java's Math.round, at most the largest value of the response's field."""
    return min(math.floor(min(milliseconds, THROTTLE_MS_MAX) + 0.5), THROTTLE_MS_MAX)
