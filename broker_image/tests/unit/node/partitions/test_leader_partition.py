import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.config import LogConfig
from logfleet.log.validation import Appended, Prepared, prepare
from logfleet.node.partitions.leader_partition import LeaderPartition, NotLeading
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.replication.ends import UNCOUNTED_BYTES
from logfleet.replication.waiters import COMMITTED, LOG_START, WRITTEN
from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.partitions.replicas_rig import (
    A,
    B,
    C,
    Told,
    fetch,
    replicated,
    shrink,
)

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


@pytest.fixture
def partition(rig) -> LeaderPartition:
    return LeaderPartition("topic", TOPIC_ID, 0, rig.open(), LeaderEpoch(3))


def batch(*values: bytes, producer=None) -> bytearray:
    return build_batch([Record(None, value, NOW) for value in values], producer=producer)


def test_what_is_appended_is_committed(partition) -> None:
    assert partition.high_watermark == 0
    assert partition.append(batch(b"a", b"b"), NOW) == Appended(0, 1, -1)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
    asyncio.run(partition.wait_committed(2))


def test_waiters_are_notified_of_what_is_new_only(partition) -> None:
    told = Told()
    partition.add_waiter(told, COMMITTED | LOG_START)
    first = batch(b"a", producer=ProducerStamp(1, 0, 0))
    again = bytearray(first)
    partition.append(first, NOW)
    partition.append(again, NOW)
    assert isinstance(partition.append(bytearray(10), NOW), BatchRefusal)
    prepared = prepare(batch(b"b"), partition.log.config, NOW, partition.log.partition)
    assert isinstance(prepared, Prepared)
    partition.append(prepared, NOW)
    assert told.sizes == [len(first), len(prepared.buffer)]
    partition.remove_waiter(told)
    partition.append(batch(b"c"), NOW)
    assert len(told.sizes) == 2


def test_what_is_committed_stays_so_when_less_of_it_is_on_disk(partition) -> None:
    """A flush that began before the last append reports the lower end at which it began."""
    partition.append(batch(b"a"), NOW)
    partition.append(batch(b"b"), NOW)
    partition.ends.flushed(1)
    assert partition.high_watermark == 2


def test_the_end_of_leadership_notifies_waiters_and_ends_everything(partition) -> None:
    told = Told()
    partition.add_waiter(told, COMMITTED | LOG_START)
    partition.end()
    assert told.lost == 1
    with pytest.raises(NotLeading):
        asyncio.run(partition.wait_committed(0))
    with pytest.raises(AssertionError, match="led elsewhere"):
        partition.append(batch(b"a"), NOW)


def test_waiters_learn_that_old_records_went(partition) -> None:
    told = Told()
    partition.append(batch(b"a", b"b"), NOW)
    partition.add_waiter(told, COMMITTED | LOG_START)
    for offset in (1, 1, 2):
        partition.log.delete_records_before(offset)
    assert told.starts == 2


def test_internal_topics_are_known(rig) -> None:
    for topic, is_internal in (("__consumer_offsets", True), ("topic", False)):
        partition = LeaderPartition(topic, TOPIC_ID, 0, rig.open(), LeaderEpoch(0))
        assert partition.is_internal == is_internal


def test_committed_records_are_deleted_up_to_an_offset(partition) -> None:
    for value in (b"a", b"b", b"c"):
        partition.append(batch(value), NOW)
    assert partition.delete_records(1) == 1
    assert partition.delete_records(0) == 1
    assert partition.delete_records(4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.log.read(0, 100) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-1) == 3
    assert partition.log.log_start_offset == 3


def test_records_of_a_compacted_topic_are_not_deleted(partition) -> None:
    partition.append(batch(b"a"), NOW)
    for policy, refused in (({"compact"}, True), ({"compact", "delete"}, False)):
        partition.log.config = LogConfig(cleanup_policy=frozenset(policy))
        assert (partition.delete_records(1) is ErrorCode.POLICY_VIOLATION) == refused


# With followers


def followed(rig, *, rule=None, **changes: Any) -> LeaderPartition:
    """Three replicas, all in sync; min.insync.replicas is 2."""
    return LeaderPartition(
        "topic",
        TOPIC_ID,
        0,
        rig.open(),
        LeaderEpoch(5),
        rule=rule,
        replicas_state=replicated(**changes),
    )


def test_a_record_is_committed_once_all_in_sync_replicas_have_it(rig) -> None:
    partition, told = followed(rig), Told()
    partition.add_waiter(told, COMMITTED | LOG_START)
    records = batch(b"a", b"b")
    partition.append(records, NOW)
    fetch(partition, B, 2)
    assert (partition.high_watermark, told.sizes) == (0, [])
    fetch(partition, C, 1)
    assert (partition.high_watermark, told.sizes) == (1, [])
    fetch(partition, C, 2)
    assert (partition.high_watermark, told.sizes) == (2, [len(records)])


def test_followers_are_notified_of_what_is_written_and_consumers_of_what_is_committed(rig) -> None:
    partition, follower, consumer = followed(rig), Told(), Told()
    partition.add_waiter(follower, WRITTEN | LOG_START)
    partition.add_waiter(consumer, COMMITTED | LOG_START)
    partition.append(batch(b"a"), NOW)
    assert (len(follower.writes), follower.sizes, consumer.sizes) == (1, [], [])
    for member in (B, C):
        fetch(partition, member, 1)
    assert (follower.sizes, consumer.writes, len(consumer.sizes)) == ([], [], 1)
    partition.remove_waiter(follower)
    partition.append(batch(b"b"), NOW)
    assert len(follower.writes) == 1


def test_a_waiter_for_both_is_notified_once_of_the_end(rig) -> None:
    partition, both = followed(rig), Told()
    partition.add_waiter(both, COMMITTED | LOG_START)
    partition.add_waiter(both, WRITTEN | LOG_START)
    partition.append(batch(b"a"), NOW)
    for member in (B, C):
        fetch(partition, member, 1)
    partition.log.delete_records_before(1)
    partition.end()
    assert (both.starts, both.lost) == (1, 1)


def test_a_leader_alone_in_sync_commits_at_once_if_that_is_enough(rig) -> None:
    partition = followed(rig, isr=(A,), min_isr=1)
    partition.append(batch(b"a"), NOW)
    assert partition.high_watermark == 1


def test_nothing_is_committed_while_too_few_are_in_sync(rig) -> None:
    """KIP-966."""
    partition = followed(rig, isr=(A, B))
    partition.append(batch(b"a"), NOW)
    shrink(partition, A)
    fetch(partition, B, 1)
    assert (partition.is_at_min_isr, partition.high_watermark) == (False, 0)
    assert partition.is_acked(1, 1)
    shrink(partition, A, B)
    assert (partition.is_at_min_isr, partition.high_watermark) == (True, 1)


def test_what_waited_for_a_member_that_left_the_isr_is_committed_then(rig) -> None:
    partition, told = followed(rig), Told()
    partition.add_waiter(told, COMMITTED | LOG_START)
    partition.append(batch(b"a"), NOW)
    fetch(partition, B, 1)
    shrink(partition, A, B)
    assert (partition.high_watermark, len(told.sizes)) == (1, 1)


def test_who_is_about_to_join_the_isr_counts_until_the_definite_answer(rig) -> None:
    """KIP-497: it may be in the stored ISR already."""
    partition = followed(rig, isr=(A, B))
    fetch(partition, C, 0)
    change = partition.isr_change(0, lambda *_: True)
    assert change is not None
    assert change.added == (C,)
    partition.append(batch(b"a"), NOW)
    fetch(partition, B, 1)
    assert partition.high_watermark == 0
    assert partition.isr_lost(partition.replicas_state.state, 7)
    assert partition.high_watermark == 1


def test_who_has_joined_the_isr_counts(rig) -> None:
    partition = followed(rig, isr=(A, B))
    fetch(partition, C, 0)
    assert partition.isr_change(0, lambda *_: True) is not None
    partition.isr_won(8)
    partition.append(batch(b"a"), NOW)
    fetch(partition, B, 1)
    assert partition.high_watermark == 0


def test_an_older_life_of_a_follower_moves_nothing(rig) -> None:
    partition = followed(rig)
    partition.append(batch(b"a"), NOW)
    fetch(partition, B, 1)
    assert fetch(partition, (3, BrokerEpoch(29)), 1) is ErrorCode.STALE_BROKER_EPOCH
    assert fetch(partition, (4, BrokerEpoch(40)), 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.high_watermark == 0


def test_a_retried_batch_is_acknowledged_when_the_first_one_is(rig) -> None:
    partition = followed(rig)
    first = batch(b"a", producer=ProducerStamp(1, 0, 0))
    again = bytearray(first)
    partition.append(first, NOW)
    result = partition.append(again, NOW)
    assert isinstance(result, Appended)
    assert (result.duplicate, partition.is_acked(result.last_offset + 1, -1)) == (True, False)
    for member in (B, C):
        fetch(partition, member, 1)
    assert partition.is_acked(result.last_offset + 1, -1)


class Hold:
    """flush.messages: what is appended waits for the disk."""

    def appended(self, _partition: LeaderPartition) -> None:
        pass

    def flush(self, _: LeaderPartition) -> bool:
        return True


def test_what_followers_have_is_not_committed_before_it_is_on_the_leaders_disk_as_the_topic_wants(
    rig,
) -> None:
    partition, follower = followed(rig, rule=Hold()), Told()
    partition.log.config = LogConfig(flush_messages=1)
    partition.add_waiter(follower, WRITTEN | LOG_START)
    partition.append(batch(b"a"), NOW)
    assert len(follower.writes) == 1
    for member in (B, C):
        fetch(partition, member, 1)
    assert (partition.high_watermark, partition.is_acked(1, 1)) == (0, False)
    partition.ends.flushed(1)
    assert (partition.high_watermark, partition.is_acked(1, 1)) == (1, True)


class SlowDisk:
    """written: what it calls, in order, as it takes what it was given."""

    is_held_up = True

    def __init__(self) -> None:
        self.written: list[Callable[[], None]] = []

    def require_room(self) -> None:
        pass

    def when_written(self, call: Callable[[], None]) -> None:
        self.written.append(call)


@pytest.mark.parametrize("leads_still", [True, False])
def test_followers_are_notified_of_what_a_slow_disk_has_taken(rig, *, leads_still: bool) -> None:
    partition, follower = followed(rig), Told()
    disk: Any = SlowDisk()
    partition.add_waiter(follower, WRITTEN | LOG_START)
    partition.log.disk = disk
    partition.append(batch(b"a"), NOW)
    for member in (B, C):
        fetch(partition, member, 1)
    assert (follower.writes, partition.high_watermark, partition.is_acked(1, 1)) == ([], 0, False)
    if not leads_still:
        partition.end()
    for call in disk.written:
        call()
    assert (len(follower.writes), partition.high_watermark) == (leads_still, leads_still)


def test_the_first_follower_of_a_partition_changes_nothing_of_what_is_committed(rig) -> None:
    partition = followed(rig, replicas=(1,), isr=(A,), min_isr=1)
    partition.append(batch(b"a"), NOW)
    assert (partition.has_followers, partition.high_watermark) == (False, 1)
    state = partition.replicas_state.state
    partition.learned(state.changed(replicas=(1, 2), adding=(2,)), 8)
    assert (partition.has_followers, partition.high_watermark) == (True, 1)
    partition.append(batch(b"b"), NOW)
    assert partition.high_watermark == 2


def test_a_leader_of_another_epoch_has_nothing_to_learn(rig) -> None:
    partition = followed(rig)
    state = partition.replicas_state.state
    assert not partition.learned(state.changed(leader=2, leader_epoch=6), 8)


def test_a_new_leader_knows_that_more_may_have_been_committed(rig) -> None:
    log = rig.open()
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0, NOW)
    log.ends.hosted(1)
    partition = LeaderPartition(
        "topic", TOPIC_ID, 0, log, LeaderEpoch(5), replicas_state=replicated(3)
    )
    assert (partition.high_watermark, partition.is_high_watermark_behind) == (1, True)
    for member in (B, C):
        fetch(partition, member, 3)
    assert (partition.high_watermark, partition.is_high_watermark_behind) == (3, False)


def test_consumers_are_notified_when_records_of_an_earlier_leader_turn_out_to_be_committed(
    rig,
) -> None:
    """They wait for them at the high watermark, and maybe nothing is appended for long."""
    log, told = rig.open(), Told()
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0, NOW)
    log.ends.hosted(1)
    partition = LeaderPartition(
        "topic", TOPIC_ID, 0, log, LeaderEpoch(5), replicas_state=replicated(3)
    )
    partition.add_waiter(told, COMMITTED | LOG_START)
    for offset in (2, 3, 3):
        for member in (B, C):
            fetch(partition, member, offset)
    assert told.sizes == [UNCOUNTED_BYTES] * 2


def test_a_cancelled_wait_is_not_notified(rig) -> None:
    async def main() -> None:
        partition = followed(rig)
        partition.append(batch(b"a"), NOW)
        waiting = asyncio.ensure_future(partition.wait_committed(1))
        await asyncio.sleep(0)
        waiting.cancel()
        partition.end()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_deleted_records_are_gone_when_no_live_replica_has_them(rig) -> None:
    async def main() -> None:
        partition, alive = followed(rig), {2, 3}
        partition.append(batch(b"a", b"b"), NOW)
        for member in (B, C):
            fetch(partition, member, 2)
        assert partition.delete_records(1) == 1
        deleted = asyncio.ensure_future(partition.wait_deleted(1, alive.__contains__))
        fetch(partition, B, 2, start=1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (deleted.done(), partition.low_watermark(alive.__contains__)) == (False, 0)
        alive.remove(3)
        fetch(partition, B, 2, start=1)
        await deleted
        assert partition.low_watermark(alive.__contains__) == 1
        alive.add(3)
        partition.end()
        with pytest.raises(NotLeading):
            await partition.wait_deleted(1, alive.__contains__)

    asyncio.run(main())
