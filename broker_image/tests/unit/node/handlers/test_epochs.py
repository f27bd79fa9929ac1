from typing import Any

import pytest
from logfleet.controller.running.log_ends import DEBUGGING_REPLICA_ID
from logfleet.node.handlers.epochs import offset_for_leader_epoch
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetForLeaderEpochRequest

NOW = 1_700_000_000_000


def ask(host, epoch: int, current: int = -1, topic: str = "topic", partition: int = 0) -> Any:
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=LeaderEpoch(current), leader_epoch=epoch
    )
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    asked = OffsetForLeaderEpochRequest(topics=topics)
    answer = offset_for_leader_epoch(host, asked, host.context(4))
    encode(answer, 2)
    (found,) = answer.topics
    (row,) = found.partitions
    assert (found.topic, row.partition) == (topic, partition)
    return row.error_code, row.leader_epoch, row.end_offset


@pytest.fixture
def partition(host):
    """Two records in epoch 2, one in epoch 5."""
    made = host.host(leader_epoch=2)
    for epoch, count in ((2, 2), (5, 1)):
        made.log.start_epoch(epoch)
        made.leader_epoch = epoch
        made.append(build_batch([Record(None, b"v", NOW)] * count), NOW)
    return made


@pytest.mark.parametrize(
    "epoch, expected", [(5, (5, 3)), (2, (2, 2)), (4, (2, 2)), (1, (1, 0)), (6, (-1, -1))]
)
def test_the_end_of_the_largest_epoch_up_to_it_is_reported(
    host, partition, epoch, expected
) -> None:
    assert ask(host, epoch) == (0, *expected)


def test_a_follower_may_ask_for_several_epochs_at_once(host, partition) -> None:
    wanted = [
        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=LeaderEpoch(5), leader_epoch=epoch
        )
        for epoch in (2, 5)
    ]
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="topic", partitions=wanted)
    asked = OffsetForLeaderEpochRequest(replica_id=2, topics=[topic])
    (found,) = offset_for_leader_epoch(host, asked, host.context(4)).topics
    assert [(row.leader_epoch, row.end_offset) for row in found.partitions] == [(2, 2), (5, 3)]


def test_the_leader_epoch_is_checked(host, partition) -> None:
    assert ask(host, 5, current=5)[0] == 0
    assert ask(host, 5, current=4) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(host, 5, current=6) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


def test_a_follower_checks_the_leader_epoch_before_it_reports_that_it_does_not_lead(host) -> None:
    host.know_topic("topic", {0: 2})
    host.partitions.add(FollowerPartition(released(host), 2, LeaderEpoch(9)))
    assert ask(host, 5, current=8)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(host, 5, current=10)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    for current in (9, -1):
        assert ask(host, 5, current=current)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def released(host) -> Replica:
    """Of a partition that is not led any more."""
    former = host.host()
    host.partitions.remove(former)
    return Replica.of(former)


def told(host, replica_id: int, version: int = 4) -> tuple[int, int, int]:
    """What is answered about the newest epoch there can be."""
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(leader_epoch=2**31 - 1)
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="topic", partitions=[wanted])]
    asked = OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)
    (found,) = offset_for_leader_epoch(host, asked, host.context(version)).topics
    (row,) = found.partitions
    return row.error_code, row.leader_epoch, row.end_offset


def test_a_replica_without_a_leader_returns_its_log_end_to_a_debug_consumer(
    host, partition
) -> None:
    assert told(host, DEBUGGING_REPLICA_ID) == (0, -1, -1), "it leads, and never had that epoch"
    host.know_topic("topic", {0: 2})
    host.partitions.remove(partition)
    host.partitions.add(Replica.of(partition))
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    assert told(host, DEBUGGING_REPLICA_ID) == (0, 5, 3)
    assert told(host, -1) == told(host, 2) == refused, "neither a consumer nor a follower"
    assert told(host, DEBUGGING_REPLICA_ID, version=2) == refused, "only the default of its version"
    host.partitions.add(FollowerPartition(Replica.of(partition), 2, LeaderEpoch(9)))
    assert told(host, DEBUGGING_REPLICA_ID) == refused


def test_a_partition_that_is_not_here_is_an_error(host) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(host, 5, topic="none") == ask(host, 5, partition=7) == unknown
