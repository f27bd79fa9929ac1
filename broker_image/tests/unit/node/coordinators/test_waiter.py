import asyncio

import pytest
from logfleet.net.peer import Peer
from logfleet.node.coordinators.waiter import Waiter

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
