"""What a coordinator does that was elected with followers, until it may answer."""

import pytest
from logfleet.node.groups.group_shard import GroupShard
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.clocks import ManualClock
from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition
from broker_image.tests.unit.node.groups.coordinator_rig import Rig, shard_of
from broker_image.tests.unit.node.groups.groups_rig import commit, fetch, join, open_log, sync
from broker_image.tests.unit.node.partitions.replicas_rig import B, C, replicated
from broker_image.tests.unit.node.partitions.replicas_rig import fetch as fetch_from

pytestmark = pytest.mark.asyncio


def new_leader(log, index: int = 0) -> LaggingPartition:
    """One of three replicas whose high watermark is below all of its log."""
    return LaggingPartition(log, index, replicas_state=replicated(log.log_end_offset))


async def with_commit(tmp_path, until, offset: int):
    """A log in which a group has committed this offset."""
    rig = Rig()
    async with rig.running():
        rig.loop.led(LaggingPartition(open_log(str(tmp_path))))
        await until(lambda: isinstance(rig.shard(), GroupShard))
        commit(shard_of(rig), offset)
    return open_log(str(tmp_path))


async def test_a_new_leader_answers_once_all_that_it_found_is_committed(tmp_path, until):
    """The last commit may have been acknowledged or lost: no answer before that is certain."""
    log = await with_commit(tmp_path, until, 5)
    rig = Rig()
    async with rig.running():
        partition = new_leader(log)
        rig.loop.led(partition)
        await until(lambda: partition.ack_queue.count)
        assert rig.shard() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fetch_from(partition, B, log.log_end_offset)
        assert rig.shard() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fetch_from(partition, C, log.log_end_offset)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert fetch(shard_of(rig)) == 5


async def test_partitions_do_not_wait_for_the_followers_of_one_another(tmp_path, until):
    log = await with_commit(tmp_path, until, 5)
    rig = Rig()
    async with rig.running():
        rig.loop.led(new_leader(log))
        rig.loop.led(LaggingPartition(open_log(str(tmp_path), 1), 1))
        await until(lambda: [shard.is_loaded for shard in rig.loop.shards()] == [False, True])


async def test_who_ceases_to_lead_before_that_coordinates_nothing(tmp_path, until):
    log = await with_commit(tmp_path, until, 5)
    rig = Rig()
    async with rig.running():
        partition = new_leader(log)
        rig.loop.led(partition)
        await until(lambda: partition.ack_queue.count)
        rig.loop.lost(partition)
        partition.end()
        await until(lambda: not rig.loop._tasks)
        assert rig.shard() is ErrorCode.NOT_COORDINATOR


async def test_members_have_a_full_session_from_when_their_coordinator_answers(tmp_path, until):
    """They could not reach it before: else each failover were a rebalance of all groups."""
    rig = Rig(group_initial_rebalance_delay_ms="0")
    async with rig.running():
        rig.loop.led(LaggingPartition(open_log(str(tmp_path))))
        await until(lambda: isinstance(rig.shard(), GroupShard))
        joining = join(shard_of(rig), "a")
        await until(lambda: joining.response is not None)
        assert sync(shard_of(rig), "a").response is not None
    log = open_log(str(tmp_path))
    clock = ManualClock()
    rig = Rig(clock)
    async with rig.running():
        partition = new_leader(log)
        rig.loop.led(partition)
        await until(lambda: partition.ack_queue.count)
        clock.move(60_000)  # longer than the member's session
        for member in (B, C):
            fetch_from(partition, member, log.log_end_offset)
        await until(lambda: isinstance(rig.shard(), GroupShard))
        assert shard_of(rig).coordinator.next_deadline_ms() == clock.monotonic_ms() + 10_000
        assert shard_of(rig).coordinator.describe("g", 6).group_state == "Stable"
