import asyncio

import pytest
from logfleet.net.peer import Peer
from logfleet.node.coordinators.waiter import Waiter, when_all

pytestmark = pytest.mark.asyncio


async def test_a_waiter_takes_the_first_answer():
    waiter = Waiter[str]()
    waiter.answer("first")
    waiter.answer("second")
    assert waiter.result(Peer("L"), "gone") == "first"
    assert await waiter.wait(Peer("L"), "gone") == "first"


async def test_who_leaves_is_not_waited_for():
    peer = Peer("L")
    waiting = asyncio.ensure_future(Waiter[str]().wait(peer, "gone"))
    await asyncio.sleep(0)
    assert peer.on_leave is not None
    peer.on_leave()
    assert await waiting == "gone"
    assert peer.on_leave is None


async def test_who_leaves_is_not_waited_for_by_any_part_of_a_request():
    peer = Peer("L")
    first, second, third = Waiter[str](), Waiter[str](), Waiter[str]()
    second.answer("here")
    done = when_all([first, second, third], ",".join, peer, "gone")
    assert not isinstance(done, str)
    waiting = asyncio.ensure_future(done)
    await asyncio.sleep(0)
    assert peer.on_leave is not None
    peer.on_leave()
    async with asyncio.timeout(5):
        assert await waiting == "gone,here,gone"
    assert peer.on_leave is None
