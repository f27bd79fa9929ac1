from typing import Any

import pytest
from logfleet.metadata.image import ClusterImage
from logfleet.node.metrics.partitions import logs, topics
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.replication.leader import LeaderReplicas
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.node.handlers import transactions_rig
from broker_image.tests.unit.node.handlers.fetch_rig import append
from broker_image.tests.unit.node.metrics.metric_values import metric_values
from broker_image.tests.unit.node.partitions.replicas_rig import A, B, fetch, replicated

ID = bytes(range(16))
NOW = 1_700_000_000_000


def leading(
    rig: Any, replicas_state: LeaderReplicas | None = None
) -> tuple[PartitionTable, LeaderPartition]:
    """A table with one partition."""
    table = PartitionTable(ClusterImage)
    partition = LeaderPartition(
        "topic", ID, 0, rig.open(), LeaderEpoch(1), replicas_state=replicas_state
    )
    table.add(partition)
    return table, partition


@pytest.mark.parametrize(
    "replicas, in_sync, min_isr, under, at",
    [
        ((1,), (1,), 1, 0, 1),
        ((1,), (1,), 2, 0, 1),
        ((1, 2), (1,), 1, 0, 1),
        ((1, 2), (1,), 2, 1, 0),
        ((1, 2), (1, 2), 1, 0, 0),
        ((1, 2), (1, 2), 3, 0, 1),
    ],
)
def test_no_more_replicas_than_there_are_have_to_be_in_sync(
    rig: Any, replicas: tuple[int, ...], in_sync: tuple[int, ...], min_isr: int, under: int, at: int
) -> None:
    isr = tuple((broker_id, 5) for broker_id in in_sync)
    table, _ = leading(rig, replicated(replicas=replicas, isr=isr, min_isr=min_isr))
    values = metric_values(logs(table, 10, NOW))
    assert values("logfleet_under_min_isr_partitions") == under
    assert values("logfleet_at_min_isr_partitions") == at
    assert values("logfleet_under_replicated_partitions") == (len(in_sync) < len(replicas))


def test_a_replica_that_is_being_added_is_not_missed_yet(rig: Any) -> None:
    """Kafka's replication factor of a partition that is reassigned: that from before."""
    table, _ = leading(rig, replicated(isr=(A, B), adding=(3,)))
    assert metric_values(logs(table, 10, NOW))("logfleet_under_replicated_partitions") == 0


def test_how_far_each_follower_is_behind_is_reported_by_the_leader(rig: Any) -> None:
    table, partition = leading(rig, replicated())
    append(partition, b"a", b"b")
    fetch(partition, B, 1)
    values, one = metric_values(logs(table, 10, NOW)), {"topic": "topic", "partition": "0"}
    assert values("logfleet_follower_lag", follower="2", **one) == 1
    assert values("logfleet_follower_lag", follower="3", **one) == 2
    assert values("logfleet_replica_lag_max") == 0, "of what it follows"
    assert metric_values(logs(table, 0, NOW))("logfleet_follower_lag", follower="2", **one) is None


def test_of_partitions_that_are_followed_the_largest_lag_is_reported(rig: Any) -> None:
    table = PartitionTable(ClusterImage)
    for index, lag in enumerate((3, 7, 0)):
        followed = FollowerPartition(Replica("topic", ID, index, rig.open()), 2, LeaderEpoch(1))
        followed.lag = lag
        table.add(followed)
    assert metric_values(logs(table, 0, NOW))("logfleet_replica_lag_max") == 7


def test_traffic_of_a_topic_that_is_deleted_during_a_scrape_is_counted(rig: Any) -> None:
    """Others may have their turn before the rows of a family are made."""
    table, partition = leading(rig)
    partition.bytes_in = 5
    families = topics(table, 10)
    first = next(families)
    table.remove(partition)
    assert metric_values([first, *families])("logfleet_bytes_in_total") == 5


def test_what_followers_give_consumers_counts_also_when_they_lead_later(rig: Any) -> None:
    table = PartitionTable(ClusterImage)
    followed = FollowerPartition(Replica("topic", ID, 0, rig.open()), 2, LeaderEpoch(1))
    followed.bytes_out = 5
    table.add(followed)
    for _ in range(2):
        values = metric_values(topics(table, 10))
        assert values("logfleet_topic_bytes_out_total", topic="topic") == 5
        assert values("logfleet_bytes_out_total") == 5
        table.add(LeaderPartition("topic", ID, 0, followed.log, LeaderEpoch(2)))


def test_replicas_that_others_lead_are_counted_and_reported(rig: Any) -> None:
    table, _ = leading(rig)
    table.add(FollowerPartition(Replica("topic", ID, 1, rig.open()), 2, LeaderEpoch(1)))
    values = metric_values(logs(table, 10, NOW))
    assert values("logfleet_partitions") == 2
    assert values("logfleet_partitions_led") == 1
    assert values("logfleet_partition_segments", topic="topic", partition="1") == 1


def test_a_transaction_that_is_open_too_long_counts_its_partition(rig: Any) -> None:
    """By its last record, as in Kafka; and it holds back what is behind it."""
    table, partition = leading(rig)
    history = transactions_rig.History()
    for batch in (history.write(1), history.write(2), history.write(1)):
        transactions_rig.append(partition, batch)
    one = {"topic": "topic", "partition": "0"}
    for late_before_ms, late in ((NOW, 0), (NOW + 1, 1)):
        values = metric_values(logs(table, 10, late_before_ms))
        assert values("logfleet_late_transaction_partitions") == late
        assert values("logfleet_partition_last_stable_offset_lag", **one) == 3
    for producer_id in (1, 2):
        transactions_rig.append(partition, history.end(producer_id, commit=True))
    values = metric_values(logs(table, 10, NOW + 1))
    assert values("logfleet_late_transaction_partitions") == 0
    assert values("logfleet_partition_last_stable_offset_lag", **one) == 0
