from typing import Any

import pytest
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


@pytest.fixture
def table() -> PartitionTable:
    return PartitionTable(ClusterImage)


def partition(
    rig: Any, topic: str = "topic", topic_id: bytes = ID, index: int = 0
) -> LeaderPartition:
    return LeaderPartition(topic, topic_id, index, rig.open(), LeaderEpoch(1))


def test_partitions_are_found_by_name_and_id(table, rig) -> None:
    one, two = partition(rig, index=0), partition(rig, index=1)
    table.add(one)
    table.add(two)
    assert len(table) == 2
    assert set(table) == {one, two}
    assert table.get("topic", 1) is two
    assert table.get("topic", 2) is None
    assert table.get("none", 0) is None
    two.ends.high_watermark = 7
    names = [
        TopicPartition(topic, index) for topic, index in [("topic", 1), ("topic", 2), ("t", 1)]
    ]
    assert [table.high_watermark_of(name) for name in names] == [7, None, None]
    assert table.find("topic", 0) is one
    assert table.find_by_id(ID, 1) is two
    assert table.find("topic", 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert table.find_by_id(OTHER_ID, 0) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_removed_replica_is_gone_and_its_waiters_are_notified(table, rig) -> None:
    one, two = partition(rig, index=0), partition(rig, index=1)
    table.add(one)
    table.add(two)
    table.remove(one)
    assert not one.is_leading
    assert table.get("topic", 0) is None
    assert table.get("topic", 1) is two
    table.remove(two)
    assert table.by_name == {}
    assert table.by_id == {}


def test_a_replica_has_one_role_at_a_time(table, rig) -> None:
    """Code that holds an ended role sees that."""
    led = partition(rig)
    table.add(led)
    assert (list(table.led()), list(table)) == ([led], [led])
    table.add(Replica.of(led))
    followed = FollowerPartition(table.replica(ID, 0), 2, LeaderEpoch(5))
    table.add(followed)
    assert (list(table.led()), list(table)) == ([], [followed])
    assert (led.is_leading, followed.is_following) == (False, True)
    assert table.find("topic", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert table.replica(ID, 0) is followed
    table.remove(led)
    assert (followed.is_following, table.replica(ID, 0), table.by_id) == (False, None, {})


def test_the_high_watermark_of_every_replica_is_returned(table, rig) -> None:
    for index in range(3):
        table.add(partition(rig, index=index))
    for index in (1, 2):
        table.add(Replica.of(table.replica(ID, index)))
    table.add(FollowerPartition(table.replica(ID, 1), 2, LeaderEpoch(5)))
    for replica in table:
        replica.ends.high_watermark = replica.index + 5
    names = [TopicPartition("topic", index) for index in range(3)]
    assert [table.high_watermark_of(name) for name in names] == [5, 6, 7]
    assert table.high_watermarks() == dict(zip(names, [5, 6, 7], strict=True))
    assert len(table) == 3


def test_a_topic_created_again_takes_over_the_name(table, rig) -> None:
    old, new = partition(rig), partition(rig, topic_id=OTHER_ID)
    table.add(old)
    table.add(new)
    assert table.get("topic", 0) is new
    table.remove(old)
    assert table.get("topic", 0) is new
    assert table.find_by_id(OTHER_ID, 0) is new


def test_nobody_leads_what_the_image_does_not_know(table) -> None:
    assert table.leader_by_name("topic", 0, "PLAINTEXT") is None
    assert table.leader_by_id(ID, 0, "PLAINTEXT") is None
