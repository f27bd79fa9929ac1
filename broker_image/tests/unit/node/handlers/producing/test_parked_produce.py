"""Produce requests that wait for followers, decoded or recognised, however the wait ends."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.net.connection import CloseConnection
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.handlers.producing.produce_rig import (
    Side,
    batch,
    frame,
    row,
)
from broker_image.tests.unit.node.partitions.replicas_rig import A, B, C, fetch, replicated, shrink


async def ask_later(side: Side, sent: bytes) -> "asyncio.Task[Any]":
    """A request that waits: its answer."""
    given, link = side.ask(sent), side.link
    waiting = asyncio.ensure_future(link.wait(given))
    await asyncio.sleep(0)
    return waiting


async def replicate_one(side: Side, partition: LeaderPartition) -> None:
    """A first request, by which the others are recognised."""
    answer = await ask_later(side, frame(9, batch(), timeout_ms=60_000))
    for member in (B, C):
        fetch(partition, member, 1)
    assert row(await answer, 9).error_code == ErrorCode.NONE


@pytest.mark.asyncio
async def test_what_waits_for_followers_need_not_be_decoded_either(sides, monkeypatch) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0, replicas_state=replicated())
    for offset in (0, 1):
        answer = await ask_later(side, frame(9, batch(), timeout_ms=60_000))
        side.refuse_to_decode(monkeypatch)
        assert side.host.parked.produces == 1
        fetch(partition, B, offset + 1)
        assert not answer.done()
        fetch(partition, C, offset + 1)
        told = row(await answer, 9)
        assert (told.error_code, told.base_offset) == (ErrorCode.NONE, offset)
    assert side.host.parked.produces == 0
    stats = side.dispatch.stats["Produce"]
    assert (stats.total.count, stats.remote.count, stats.at_once.count) == (2, 2, 0)


def committed(side: Side, partition: LeaderPartition) -> None:
    fetch(partition, B, 2)
    fetch(partition, C, 2)


def led_elsewhere(side: Side, partition: LeaderPartition) -> None:
    side.host.know_topic("topic", {0: 2})
    side.host.partitions.remove(partition)


def too_few(side: Side, partition: LeaderPartition) -> None:
    """They are fewer before the answer goes out."""
    committed(side, partition)
    shrink(partition, A)


ENDS = [
    (committed, ErrorCode.NONE),
    (led_elsewhere, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (too_few, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "decoded"])
@pytest.mark.parametrize("end, error", ENDS)
async def test_however_a_wait_ends_it_is_answered_once(
    sides, monkeypatch, end, error, *, is_known: bool
) -> None:
    side = sides[0 if is_known else 1]
    partition = side.host.host("topic", 0, replicas_state=replicated())
    await replicate_one(side, partition)
    if is_known:
        side.refuse_to_decode(monkeypatch)
    answer = await ask_later(side, frame(9, batch(), timeout_ms=60_000))
    assert not answer.done()
    end(side, partition)
    assert row(await answer, 9).error_code == error
    assert side.host.parked.produces == 0
    errors = side.dispatch.stats["Produce"].errors
    assert errors == ({} if error is ErrorCode.NONE else {error: 1})
    partition.ack_queue.check()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not side.link.has_answered


@pytest.mark.asyncio
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "decoded"])
async def test_a_partition_that_is_deleted_is_led_no_more(sides, *, is_known: bool) -> None:
    side = sides[0 if is_known else 1]
    partition = side.host.host("topic", 0, replicas_state=replicated())
    await replicate_one(side, partition)
    answer = await ask_later(side, frame(9, batch(), timeout_ms=60_000))
    side.host.partitions.remove(partition)
    assert row(await answer, 9).error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


@pytest.mark.asyncio
async def test_what_followers_do_not_get_in_time_is_counted_as_failed(sides, monkeypatch) -> None:
    side, _ = sides
    side.host.host("topic", 0, replicas_state=replicated())
    for _ in range(2):
        answer = row(await (await ask_later(side, frame(9, batch(), timeout_ms=1))), 9)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        side.refuse_to_decode(monkeypatch)
    errors = side.dispatch.stats["Produce"].errors
    assert errors[ErrorCode.REQUEST_TIMED_OUT] == 2


@pytest.mark.asyncio
async def test_many_requests_to_one_partition_are_answered_as_far_as_it_is_committed(sides) -> None:
    """By connections of their own, as one connection has one request in progress."""
    side, _ = sides
    partition = side.host.host("topic", 0, replicas_state=replicated())
    answers = []
    for _ in range(3):
        side.connect()
        answers.append(await ask_later(side, frame(9, batch(), timeout_ms=60_000)))
    for member in (B, C):
        fetch(partition, member, 2)
    told = [row(await answer, 9) for answer in answers[:2]]
    assert [each.base_offset for each in told] == [0, 1]
    assert not answers[2].done()
    for member in (B, C):
        fetch(partition, member, 3)
    assert row(await answers[2], 9).base_offset == 2


@pytest.mark.asyncio
async def test_a_connection_that_was_closed_meanwhile_is_answered_nothing(sides) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0, replicas_state=replicated())
    await replicate_one(side, partition)
    side.ask(frame(9, batch(), timeout_ms=60_000))
    side.peer.link = None
    committed(side, partition)
    await asyncio.sleep(0)
    assert side.host.parked.produces == 0
    assert not side.link.has_answered


@pytest.mark.asyncio
async def test_an_answer_that_waited_rests_on_the_lease_as_any(sides, monkeypatch) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0, replicas_state=replicated())
    await replicate_one(side, partition)
    side.refuse_to_decode(monkeypatch)
    side.dispatch.lease = SimpleNamespace(deadline_s=0.0)
    answer = await ask_later(side, frame(9, batch(), timeout_ms=60_000))
    for member in (B, C):
        fetch(partition, member, 2)
    with pytest.raises(CloseConnection, match="lease"):
        await answer


def test_the_leaders_own_acknowledgement_comes_at_once(sides, monkeypatch) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0, replicas_state=replicated())
    for offset in range(3):
        answer = row(side.ask(frame(9, batch(), acks=1)), 9)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)
        side.refuse_to_decode(monkeypatch)
    assert partition.high_watermark == 0


@pytest.mark.asyncio
async def test_a_repeated_request_is_refused_while_too_few_are_in_sync(sides) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0, replicas_state=replicated(isr=(A, B)))
    await replicate_one(side, partition)
    shrink(partition, A)
    answer = row(side.ask(frame(9, batch(), timeout_ms=60_000)), 9)
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 1
