"""How fast a client goes, and for how long it has to be held to come down to its quota.

Byte and request rates are measured over the last windows (KIP-13): Kafka's Rate over a SampledStat, with QuotaUtils.throttleTime.
Changes of topics are counted by a bucket of tokens instead (KIP-599), which forgives a burst as soon as it is paid for: Kafka's
TokenBucket and ControllerMutationQuotaManager. Times are milliseconds of one clock that never goes back.
"""

import math
from collections import deque
from typing import Final

import msgspec

THROTTLE_MS_MAX: Final = 2**31 - 1
"""What fits into the `throttle_time_ms` of an answer."""


class Windows(msgspec.Struct, frozen=True):
    """Windows of a rate: `count` of `length_ms` each, the present one included (quota.window.num, .size.seconds)."""

    count: int = 11
    length_ms: int = 1_000


class _Sample:
    """What was recorded in one window. It begins with its first event, not at a full second."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.total = 0.0


class RateMeter:
    """Sum of what was recorded in the last windows, per second. recorded_ms: when something was recorded last."""

    __slots__ = ("_samples", "_windows", "recorded_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        self.recorded_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`; a negative one takes back what was counted."""
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
        """(rate per second, ms it was measured over). Windows that are still missing count as ones without events."""
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
        """How long nothing may be recorded until the rate is `quota` (above 0) again; 0 if it is not exceeded.

        With rate O over a window W, O * W / (W + X) = quota gives X = (O - quota) / quota * W.
        """
        rate, window_ms = self.measure(now_ms)
        if rate <= quota:
            return 0
        return _rounded((rate - quota) / quota * window_ms)


class TokenBucket:
    """Tokens that come at the rate of the quota, up to what all windows would allow; below 0 nothing more is admitted.

    recorded_ms: when tokens were taken last.
    """

    __slots__ = ("_filled_ms", "_tokens", "_windows", "recorded_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf  # full, whatever the quota is
        self._filled_ms = 0
        self.recorded_ms = 0

    def take(self, permits: float, quota: float, now_ms: int) -> None:
        """Take tokens, also more than there are."""
        self._tokens = self.tokens(quota, now_ms) - permits
        self.recorded_ms = now_ms

    def tokens(self, quota: float, now_ms: int) -> float:
        """What is left now, at `quota` tokens a second; negative if more was taken."""
        burst = self._windows.count * self._windows.length_ms / 1_000 * quota
        came = quota * (now_ms - self._filled_ms) / 1_000
        self._tokens = min(burst, self._tokens + came)
        self._filled_ms = now_ms
        return self._tokens

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long until the tokens are back at 0; 0 if they are not below."""
        tokens = self.tokens(quota, now_ms)
        return _rounded(-tokens / quota * 1_000) if tokens < 0 else 0


def _rounded(milliseconds: float) -> int:
    """As Java's Math.round, within an answer's field."""
    return min(math.floor(min(milliseconds, THROTTLE_MS_MAX) + 0.5), THROTTLE_MS_MAX)
