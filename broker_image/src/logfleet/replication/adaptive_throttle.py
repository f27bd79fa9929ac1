"""How far a replication throttle yields to producers: moves of replicas go on, slower, while producers on this broker feel them. PURE.

Additive increase, multiplicative decrease, as TCP has it (RFC 5681): a second in which producers were slow takes a third of the rate away, a good one gives a tenth of the whole
back. What is slow is judged against the seconds before, in which nothing was copied. Kafka's throttle (KIP-73) is a fixed rate that somebody has to guess.
"""

from typing import Final

LEAST: Final = 1 / 8
"""Of the rate that was set: a move always goes on."""
LESS: Final = 2 / 3
MORE: Final = 1 / 10
SLOW: Final = 2.0
"""Times the latency while it was calm."""
SLOW_S: Final = 0.01
"""And so many seconds above it: less is noise."""
REQUESTS_MIN: Final = 20
"""Fewer in a second say nothing."""
CALM_WEIGHT: Final = 0.2


class AdaptiveThrottle:
    """factor: share of the set rate that is in force. calm_s: what producers waited for at the 99th percentile while nothing was copied, None if nobody knows."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.calm_s: float | None = None

    def second(self, p99_s: float | None, *, copied: bool) -> None:
        """What the last second was like. p99_s: of Produce requests, None if there were too few. copied: whether throttled replicas were."""
        if not copied:
            self.factor = 1.0
            if p99_s is not None:
                known = p99_s if self.calm_s is None else self.calm_s
                self.calm_s = known + CALM_WEIGHT * (p99_s - known)
        elif p99_s is not None and self._is_slow(p99_s):
            self.factor = max(LEAST, self.factor * LESS)
        else:
            self.factor = min(1.0, self.factor + MORE)

    def _is_slow(self, p99_s: float) -> bool:
        calm_s = self.calm_s
        return calm_s is not None and p99_s > max(SLOW * calm_s, calm_s + SLOW_S)
