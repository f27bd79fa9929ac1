import asyncio

import pytest
from logfleet.controller.running.task_limit import TaskLimit

pytestmark = pytest.mark.asyncio


class Works:
    """Each runs until its event is set."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.may_end = [asyncio.Event() for _ in range(5)]

    async def run(self, number: int, error: Exception | None = None) -> None:
        self.begun.append(number)
        try:
            await self.may_end[number].wait()
            if error is not None:
                raise error
        finally:
            self.ended.append(number)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_are_under_way_and_each_that_ends_makes_room():
    works = Works()

    async def begin() -> None:
        async with TaskLimit(2) as at_once:
            for number in range(4):
                await at_once.start(works.run(number))

    task = asyncio.create_task(begin())
    await settle()
    assert works.begun == [0, 1]
    works.may_end[1].set()
    await settle()
    assert works.begun == [0, 1, 2]
    for event in works.may_end:
        event.set()
    await task
    assert sorted(works.ended) == [0, 1, 2, 3]


async def test_a_failure_stops_no_other_and_is_raised_once_all_have_ended():
    works = Works()

    async def begin() -> None:
        async with TaskLimit(2) as at_once:
            await at_once.start(works.run(0, ValueError("it failed")))
            await at_once.start(works.run(1))
            await at_once.start(works.run(2))

    task = asyncio.create_task(begin())
    await settle()
    works.may_end[0].set()
    await settle()
    assert works.begun == [0, 1, 2]
    assert not task.done()
    works.may_end[1].set()
    works.may_end[2].set()
    with pytest.raises(ValueError, match="it failed"):
        await task
    assert sorted(works.ended) == [0, 1, 2]


@pytest.mark.parametrize("begun", [1, 3])
async def test_cancelled_it_cancels_what_is_under_way(begun: int):
    """While it waits for the end, and while it waits for room."""
    works = Works()

    async def begin() -> None:
        async with TaskLimit(2) as at_once:
            for number in range(begun):
                await at_once.start(works.run(number))

    task = asyncio.create_task(begin())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert works.begun == sorted(works.ended) == list(range(min(begun, 2)))
