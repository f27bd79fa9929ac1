import asyncio
from collections.abc import Awaitable, Callable

import pytest
from logfleet.client.connection import Connection
from logfleet.client.errors import ConnectionLost
from logfleet.client.racing import first_connection

pytestmark = pytest.mark.asyncio


class Answers(Connection):
    def __init__(self) -> None:
        super().__init__("host", 1, "client")
        self.closed = False

    def close(self) -> None:
        self.closed = True


def attempt(
    connection: Connection | None,
    begin: asyncio.Event | None = None,
    asked: asyncio.Event | None = None,
) -> Callable[[], Awaitable[Connection]]:
    async def connect() -> Connection:
        if asked is not None:
            asked.set()
        if begin is not None:
            await begin.wait()
        if connection is None:
            raise ConnectionLost("refused")
        return connection

    return connect


async def test_the_next_one_is_asked_while_the_first_is_silent() -> None:
    never, second = asyncio.Event(), Answers()
    assert await first_connection([attempt(Answers(), never), attempt(second)]) is second


async def test_the_next_one_is_asked_at_once_after_a_failure() -> None:
    second = Answers()
    began = asyncio.get_running_loop().time()
    assert await first_connection([attempt(None), attempt(None), attempt(second)]) is second
    assert asyncio.get_running_loop().time() - began < 0.2


async def test_of_two_that_come_about_together_one_is_closed() -> None:
    go, asked, one, other = asyncio.Event(), asyncio.Event(), Answers(), Answers()
    both = [attempt(one, go), attempt(other, go, asked)]
    racing = asyncio.ensure_future(first_connection(both))
    await asked.wait()
    go.set()
    found = await racing
    await asyncio.sleep(0)  # callbacks of what has ended run
    assert [each for each in (one, other) if not each.closed] == [found]


async def test_if_none_comes_about_all_reasons_are_told() -> None:
    with pytest.raises(ConnectionLost, match="refused; refused"):
        await first_connection([attempt(None), attempt(None)])
    with pytest.raises(ConnectionLost):
        await first_connection([])
