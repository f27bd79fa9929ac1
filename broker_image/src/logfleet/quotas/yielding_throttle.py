"""Checks every second how slow Produce requests are, and lowers the replication rate for them."""

import asyncio
from collections.abc import Sequence
from typing import Final

from logfleet.quotas.adaptive_throttle import REQUESTS_MIN, AdaptiveThrottle
from logfleet.quotas.replication_quotas import ReplicationQuota
from logfleet.telemetry.histogram import Histogram
from logfleet.telemetry.request_stats import RequestStats

PERIOD_S: Final = 1.0
SHARE: Final = 0.99


class YieldingThrottle:
    """Adjusts the quotas' factor. produce: the times of Produce requests so far."""

    def __init__(self, quotas: Sequence[ReplicationQuota], produce: RequestStats) -> None:
        self._quotas = quotas
        self._produce = produce
        self._rule = AdaptiveThrottle()
        self._before = Histogram()
        self._copied = 0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self.adjust()
            await asyncio.sleep(PERIOD_S)

    def adjust(self) -> None:
        """Called once a second: adjust the quotas' factor by the last second's requests."""
        now = self._produce.at_once.plus(self._produce.total)
        new = now.minus(self._before)
        self._before = now
        copied = sum(quota.bytes for quota in self._quotas)
        p99_s = new.quantile(SHARE) if new.count >= REQUESTS_MIN else None
        self._rule.adapt(p99_s, copied=copied > self._copied)
        self._copied = copied
        for quota in self._quotas:
            quota.factor = self._rule.factor
