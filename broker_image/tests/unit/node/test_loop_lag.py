import asyncio
import time

import pytest
from logfleet.node.loop_lag import PERIOD_S, LoopLag
from prometheus_client import CollectorRegistry


@pytest.mark.asyncio
async def test_a_step_that_blocks_the_loop_shows_up() -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)
    lag.start()

    def count() -> float:
        return registry.get_sample_value("logfleet_event_loop_lag_seconds_count") or 0.0

    time.sleep(PERIOD_S + 0.2)
    while not count():  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert lag.worst_s >= 0.2
    lag.stop()
    lag.stop()
