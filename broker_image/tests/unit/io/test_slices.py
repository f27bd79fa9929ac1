import asyncio

import pytest
from logfleet.io import slices
from logfleet.io.slices import SLICE_S, Slices

pytestmark = pytest.mark.asyncio


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(slices, "time", clock)
    return clock


async def test_the_loop_has_its_turn_whenever_a_slice_is_over(clock):
    steps_of_others = 0

    async def others() -> None:
        nonlocal steps_of_others
        while True:
            await asyncio.sleep(0)
            steps_of_others += 1

    task = asyncio.ensure_future(others())
    walk = Slices()
    await walk.pause_if_due()
    seen = []
    for _ in range(6):
        clock.now_s += SLICE_S / 2 + 1e-6
        before = steps_of_others
        await walk.pause_if_due()
        seen.append(steps_of_others - before)
    task.cancel()
    assert seen == [0, 1, 0, 1, 0, 1]


async def test_users_that_share_a_slice_begin_it_once(clock):
    walk = Slices()
    await walk.pause_if_due()
    clock.now_s += SLICE_S / 2
    for _ in range(2):  # runs to its end without a turn of the loop
        with pytest.raises(StopIteration):
            walk.pause_if_due().send(None)
    clock.now_s += SLICE_S
    assert walk.pause_if_due().send(None) is None


async def test_a_slice_that_was_begun_needs_no_turn_of_the_loop_first(clock):
    walk = Slices()
    walk.begin()
    with pytest.raises(StopIteration):
        walk.pause_if_due().send(None)
    clock.now_s += SLICE_S
    assert walk.pause_if_due().send(None) is None
