"""A leader whose machine vanishes: its connection stays open and silent."""

import asyncio

import pytest
from logfleet.client import connection
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ApiVersionsRequest, FetchRequest

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.controller.running.controller_rig import until
from broker_image.tests.unit.node.replication.test_replica_fetcher import (
    LEADER,
    Leader,
    fetching,
    leader,  # noqa: F401  a fixture
    me,  # noqa: F401  a fixture
    named,
    row,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("silent_to", [ApiVersionsRequest, FetchRequest])
async def test_a_leader_that_registered_again_is_connected_to_at_once(
    me,  # noqa: F811
    leader,  # noqa: F811
    silent_to,
    monkeypatch,
):
    """replica.socket.timeout.ms is 30 s. A connection that is still being made is given up, too."""
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_SECONDS", 30.0)
    gone = FakeBroker()
    gone.answers |= {FetchRequest: lambda _: None, silent_to: lambda _: None}
    followed = me.follow()
    me.leader = gone
    async with gone.running(), fetching(me, leader, followed) as fetcher:
        await until(lambda: gone.of(silent_to))
        fetcher.remove(followed)
        me.leader, me.leader_registered = leader, 11
        fetcher.add(FollowerPartition(followed, LEADER, LeaderEpoch(6)))
        asked = await leader.asked()
        assert (named(asked), asked.session_epoch) == ([(0, 0)], 0)
        assert asked.topics[0].partitions[0].current_leader_epoch == 6


async def test_the_connection_stays_while_the_registration_does(me, leader):  # noqa: F811
    """Other partitions come and go; a leader that is not registered just now may be again."""
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one) as fetcher:
        await leader.asked()
        fetcher.add(other)
        registered, me.broker = me.broker, lambda _: None
        fetcher.add(FollowerPartition(one, LEADER, LeaderEpoch(6)))
        me.broker = registered
        leader.answer()
        assert sorted(named(await leader.asked())) == [(0, 0), (1, 0)]
        assert len(leader.of(ApiVersionsRequest)) == 1


async def test_a_leader_that_moved_is_connected_to_at_its_new_address(me, leader):  # noqa: F811
    """As a pod that got another address; the process there may still answer."""
    followed, moved = me.follow(), Leader()
    async with moved.running(), fetching(me, leader, followed) as fetcher:
        await leader.asked()
        me.leader, me.leader_registered = moved, 11
        fetcher.add(FollowerPartition(followed, LEADER, LeaderEpoch(6)))
        async with asyncio.timeout(10):
            assert named(await moved.asked()) == [(0, 0)]


async def test_a_connection_that_breaks_after_all_had_paused_is_made_again(me, leader):  # noqa: F811
    followed = me.follow(0)
    async with fetching(me, leader, followed):
        await leader.asked()
        leader.answer(row(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert named(await leader.asked()) == [(0, 0)]
        leader.reply(leader.CLOSE)
        asked = await leader.asked()
        assert (named(asked), asked.session_epoch) == ([(0, 0)], 0)
