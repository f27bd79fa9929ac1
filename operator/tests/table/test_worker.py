"""The worker as it runs in the process, against a World."""

import asyncio
import contextlib

import pytest
from logfleet_operator import worker as worker_module

from .operation import Operation
from .world import World

pytestmark = pytest.mark.asyncio


async def test_a_reading_that_breaks_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "RESYNC_RETRY_S", 0.0)
    world = World()

    def once(number: int) -> None:
        if number == 0:
            raise KeyError("items")

    world.before_call = once
    worker = Operation(world).worker
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(30):
        while not worker.synced:
            assert not running.done()
            await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
