import asyncio
import errno
import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from logfleet.coordinators.partition import partition_for
from logfleet.groups.offsets import ZERO_UUID
from logfleet.groups.records import OFFSETS_TOPIC, OffsetRecord
from logfleet.groups.registry import record_types
from logfleet.io import slices
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.metadata.image_builder import Changes
from logfleet.node.coordinators import internal_topic, runtime
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue
from logfleet.wire.refusal import Refusal

from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition
from broker_image.tests.unit.node.groups.coordinator_rig import Rig, shard_of
from broker_image.tests.unit.node.groups.groups_rig import (
    OFFSETS_ID,
    commit,
    committed,
    fetch,
    image_of,
    join,
    mark,
    open_log,
    stage,
    sync,
)

RECORDS = record_types()

pytestmark = pytest.mark.asyncio

T_ID = b"id of topic t..."
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


async def test_what_one_coordinator_stored_the_next_one_knows(tmp_path, until):
    rig = Rig(group_initial_rebalance_delay_ms="0")
    async with rig.running():
        partition = LaggingPartition(open_log(str(tmp_path)))
        rig.loop.led(partition)
        assert rig.shard() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert committed(commit(shard_of(rig), 5)) is ErrorCode.NONE
        joining = join(shard_of(rig), "a")
        await until(lambda: joining.response is not None)
        assert sync(shard_of(rig), "a").response is not None
        rig.loop.lost(partition)
        assert rig.shard() is ErrorCode.NOT_COORDINATOR

        rig.loop.led(LaggingPartition(open_log(str(tmp_path))))
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert fetch(shard_of(rig)) == 5
        assert shard_of(rig).coordinator.describe("g", 6).group_state == "Stable"


async def test_other_topics_are_no_business_of_it(tmp_path):
    rig = Rig()
    partition = LeaderPartition("t", T_ID, 0, open_log(str(tmp_path)), LeaderEpoch(0))
    rig.loop.led(partition)
    rig.loop.lost(partition)
    assert list(rig.loop.shards()) == []


async def test_losing_an_older_leadership_changes_nothing(tmp_path):
    rig = Rig()
    older, newer = (LaggingPartition(open_log(str(tmp_path))) for _ in range(2))
    rig.loop.led(older)
    rig.loop.lost(older)
    rig.loop.led(newer)
    rig.loop.lost(older)
    assert [shard.partition for shard in rig.loop.shards()] == [newer]


async def test_a_partition_lost_while_it_is_read_is_not_loaded(tmp_path, until):
    partition = LaggingPartition(open_log(str(tmp_path)))
    first = Rig()
    async with first.running():
        first.loop.led(partition)
        await until(lambda: isinstance(first.shard(), GroupShard))
        commit(shard_of(first), 5)
    rig = Rig()
    rig.reads = [asyncio.Event()]
    async with rig.running():
        rig.loop.led(partition)
        (shard,) = rig.loop.shards()
        await asyncio.sleep(0)
        rig.loop.lost(partition)
        rig.loop.led(partition)
        rig.reads[0].set()
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert not shard.is_loaded
        assert fetch(shard_of(rig)) == 5


async def test_a_log_that_cannot_be_read_takes_its_disk_out_of_service(tmp_path, until):
    rig = Rig()
    partition = LaggingPartition(open_log(str(tmp_path)))
    partition.append(build_batch([Record(b"\0\2\0\1g", None, 0)]), 0)
    failure = OSError("bad sector")

    async def fail(_: Callable[[], bytes]) -> bytes:
        raise failure

    rig.loop._run_in_thread = fail
    async with rig.running():
        rig.loop.led(partition)
        await until(lambda: rig.failures)
    assert rig.failures == [(partition, failure)]


async def test_a_log_that_makes_no_sense_gets_no_coordinator(tmp_path, until):
    rig = Rig()
    partition = LaggingPartition(open_log(str(tmp_path)))
    partition.append(build_batch([Record(b"\0\2\0\x09g", None, 0)]), 0)
    async with rig.running():
        rig.loop.led(partition)
        await until(lambda: rig.shard() is ErrorCode.NOT_COORDINATOR)


async def test_what_it_does_not_know_is_left_alone(tmp_path, until):
    rig = Rig()
    partition = LaggingPartition(open_log(str(tmp_path)))
    partition.append(build_batch([Record(b"\0\3\0\1g", b"\0\0", 0), Record(None, b"", 0)]), 0)
    async with rig.running():
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert fetch(shard_of(rig)) == -1


@pytest.mark.parametrize(
    "markers, offset, is_staged", [([], -1, True), ([COMMIT], 5, False), ([ABORT], -1, False)]
)
async def test_a_log_that_kafka_wrote_reports_what_transactions_committed(
    tmp_path, until, markers, offset, is_staged
):
    open_log(str(tmp_path))  # its directory
    transactional = ProducerStamp(7, 0, 0, transactional=True)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    encoded = RECORDS.encode(OffsetRecord(key, OffsetCommitValue(offset=5, metadata="")))
    batches = build_batch([Record(*encoded, 0)], producer=transactional)
    for number, marker in enumerate(markers, start=1):
        records, stamp = [Record(marker, b"\0\0\0\0\0\0", 0)], ProducerStamp(7, 0, -1, True)
        batches += build_batch(records, base_offset=number, producer=stamp, control=True)
    (tmp_path / f"{OFFSETS_TOPIC}-0" / f"{0:020d}.log").write_bytes(batches)
    rig, partition = Rig(), LaggingPartition(open_log(str(tmp_path)))
    assert partition.high_watermark == 1 + len(markers)
    async with rig.running():
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        shard = shard_of(rig)
        assert fetch(shard) == offset
        assert shard.coordinator._table.staged.is_staged("g", "t", 0) == is_staged


async def test_the_next_coordinator_has_what_is_staged_and_takes_the_marker(tmp_path, until):
    rig = Rig()
    async with rig.running():
        partition = LaggingPartition(open_log(str(tmp_path)))
        rig.loop.led(partition)
        assert not rig.coordinators.takes_markers(partition), "it is not loaded"
        await until(lambda: rig.coordinators.takes_markers(partition))
        assert committed(stage(shard_of(rig), 5)) is ErrorCode.NONE
        rig.loop.lost(partition)
        newer = LaggingPartition(open_log(str(tmp_path)))
        rig.loop.led(newer)
        await until(lambda: rig.coordinators.takes_markers(newer))
        assert not rig.coordinators.takes_markers(partition)
        assert not rig.coordinators.end_transactions(partition, [mark(newer)])
        assert fetch(shard_of(rig)) == -1
        assert rig.coordinators.end_transactions(newer, [mark(newer, producer_id=8), mark(newer)])
        assert fetch(shard_of(rig)) == 5


async def test_loading_lets_the_loop_do_other_things(tmp_path, until, monkeypatch):
    monkeypatch.setattr(slices, "SLICE_S", 0)
    partition = LaggingPartition(open_log(str(tmp_path)))
    for number in range(50):
        partition.append(build_batch([Record(b"\0\2\0\1%d" % (number % 10), None, 0)]), 0)
    rig = Rig()
    turns = 0
    async with rig.running():
        rig.loop.led(partition)
        while not isinstance(rig.shard(), GroupShard):
            turns += 1
            await asyncio.sleep(0)
    assert turns >= 50


async def test_many_small_batches_are_loaded_in_short_steps_too(tmp_path, monkeypatch):
    partition = LaggingPartition(open_log(str(tmp_path)))
    for number in range(50):
        partition.append(build_batch([Record(b"\0\2\0\1%d" % (number % 10), None, 0)]), 0)
    clock = itertools.count(step=slices.SLICE_S / 3)  # each look takes a part of a slice
    monkeypatch.setattr(slices, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    rig = Rig()
    steps = 0
    async with rig.running():
        rig.loop.led(partition)
        while not isinstance(rig.shard(), GroupShard):
            assert rig.shard() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            steps += 1
            await asyncio.sleep(0)
    assert steps >= 2 * 50 / 4, "a step has no more than four looks at the clock"


@pytest.mark.parametrize("sizes", [[50], [1] * 50], ids=["one batch", "many batches"])
async def test_a_partition_lost_between_two_steps_is_read_no_further(
    tmp_path, until, monkeypatch, sizes
):
    monkeypatch.setattr(slices, "SLICE_S", 0)
    partition = LaggingPartition(open_log(str(tmp_path)))
    value = OffsetCommitValue(offset=5, metadata="")
    keys = (OffsetCommitKey(group=f"g{n}", topic="t", partition=0) for n in range(50))
    for size in sizes:
        records = (
            Record(*RECORDS.encode(OffsetRecord(key, value)), 0)
            for key in itertools.islice(keys, size)
        )
        partition.append(build_batch(list(records)), 0)
    rig = Rig()
    async with rig.running():
        rig.loop.led(partition)
        (shard,) = rig.loop.shards()
        await until(shard.coordinator.groups)
        rig.loop.lost(partition)
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert shard.coordinator.groups() == []
        assert not shard.is_loaded
        assert len(shard_of(rig).coordinator.groups()) == 50


async def test_offsets_go_with_their_topic(tmp_path, until):
    rig = Rig()
    everything = image_of((OFFSETS_TOPIC, OFFSETS_ID, 1), ("t", T_ID, 1))
    async with rig.running():
        rig.subscription.publish(everything, Changes(everything=True))
        rig.loop.led(LaggingPartition(open_log(str(tmp_path))))
        await until(lambda: isinstance(rig.shard(), GroupShard))
        commit(shard_of(rig), 5)
        rig.subscription.publish(
            image_of((OFFSETS_TOPIC, OFFSETS_ID, 1), revision=2), Changes(topics={T_ID})
        )
        await until(lambda: fetch(shard_of(rig)) == -1)


NEW_ID = b"id of new t....."


def committed_for(partition: LeaderPartition, *topics: tuple[str, bytes]) -> None:
    """Offsets in the log that an earlier coordinator has taken, one of each topic."""
    for topic, topic_id in topics:
        key = OffsetCommitKey(group="g", topic=topic, partition=0)
        value = OffsetCommitValue(offset=5, metadata="", topic_id=topic_id)
        partition.append(build_batch([Record(*RECORDS.encode(OffsetRecord(key, value)), 0)]), 0)


def left(rig: Rig) -> list[str]:
    return [topic for _, topic, _, _ in shard_of(rig).coordinator.committed_offsets()]


async def test_offsets_of_topics_deleted_while_nobody_coordinated_go_after_loading(tmp_path, until):
    partition = LaggingPartition(open_log(str(tmp_path)))
    committed_for(partition, ("t", T_ID), ("gone", b"g" * 16), ("stays", b"s" * 16))
    committed_for(partition, ("gone from kafka", ZERO_UUID), ("from kafka", ZERO_UUID))
    rig = Rig()
    topics = [("t", NEW_ID, 1), ("stays", b"s" * 16, 1), ("from kafka", b"k" * 16, 1)]
    async with rig.running():
        rig.subscription.publish(
            image_of((OFFSETS_TOPIC, OFFSETS_ID, 1), *topics), Changes(everything=True)
        )
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert left(rig) == ["stays", "from kafka"]
        end_offset = partition.log.log_end_offset
        rig.loop.lost(partition)
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert left(rig) == ["stays", "from kafka"]
        assert partition.log.log_end_offset == end_offset, "tombstones are in the log"


@pytest.mark.parametrize("leader_epoch", [None, 0], ids=["no image yet", "an older image"])
async def test_nothing_goes_by_an_image_older_than_the_leadership(tmp_path, until, leader_epoch):
    partition = LaggingPartition(open_log(str(tmp_path)))
    committed_for(partition, ("t", T_ID))
    partition.leader_epoch = LeaderEpoch(1)
    rig = Rig()
    if leader_epoch is not None:
        older = image_of((OFFSETS_TOPIC, OFFSETS_ID, 1))
        rig.subscription.publish(older, Changes(everything=True))
    async with rig.running():
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert left(rig) == ["t"]


async def test_a_topic_that_only_changed_keeps_its_offsets(tmp_path, until):
    rig = Rig()
    topics = [(OFFSETS_TOPIC, OFFSETS_ID, 1), ("t", T_ID, 1)]
    async with rig.running():
        rig.subscription.publish(image_of(*topics), Changes(everything=True))
        rig.loop.led(LaggingPartition(open_log(str(tmp_path))))
        await until(lambda: isinstance(rig.shard(), GroupShard))
        commit(shard_of(rig), 5)
        rig.subscription.publish(image_of(*topics, revision=2), Changes(topics={T_ID}))
        await until(lambda: not rig.subscription._changed.is_set())
        assert fetch(shard_of(rig)) == 5


async def test_the_offsets_topic_is_created_as_configured(until):
    rig = Rig(offsets_topic_num_partitions="7", offsets_topic_replication_factor="2")
    async with rig.running():
        rig.topic.want(image_of())
        rig.topic.want(image_of())
        await until(lambda: rig.created)
        rig.topic.want(image_of())
        await asyncio.sleep(0)
    (created,) = rig.created
    assert created == (
        OFFSETS_TOPIC,
        7,
        2,
        {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    )


async def test_a_refused_creation_is_reported_and_tried_again_later(until, capsys, monkeypatch):
    monkeypatch.setattr(internal_topic, "CREATE_AGAIN_S", 0)
    rig = Rig()
    rig.refusal = Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is there")
    async with rig.running():
        rig.topic.want(image_of())
        await until(lambda: len(rig.created) == 1)
        rig.refusal = Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, "there")
        while len(rig.created) < 2:
            rig.topic.want(image_of())
            await asyncio.sleep(0)
    assert "no broker is there" in capsys.readouterr().out


async def test_partitions_are_counted_by_the_topic_that_is_there():
    rig = Rig()
    assert rig.topic.partitions(image_of()) == 0
    assert rig.topic.partitions(image_of((OFFSETS_TOPIC, OFFSETS_ID, 9))) == 9
    assert rig.loop.shard_of("g", 0) is ErrorCode.NOT_COORDINATOR


async def test_each_group_is_found_in_its_partition(tmp_path, until):
    rig = Rig()
    partitions = [LaggingPartition(open_log(str(tmp_path), index), index) for index in range(3)]
    async with rig.running():
        for partition in partitions:
            rig.loop.led(partition)
        await until(lambda: all(shard.is_loaded for shard in rig.loop.shards()))
        for group in ("a", "b", "c", "console-consumer"):
            shard = rig.loop.shard_of(group, 3)
            assert isinstance(shard, GroupShard)
            assert shard.partition.index == partition_for(group, 3)


async def test_a_bug_in_a_task_of_it_ends_the_broker(tmp_path):
    rig = Rig()

    async def fail() -> None:
        raise ZeroDivisionError

    task = asyncio.ensure_future(rig.coordinators.run(rig.subscription))
    await asyncio.sleep(0)
    rig.loop.spawn(fail())
    with pytest.raises(ExceptionGroup) as raised:
        await task
    assert raised.group_contains(ZeroDivisionError)


async def test_offsets_expire_while_the_broker_runs(tmp_path, until):
    rig = Rig(offsets_retention_check_interval_ms="1", offsets_retention_minutes="1")
    partition = LaggingPartition(open_log(str(tmp_path)))
    now_ms = SYSTEM_CLOCK.now_ms()
    for group, at_ms in (("old", now_ms - 60_000), ("g", now_ms)):
        key = OffsetCommitKey(group=group, topic="t", partition=0)
        value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=at_ms)
        encoded = RECORDS.encode(OffsetRecord(key, value))
        partition.append(build_batch([Record(*encoded, now_ms)]), now_ms)
    async with rig.running():
        rig.loop.led(partition)
        await until(lambda: partition.log.log_end_offset > 2)
        assert [row.group_id for row in shard_of(rig).coordinator.list_groups([], [])] == ["g"]
        assert fetch(shard_of(rig)) == 5
        rig.loop.lost(partition)
        end_offset = partition.log.log_end_offset
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert [row.group_id for row in shard_of(rig).coordinator.list_groups([], [])] == ["g"]
        assert partition.log.log_end_offset == end_offset, "there is nothing more to remove"


async def test_groups_are_loaded_once_there_are_descriptors(tmp_path, until, monkeypatch):
    monkeypatch.setattr(runtime, "TRY_AGAIN_S", 0)
    partition = LaggingPartition(open_log(str(tmp_path)))
    async with (first := Rig()).running():
        first.loop.led(partition)
        await until(lambda: isinstance(first.shard(), GroupShard))
        commit(shard_of(first), 5)
    rig, read = Rig(), partition.log.read

    def refuse(*_):
        if len(rig.failures) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return read(*_)

    monkeypatch.setattr(partition.log, "read", refuse)
    async with rig.running():
        rig.loop.led(partition)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert fetch(shard_of(rig)) == 5
    assert [each.errno for _, each in rig.failures] == [errno.EMFILE] * 3
