import asyncio
import errno

import pytest
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.config import GroupConfig
from logfleet.groups.expiry import REMOVED_PER_STEP
from logfleet.groups.offsets import ZERO_UUID
from logfleet.groups.records import OffsetRecord
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.segments.file_slice import FileSlice
from logfleet.net.peer import Peer
from logfleet.node.coordinators.loader import replay_record
from logfleet.node.coordinators.shard import ShardState
from logfleet.node.groups.group_shard import GroupShard, group_kind
from logfleet.records.batch import CRC_COVERS_FROM, iterate_headers
from logfleet.records.checksum import crc32c
from logfleet.records.record import read_records
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    JoinGroupResponse,
    OffsetCommitKey,
    OffsetCommitValue,
)

from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition
from broker_image.tests.unit.node.groups.groups_rig import (
    ShardRig,
    commit,
    committed,
    fetch,
    join,
    mark,
    open_log,
    stage,
    sync,
    take_up,
)

pytestmark = pytest.mark.asyncio


@pytest.fixture
def rig(tmp_path):
    rig = ShardRig(str(tmp_path))
    take_up(rig.shard)
    return rig


async def test_with_one_replica_a_commit_is_answered_at_once(rig):
    assert committed(commit(rig.shard, 5)) is ErrorCode.NONE
    assert fetch(rig.shard) == 5
    assert rig.tasks == []


async def test_nothing_is_answered_before_followers_have_it(rig, until):
    rig.partition.lags = True
    first = commit(rig.shard, 5)
    second = commit(rig.shard, 6)
    assert fetch(rig.shard) is None
    assert len(rig.tasks) == 1
    rig.partition.catch_up()
    await until(lambda: committed(second) is not None)
    assert committed(first) is committed(second) is ErrorCode.NONE
    assert fetch(rig.shard) == 6


async def test_offsets_of_a_transaction_are_a_batch_of_its_producer_without_a_sequence(rig):
    assert committed(stage(rig.shard, 5, epoch=3)) is ErrorCode.NONE
    assert committed(stage(rig.shard, 6, epoch=3)) is ErrorCode.NONE
    found = rig.partition.log.read(0, 1 << 20)
    assert isinstance(found, FileSlice)
    batches = found.read()
    for position, header in iterate_headers(batches):
        stamp = (header.producer_id, header.producer_epoch, header.base_sequence)
        assert (*stamp, header.is_transactional) == (7, 3, -1, True)
        assert crc32c(batches[position + CRC_COVERS_FROM : position + header.size]) == header.crc
    assert header.last_offset == 1, "the second batch is no repetition of the first"


async def test_offsets_of_an_older_epoch_are_refused(rig):
    stage(rig.shard, 5, epoch=3)
    assert committed(stage(rig.shard, 6, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(stage(rig.shard, 6, epoch=4)) is ErrorCode.NONE
    assert rig.partition.log.log_end_offset == 2


async def test_a_marker_decides_and_what_it_decides_is_fetched_once_it_is_committed(rig, until):
    stage(rig.shard, 5)
    assert fetch(rig.shard) == -1
    rig.partition.lags = True
    rig.shard.end_transactions([mark(rig.partition)])
    assert fetch(rig.shard) is None
    rig.partition.catch_up()
    await until(lambda: fetch(rig.shard) == 5)
    rig.partition.lags = False
    stage(rig.shard, 6)
    rig.shard.end_transactions([mark(rig.partition, is_commit=False)])
    assert fetch(rig.shard) == 5


async def test_a_commit_that_followers_do_not_get_in_time_times_out(tmp_path, until):
    rig = ShardRig(str(tmp_path), commit_timeout_ms=1)
    take_up(rig.shard)
    rig.partition.lags = True
    waiter = commit(rig.shard, 5)
    await rig.tasks[0]
    assert committed(waiter) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.partition.catch_up()
    assert fetch(rig.shard) == 5  # it was in the log


async def test_with_too_few_in_sync_nothing_is_written(rig):
    """Kafka appends what a coordinator writes with acks=all."""
    rig.partition.is_at_min_isr = False
    assert committed(commit(rig.shard, 5)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.partition.log.log_end_offset == 0
    assert fetch(rig.shard) == -1
    rig.partition.is_at_min_isr = True
    assert committed(commit(rig.shard, 5)) is ErrorCode.NONE


async def test_a_waiter_is_answered_when_leadership_is_lost(rig):
    rig.partition.lags = True
    waiting = commit(rig.shard, 5)
    join(rig.shard, "a")
    rig.shard.tick()
    assigned = sync(rig.shard, "a")
    assert [waiting.response, assigned.response] == [None, None]
    rig.partition.is_current = False
    rig.shard.close()
    assert committed(waiting) is ErrorCode.NOT_COORDINATOR
    assert assigned.response is not None
    assert assigned.response.error_code == ErrorCode.NOT_COORDINATOR
    assert committed(commit(rig.shard, 6)) is ErrorCode.NOT_COORDINATOR


async def test_a_wait_that_the_partition_ends_is_answered(rig):
    rig.partition.lags = True
    waiting = commit(rig.shard, 5)
    await asyncio.sleep(0)
    rig.partition.end()
    await rig.tasks[0]
    assert committed(waiting) is ErrorCode.NOT_COORDINATOR


async def test_a_disk_that_fails_takes_the_partition_out_of_service(rig):
    rig.partition.failure = OSError("no space")
    assert committed(commit(rig.shard, 5)) is ErrorCode.NOT_COORDINATOR
    assert rig.failures == [rig.partition.failure]
    rig.partition.failure = None
    assert fetch(rig.shard) == -1


async def test_records_that_the_log_rejects_are_not_applied(rig):
    rig.partition.refusal = BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    assert committed(commit(rig.shard, 5)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert fetch(rig.shard) == -1


async def test_it_asks_to_be_woken_for_the_next_deadline(rig):
    parked = join(rig.shard, "a")
    assert rig.armed
    assert parked.response is None
    rig.shard.tick()
    response = await parked.wait(Peer("L"), JoinGroupResponse())
    assert response.generation_id == 1


async def test_the_log_holds_what_another_coordinator_needs(rig, tmp_path):
    join(rig.shard, "a")
    rig.shard.tick()
    assert sync(rig.shard, "a").response is not None
    assert committed(commit(rig.shard, 5)) is ErrorCode.UNKNOWN_MEMBER_ID  # of a member now
    log = open_log(str(tmp_path))
    kind = group_kind(GroupConfig())
    other = GroupShard(
        kind,
        LaggingPartition(log),
        kind.new_coordinator(),
        clock=SYSTEM_CLOCK,
        write_timeout_ms=1,
        arm=lambda _: None,
        spawn=rig.spawn,
        storage_failed=lambda *_: None,
    )
    found = log.read(0, 1 << 20)
    assert isinstance(found, FileSlice)
    data = found.read()
    for position, header in iterate_headers(data):
        for record in read_records(data, position):
            replay_record(kind, other.coordinator, record, header)
    take_up(other)
    group = other.coordinator.describe("g", 6)
    assert group.group_state == "Stable"
    assert group.members[0].member_assignment == b"p0"


def read_groups(shard: GroupShard, count: int) -> None:
    """As if the log had held so many stable groups of a member."""
    member = GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=6_000)
    for number in range(count):
        shard.coordinator.apply(
            GroupMetadataRecord(
                GroupMetadataKey(group=f"g{number}"),
                GroupMetadataValue(
                    protocol_type="consumer", protocol="range", leader="m", members=[member]
                ),
            )
        )


async def test_groups_are_taken_up_in_a_step_each_before_requests_may_come(tmp_path):
    rig = ShardRig(str(tmp_path))
    read_groups(rig.shard, 3)
    steps = rig.shard.start()
    for taken in (1, 2, 3):
        next(steps)
        assert not rig.shard.is_loaded
        states = [group.group_state for group in rig.shard.coordinator.list_groups([], [])]
        assert states == ["Stable"] * taken + ["Empty"] * (3 - taken)
        assert rig.armed, "a member that is silent from now on is noticed"
    assert list(steps) == [None]
    assert rig.shard.is_loaded


async def test_a_leadership_that_ends_between_two_groups_ends_the_loading(tmp_path):
    rig = ShardRig(str(tmp_path))
    read_groups(rig.shard, 3)
    steps = rig.shard.start()
    next(steps)
    rig.shard.close()
    assert list(steps) == []
    assert not rig.shard.is_loaded
    assert rig.shard.coordinator.next_deadline_ms() is None


async def test_topics_deleted_while_loading_lose_their_offsets_afterwards(tmp_path):
    rig = ShardRig(str(tmp_path))
    rig.shard.remove_topics([("t", ZERO_UUID)])
    rig.shard.state = ShardState.ACTIVE  # as if the log had held the commit
    commit(rig.shard, 5)
    rig.shard.state = ShardState.LOADING
    take_up(rig.shard)
    assert fetch(rig.shard) == -1
    rig.shard.close()
    rig.shard.remove_topics([("t", b"id of deleted t.")])


async def test_offsets_of_deleted_topics_go_until_none_is_left(rig, until):
    for number in range(3 * REMOVED_PER_STEP):
        value = OffsetCommitValue(offset=5, commit_timestamp=0, metadata="", topic_id=b"t" * 16)
        key = OffsetCommitKey(group="g", topic="t", partition=number)
        rig.shard.coordinator.apply(OffsetRecord(key, value))
    rig.shard.remove_topics([("t", b"t" * 16)])
    left = len(list(rig.shard.coordinator.committed_offsets()))
    assert left == 2 * REMOVED_PER_STEP, "one step at once"
    rig.shard.remove_topics([("t", b"t" * 16)])
    await until(lambda: not list(rig.shard.coordinator.committed_offsets()))
    await asyncio.gather(*rig.tasks)
    assert len(rig.tasks) == 1


async def test_what_cannot_be_written_is_not_tried_again_at_once(rig, monkeypatch):
    rig.shard.remove_topics([])
    commit(rig.shard, 5)

    def failing(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    append = rig.partition.append
    monkeypatch.setattr(rig.partition, "append", failing)
    rig.shard.remove_topics([("t", b"t" * 16), ("t", ZERO_UUID)])
    assert fetch(rig.shard) == 5
    assert rig.tasks == []
    monkeypatch.setattr(rig.shard.coordinator.expiry, "_expired", lambda *_: [tombstone()])
    assert not rig.shard.expire_offsets()
    assert fetch(rig.shard) == 5
    monkeypatch.setattr(rig.partition, "append", append)
    rig.shard.remove_due_topics()
    assert fetch(rig.shard) == -1


def tombstone() -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group="g", topic="t", partition=0), None)
