import asyncio
from functools import partial
from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.node.partitions.ack_queue import AwaitedAck
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.partitions.replicas_rig import A, B, C, fetch, replicated, shrink

pytestmark = pytest.mark.asyncio
NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
LONG_S = 60.0
SHORT_S = 0.001


class Held:
    """flush.messages with a slow disk: what is appended waits for `LeaderPartition.commit`."""

    def appended(self, _partition: LeaderPartition) -> None:
        pass

    def flush(self, _: LeaderPartition) -> bool:
        return True


@pytest.fixture
def partition(rig: Any) -> LeaderPartition:
    """Three replicas, min.insync.replicas is 2, and two batches that no follower has."""
    made = LeaderPartition(
        "topic", TOPIC_ID, 0, rig.open(), LeaderEpoch(5), replicas_state=replicated()
    )
    append(made)
    append(made)
    return made


def append(partition: LeaderPartition) -> None:
    partition.append(build_batch([Record(None, b"v", NOW)]), NOW)


def add(
    partition: LeaderPartition, end_offset: int, *, acks: int = -1, timeout_s: float | None = LONG_S
) -> "asyncio.Future[ErrorCode]":
    wait = AwaitedAck(end_offset, acks, timeout_s)
    partition.ack_queue.add(wait)
    return wait.outcome


def replicate(partition: LeaderPartition, offset: int) -> None:
    for member in (B, C):
        fetch(partition, member, offset)


def _note(order: list[int], end_offset: int, _: object) -> None:
    order.append(end_offset)


async def step() -> None:
    """What was decided in this step of the loop has been reported."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_nothing_is_acknowledged_before_the_high_watermark_has_passed_it(
    partition: LeaderPartition,
) -> None:
    first, second = add(partition, 1), add(partition, 2)
    fetch(partition, B, 2)
    fetch(partition, C, 1)
    assert not first.done(), "it is told in a later step"
    await step()
    assert (first.result(), second.done()) == (ErrorCode.NONE, False)
    fetch(partition, C, 2)
    assert await second is ErrorCode.NONE
    assert partition.ack_queue.count == 0


async def test_waits_end_in_the_order_of_the_log_in_whatever_order_they_came(
    partition: LeaderPartition,
) -> None:
    order: list[int] = []
    for end_offset in (2, 1, 2):
        add(partition, end_offset).add_done_callback(partial(_note, order, end_offset))
    replicate(partition, 2)
    await step()
    await step()
    assert order == [1, 2, 2]


async def test_what_is_committed_already_is_acknowledged_in_a_later_step(
    partition: LeaderPartition,
) -> None:
    replicate(partition, 2)
    outcome = add(partition, 2)
    assert not outcome.done()
    await step()
    assert outcome.result() is ErrorCode.NONE


async def test_each_wait_has_a_time_limit_of_its_own_and_one_may_have_none(
    partition: LeaderPartition,
) -> None:
    fetch(partition, B, 2)
    without, long = add(partition, 1, timeout_s=None), add(partition, 1)
    short, later = add(partition, 2, timeout_s=SHORT_S), add(partition, 2, timeout_s=3 * SHORT_S)
    assert await short is ErrorCode.REQUEST_TIMED_OUT
    assert await later is ErrorCode.REQUEST_TIMED_OUT
    assert not long.done()
    assert not without.done()
    fetch(partition, C, 2)
    assert await long is ErrorCode.NONE
    assert await without is ErrorCode.NONE


async def test_what_is_committed_just_after_its_time_is_acknowledged(
    partition: LeaderPartition,
) -> None:
    """The records are safe, whatever the clock says."""
    outcome = add(partition, 2, timeout_s=0)
    partition.ack_queue._time_out(asyncio.get_running_loop().time() + 1)
    replicate(partition, 2)
    assert await outcome is ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, -1])
async def test_the_brokers_own_part_is_waited_for_as_long_as_it_takes(rig: Any, acks: int) -> None:
    """As within Kafka's append: nothing has failed, and a retry would not be faster."""
    partition = LeaderPartition(
        "topic", TOPIC_ID, 0, rig.open(), LeaderEpoch(5), rule=Held(), replicas_state=replicated()
    )
    partition.log.config = LogConfig(flush_messages=1)
    append(partition)
    outcome = add(partition, 1, acks=acks, timeout_s=0)
    replicate(partition, 1)
    await asyncio.sleep(2 * SHORT_S)
    assert not outcome.done()
    partition.ends.flushed(1)
    assert await outcome is ErrorCode.NONE


async def test_the_followers_time_begins_when_the_brokers_own_part_done(rig: Any) -> None:
    partition = LeaderPartition(
        "topic", TOPIC_ID, 0, rig.open(), LeaderEpoch(5), rule=Held(), replicas_state=replicated()
    )
    partition.log.config = LogConfig(flush_messages=1)
    append(partition)
    append(partition)
    outcome = add(partition, 1, timeout_s=SHORT_S)
    own, next_own = (add(partition, offset, acks=1, timeout_s=SHORT_S) for offset in (1, 2))
    partition.ends.flushed(1)
    assert await own is ErrorCode.NONE
    assert await outcome is ErrorCode.REQUEST_TIMED_OUT
    assert not next_own.done()


async def test_fewer_in_sync_than_min_isr_when_the_answer_is_due_are_an_error(
    partition: LeaderPartition,
) -> None:
    every, own = add(partition, 1), add(partition, 3, acks=1)
    fetch(partition, B, 1)
    shrink(partition, A, B)
    shrink(partition, A)
    append(partition)
    assert await every is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert await own is ErrorCode.NONE


async def test_while_too_few_are_in_sync_nothing_is_acknowledged(
    partition: LeaderPartition,
) -> None:
    """The high watermark stands still then (KIP-966)."""
    shrink(partition, A)
    outcome = add(partition, 1, timeout_s=SHORT_S)
    replicate(partition, 2)
    assert await outcome is ErrorCode.REQUEST_TIMED_OUT


async def test_the_end_of_leadership_ends_all_waits(partition: LeaderPartition) -> None:
    waits = [add(partition, 1), add(partition, 2, timeout_s=None)]
    partition.end()
    assert [await each for each in waits] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert await add(partition, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.ack_queue.count == 0


async def test_what_the_broker_held_back_when_leadership_ended_is_not_acknowledged(
    rig: Any,
) -> None:
    partition = LeaderPartition(
        "topic", TOPIC_ID, 0, rig.open(), LeaderEpoch(5), rule=Held(), replicas_state=replicated()
    )
    partition.log.config = LogConfig(flush_messages=1)
    append(partition)
    waits = [add(partition, 1, acks=acks) for acks in (1, -1)]
    partition.end()
    assert [await each for each in waits] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


async def test_what_was_committed_before_leadership_ended_is_acknowledged(
    partition: LeaderPartition,
) -> None:
    outcome = add(partition, 1)
    replicate(partition, 1)
    partition.end()
    assert await outcome is ErrorCode.NONE


async def test_a_cancelled_wait_is_left_alone(partition: LeaderPartition) -> None:
    outcome = add(partition, 1)
    outcome.cancel()
    replicate(partition, 1)
    await step()
    assert outcome.cancelled()
    assert partition.ack_queue.count == 0


async def test_what_an_answer_leads_to_may_append_and_wait_again(
    partition: LeaderPartition,
) -> None:
    """An answer lets a connection's next request in, within the same step."""

    class Again(AwaitedAck):
        def ended(self, error: ErrorCode) -> None:
            append(partition)
            self.next = add(partition, 3)
            super().ended(error)

    first, other = Again(1, -1, LONG_S), add(partition, 2)
    partition.ack_queue.add(first)
    replicate(partition, 2)
    assert [await first.outcome, await other] == [ErrorCode.NONE] * 2
    await step()
    assert not first.next.done()
    replicate(partition, 3)
    assert await first.next is ErrorCode.NONE
