import asyncio

import pytest
from logfleet.groups.records import OffsetRecord
from logfleet.metadata.image import ClusterImage
from logfleet.node.groups.group_lag import PartitionLag, group_lags
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue

from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition
from broker_image.tests.unit.node.groups.groups_rig import ShardRig, open_log, take_up

pytestmark = pytest.mark.asyncio
ID = b"id of topic t..."


def commit(rig: ShardRig, group: str, topic: str, number: int, at: int, topic_id=bytes(16)) -> None:
    key = OffsetCommitKey(group=group, topic=topic, partition=number)
    value = OffsetCommitValue(offset=at, metadata="", topic_id=topic_id)
    rig.shard.coordinator.apply(OffsetRecord(key, value))


@pytest.fixture
def rig(tmp_path):
    return ShardRig(str(tmp_path / "offsets"))


@pytest.fixture
def table(tmp_path):
    """Leads t-0, whose readers see 7 records."""
    made = PartitionTable(ClusterImage)
    partition = LaggingPartition(open_log(str(tmp_path / "t")))
    partition.topic, partition.topic_id = "t", ID
    partition.ends.high_watermark = 7
    made.add(partition)
    return made


async def test_lag_is_reported_for_each_offset_of_a_topic_that_is_led_here(rig, table):
    take_up(rig.shard)
    commit(rig, "a", "t", 0, 5)
    commit(rig, "a", "t", 1, 5)
    commit(rig, "b", "t", 0, 9, ID)
    commit(rig, "b", "u", 0, 1)
    assert list(group_lags([rig.shard], table)) == [
        PartitionLag("a", "t", 0, 5, 7, 2),
        PartitionLag("a", "t", 1, 5, None, None),
        PartitionLag("b", "t", 0, 9, 7, -2),
        PartitionLag("b", "u", 0, 1, None, None),
    ]


async def test_an_offset_of_an_earlier_topic_of_the_name_has_no_lag(rig, table):
    take_up(rig.shard)
    commit(rig, "a", "t", 0, 5, b"id of an earlier")
    assert list(group_lags([rig.shard], table)) == []


async def test_a_partition_that_is_not_loaded_or_was_lost_reports_nothing(rig, table):
    commit(rig, "a", "t", 0, 5)
    assert list(group_lags([rig.shard], table)) == []
    take_up(rig.shard)
    rig.shard.close()
    assert list(group_lags([rig.shard], table)) == []


async def test_groups_may_change_while_somebody_walks_over_them(rig, table):
    take_up(rig.shard)
    for group in ("a", "b", "c"):
        commit(rig, group, "t", 0, 5)
    walk = group_lags([rig.shard], table)
    assert next(walk).group == "a"
    await asyncio.sleep(0)
    for group in ("a", "b"):
        key = OffsetCommitKey(group=group, topic="t", partition=0)
        rig.shard.coordinator.apply(OffsetRecord(key, None))
    commit(rig, "d", "t", 0, 5)
    assert [each.group for each in walk] == ["c"], "newcomers come with the next walk"
