"""A replication throttle that slows moves of replicas down while producers are slow. PURE.

Additive increase, multiplicative decrease, as in TCP (RFC 5681): a second with slow producers cuts
the rate by a third, a good second adds a tenth of the full rate. "Slow" compares with earlier
seconds in which nothing was copied. Kafka's throttle (KIP-73) is a fixed rate that an administrator
must guess.
"""

from typing import Final

LEAST: Final = 1 / 8
"""Share of the configured rate that always remains, so that a move never stops."""
LESS: Final = 2 / 3
"""The rate is multiplied by this after a slow second."""
MORE: Final = 1 / 10
"""Share of the configured rate that a good second adds."""
SLOW: Final = 2.0
"""Producers are slow at this many times their calm latency ..."""
SLOW_S: Final = 0.01
"""... and at least this many seconds above it: less is noise."""
REQUESTS_MIN: Final = 20
"""Produce requests in a second below which their 99th percentile means nothing."""
CALM_WEIGHT: Final = 0.2
"""Weight of the newest second in the moving average of the calm latency."""


class AdaptiveThrottle:
    """factor: share of the configured rate in force.

    calm_s: 99th percentile of Produce latency while nothing was copied, None before the first one.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self.calm_s: float | None = None

    def adapt(self, p99_s: float | None, *, copied: bool) -> None:
        """Adapt to the last second.

        p99_s: of Produce requests, None if there were too few. copied: whether throttled replicas
        were copied in it.
        """
        if not copied:
            self.factor = 1.0
            if p99_s is not None:
                before = p99_s if self.calm_s is None else self.calm_s
                self.calm_s = before + CALM_WEIGHT * (p99_s - before)
        elif p99_s is not None and self._is_slow(p99_s):
            self.factor = max(LEAST, self.factor * LESS)
        else:
            self.factor = min(1.0, self.factor + MORE)

    def _is_slow(self, p99_s: float) -> bool:
        calm_s = self.calm_s
        return calm_s is not None and p99_s > max(SLOW * calm_s, calm_s + SLOW_S)
