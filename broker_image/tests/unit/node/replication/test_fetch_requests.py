"""What a follower asks for and gets, one partition at a time, without the codec where it can."""

from functools import partial
from typing import Any

import pytest
from logfleet.config.throttle_keys import Side
from logfleet.quotas.replication_quotas import ANSWER, SLICE
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.types import BrokerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import encode_request
from logfleet.wire.messages import ApiVersionsRequest, FetchRequest

from broker_image.tests.unit.controller.running.controller_rig import until
from broker_image.tests.unit.node.replication.test_replica_fetcher import (
    SESSION,
    TOPIC,
    batch,
    fetching,
    leader,  # noqa: F401  a fixture
    me,  # noqa: F401  a fixture
    named,
    row,
)
from broker_image.tests.unit.node.replication.test_throttled_fetcher import throttled

pytestmark = pytest.mark.asyncio


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The requests that the follower's connection encodes by the codec."""
    used: list[type] = []

    def encode(request: Any, *args: Any) -> Any:
        used.append(type(request))
        return encode_request(request, *args)

    monkeypatch.setattr("logfleet.client.connection.encode_request", encode)
    return used


async def test_a_session_that_names_one_partition_needs_no_codec(me, leader, codec):  # noqa: F811
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one, other):
        await leader.asked()
        leader.answer()
        assert named(await leader.asked()) == []
        codec.clear()
        for offset in range(3):
            leader.answer(row(records=batch(offset, b"a"), high_watermark=offset))
            asked = await leader.asked()
            assert named(asked) == [(0, offset + 1)]
        assert codec == []
        assert (one.log.log_end_offset, one.high_watermark, one.lag) == (3, 2, 0)
        whole = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=BrokerEpoch(20)),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=10485760,
            session_id=SESSION,
            session_epoch=4,
            topics=[FetchRequest.FetchTopic(topic_id=TOPIC, partitions=asked.topics[0].partitions)],
        )
        assert asked == whole
        (wanted,) = asked.topics[0].partitions
        assert (wanted.current_leader_epoch, wanted.last_fetched_epoch) == (5, 5)
        assert wanted.partition_max_bytes == 1048576
        leader.answer(row(high_watermark=3), row(1, high_watermark=0))
        assert named(await leader.asked()) == []
        assert codec == [FetchRequest]
        assert one.high_watermark == 3


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND])
async def test_an_answer_of_any_other_shape_is_understood(me, leader, error):  # noqa: F811
    """The request before it named one partition."""
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one, other):
        await leader.asked()
        leader.answer(row(records=batch(0, b"a")))
        assert named(await leader.asked()) == [(0, 1)]
        if error:
            leader.answer(session_id=0, error_code=error)
            asked = await leader.asked()
            assert (asked.session_epoch, dict(named(asked))) == (0, {0: 1, 1: 0})
        else:
            leader.answer(row(records=batch(1, b"b")), row(1, records=batch(0, b"c")))
            assert dict(named(await leader.asked())) == {0: 2, 1: 1}
    assert one.log.log_end_offset == 1 + (error is ErrorCode.NONE)


async def test_a_partition_that_is_refused_alone_pauses(me, leader):  # noqa: F811
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one, other):
        await leader.asked()
        leader.answer(row(records=batch(0, b"a")))
        await leader.asked()
        leader.answer(row(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        asked = await leader.asked()
        assert [topic.partitions for topic in asked.forgotten_topics_data] == [[0]]
        leader.answer()
        await leader.asked_about(0)


def _tried_again(me: Any, attempts: int) -> bool:  # noqa: F811
    return bool(me.attempts > attempts)


async def test_what_is_no_answer_ends_the_connection(me, leader):  # noqa: F811
    one = me.follow(0)
    async with fetching(me, leader, one):
        for reply in (b"\0\0\0\x05\0\0\0\x01\x01", b"\0\0\0\x04\0\0\0\x63"):
            await leader.asked()
            leader.answer(row(records=batch(one.log.log_end_offset, b"a")))
            await leader.asked()
            attempts = me.attempts
            leader.reply(reply)
            await until(partial(_tried_again, me, attempts))
        assert (await leader.asked()).session_epoch == 0


async def test_a_leader_of_an_older_version_is_asked_by_the_codec(me, leader, codec):  # noqa: F811
    def older(request: ApiVersionsRequest) -> Any:
        answer = leader.api_versions(request)
        for each in answer.api_keys:
            each.max_version -= each.api_key == 1
        return answer

    leader.answers[ApiVersionsRequest] = older
    one = me.follow(0)
    async with fetching(me, leader, one):
        await leader.asked()
        leader.answer(row(records=batch(0, b"a")))
        assert named(await leader.asked()) == [(0, 1)]
        assert codec[-2:] == [FetchRequest] * 2


async def test_one_that_is_behind_and_throttled_is_copied_in_slices(me, leader):  # noqa: F811
    one = me.follow(0)
    me.throttle = ReplicationThrottle(me.config, lambda: throttled(f"0:{me.config.node_id}"))
    async with fetching(me, leader, one):
        await leader.asked()
        leader.answer(row(high_watermark=9))
        await leader.asked()
        me.throttle.quotas[Side.FOLLOWER].rate = 1 << 30
        leader.answer(row(records=batch(0, b"x"), high_watermark=9))
        asked = await leader.asked()
        assert named(asked) == [(0, 1)]
        assert (asked.max_bytes, asked.topics[0].partitions[0].partition_max_bytes) == (
            ANSWER,
            SLICE,
        )


async def test_a_throttled_answer_holds_the_next_request(me, leader):  # noqa: F811
    """KIP-219. Our brokers throttle no followers; a leader may be of another kind."""
    one = me.follow(0)
    async with fetching(me, leader, one):
        await leader.asked()
        leader.answer(row(records=batch(0, b"a")))
        await leader.asked()
        leader.answer(throttle_time_ms=1)
        assert named(await leader.asked()) == []
