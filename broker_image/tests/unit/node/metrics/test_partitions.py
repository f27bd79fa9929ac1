from typing import Any

import pytest
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image import Partition as State
from logfleet.metadata.shards import ShardedMap
from logfleet.node.metrics.partitions import logs, topics
from logfleet.node.partitions.partition import Partition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowedPartition, Replica

from broker_image.tests.unit.node.metrics.told import told

ID = bytes(range(16))


def leading(rig: Any) -> tuple[PartitionTable, Partition]:
    """A table with one partition."""
    table = PartitionTable(ClusterImage)
    partition = Partition("topic", ID, 0, rig.open(), 1)
    table.add(partition)
    return table, partition


@pytest.mark.parametrize(
    "replicas, in_sync, min_isr, under",
    [
        ((1,), (1,), 1, 0),
        ((1,), (1,), 2, 0),
        ((1,), (), 2, 1),
        ((1, 2), (1,), 1, 0),
        ((1, 2), (1,), 2, 1),
        ((1, 2), (1, 2), 3, 0),
    ],
)
def test_no_more_replicas_than_there_are_have_to_be_in_sync(
    rig: Any, replicas: tuple[int, ...], in_sync: tuple[int, ...], min_isr: int, under: int
) -> None:
    isr = tuple((broker_id, 5) for broker_id in in_sync)
    state = State(replicas, isr, 1, 0, 0, min_isr, revision=1)
    topic = Topic(ID, "topic", partitions=(state,), ready=1, revision=1, ready_revision=1)
    image = ClusterImage(entries=ShardedMap[bytes, Topic]().updated({ID: topic}))
    table, _ = leading(rig)
    said = told(logs(table, lambda: image, 10))
    assert said("logfleet_under_min_isr_partitions") == under
    assert said("logfleet_under_replicated_partitions") == (len(in_sync) < len(replicas))


def test_traffic_of_a_topic_that_is_deleted_during_a_scrape_is_counted(rig: Any) -> None:
    """Others may have their turn before the rows of a family are made."""
    table, partition = leading(rig)
    partition.bytes_in = 5
    families = topics(table, 10)
    first = next(families)
    table.remove(partition)
    assert told([first, *families])("logfleet_bytes_in_total") == 5


def test_replicas_that_others_lead_are_counted_and_told_of(rig: Any) -> None:
    table, _ = leading(rig)
    table.add(FollowedPartition(Replica("topic", ID, 1, rig.open()), 2, 1))
    said = told(logs(table, ClusterImage, 10))
    assert said("logfleet_partitions") == 2
    assert said("logfleet_partitions_led") == 1
    assert said("logfleet_partition_segments", topic="topic", partition="1") == 1
