import pytest
from logfleet.controller.brokers.unregistering import unregister
from logfleet.controller.changes.reassignment_requests import reassign, reassigning
from logfleet.controller.changes.store_writes import pack
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.metadata.packing import Step
from logfleet.replication.reassignment_steps import is_reassigning
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal


@pytest.fixture(autouse=True)
def brokers(cluster):
    cluster.start(1, 2, 3, 4)
    cluster.create("t", assignments=((0, (1,)),), partitions=-1)
    cluster.create("u", assignments=((0, (2, 3)),), partitions=-1)


def alter(cluster, name: str, *replicas: int) -> None:
    step = reassign(cluster.image, name, 0, replicas, may_change_factor=True)
    assert isinstance(step, Step), step
    cluster.do([step])


def cancel(cluster):
    return reassign(cluster.image, "u", 0, None, may_change_factor=True)


def state(cluster):
    return cluster.topic("u").partitions[0]


@pytest.mark.parametrize(
    "name, index, replicas, error",
    [
        ("t", 0, (1,), None),
        ("u", 0, (2, 3), None),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (5,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 0, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_changes_nothing(cluster, name, index, replicas, error) -> None:
    answer = reassign(cluster.image, name, index, replicas, may_change_factor=True)
    assert (answer.error if isinstance(answer, Refusal) else answer) == error


def test_more_replicas_are_refused_to_who_does_not_want_more(cluster) -> None:
    refusal = reassign(cluster.image, "t", 0, (1, 2), may_change_factor=False)
    assert isinstance(refusal, Refusal)
    assert refusal.message == "The replication factor is changed from 1 to 2"
    alter(cluster, "t", 4)
    assert isinstance(reassign(cluster.image, "t", 0, (2,), may_change_factor=False), Step), (
        "what is added and what will go are one of each"
    )


def test_a_broker_that_is_forgotten_meanwhile_is_given_nothing(cluster) -> None:
    """A controller whose watch stands still decides on an image that knows it."""
    cluster.stop(4)
    late = reassign(cluster.image, "u", 0, (2, 4), may_change_factor=True)
    forgotten = unregister(cluster.image, 4)
    assert isinstance(late, Step)
    assert not isinstance(forgotten, Refusal)
    cluster.do(list(forgotten))
    assert [cluster.commit(txn) for txn in pack(cluster.epoch, [late])] == [False]
    assert state(cluster).replicas == (2, 3)


def test_it_is_listed_until_it_is_done_and_the_controller_ends_it(cluster) -> None:
    alter(cluster, "u", 4, 3)
    assert [index for index, _ in reassigning(cluster.topic("u"))] == [0]
    assert reassign(cluster.image, "u", 0, (4, 3), may_change_factor=True) is None
    cluster.in_sync("u", 0, 4)
    cluster.converge()
    done = state(cluster)
    assert (done.replicas, done.isr_ids, done.leader) == ((4, 3), [4, 3], 4)
    assert not list(reassigning(cluster.topic("u")))


def test_another_controller_ends_it_as_well_and_a_broker_that_dies_is_waited_for(cluster) -> None:
    alter(cluster, "u", 4, 3)
    cluster.stop(4)
    cluster.elect(3)
    cluster.converge()
    assert is_reassigning(state(cluster))
    cluster.start(4)
    cluster.in_sync("u", 0, 4)
    cluster.converge()
    assert state(cluster).replicas == (4, 3)


def test_a_cancelled_one_leaves_nothing(cluster) -> None:
    alter(cluster, "u", 4, 3)
    step = cancel(cluster)
    assert isinstance(step, Step)
    cluster.do([step])
    assert set(state(cluster).replicas) == {2, 3}
    assert isinstance(cancel(cluster), Refusal)


def test_one_is_not_cancelled_that_keeps_the_partition_writable(cluster) -> None:
    cluster.create(
        "t2", assignments=((0, (1, 2)),), partitions=-1, configs={"min.insync.replicas": "2"}
    )
    step = reassign(cluster.image, "t2", 0, (3, 4), may_change_factor=False)
    assert isinstance(step, Step)
    cluster.do([step])
    cluster.in_sync("t2", 0, 3)
    cluster.stop(2)
    assert cluster.topic("t2").partitions[0].isr_ids == [3, 1]
    refusal = reassign(cluster.image, "t2", 0, None, may_change_factor=False)
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "in-sync replicas [1], 2 are needed" in refusal.message


def test_the_only_one_that_holds_what_is_committed_is_not_taken_away(cluster) -> None:
    """Simulation, seed 41907: the partition was below min ISR already, so that nothing seemed to get worse."""
    cluster.create(
        "t3", assignments=((0, (1, 2)),), partitions=-1, configs={"min.insync.replicas": "2"}
    )
    step = reassign(cluster.image, "t3", 0, (3, 4), may_change_factor=False)
    assert isinstance(step, Step)
    cluster.do([step])
    cluster.in_sync("t3", 0, 3)
    cluster.stop(1)
    cluster.stop(2)
    left = cluster.topic("t3").partitions[0]
    assert (left.isr_ids, left.leader) == ([3], 3)
    for wanted in (None, (4, 2)):
        refusal = reassign(cluster.image, "t3", 0, wanted, may_change_factor=False)
        assert isinstance(refusal, Refusal), "3 alone has it all"
    cluster.stop(3)
    assert cluster.topic("t3").partitions[0].leader == NO_LEADER
    for wanted in (None, (4, 2)):
        refusal = reassign(cluster.image, "t3", 0, wanted, may_change_factor=False)
        assert isinstance(refusal, Refusal), "3 is eligible"
