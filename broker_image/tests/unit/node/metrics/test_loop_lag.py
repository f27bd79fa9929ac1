import asyncio
import time

import pytest
from logfleet.node.metrics.loop_lag import PERIOD_S, STALL_S, LoopLag


@pytest.mark.asyncio
async def test_a_step_that_blocks_the_loop_shows_up() -> None:
    lag = LoopLag()
    lag.start()
    time.sleep(PERIOD_S + 0.2)
    while not lag.histogram.count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert lag.worst_s >= 0.2
    assert lag.histogram.total >= 0.2
    lag.stop()
    lag.stop()


@pytest.mark.asyncio
async def test_a_stall_is_reported_and_a_short_lag_is_not() -> None:
    told: list[float] = []
    lag = LoopLag(told.append)
    lag.start()
    for seconds, stalls in ((PERIOD_S, 0), (PERIOD_S + STALL_S, 1)):
        before = lag.histogram.count
        time.sleep(seconds)
        while lag.histogram.count == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(told) == stalls
    assert told[0] > STALL_S
    lag.stop()
