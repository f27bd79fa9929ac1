import asyncio
import time

import pytest
from logfleet.node.metrics.loop_lag import PERIOD_S, LoopLag


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
