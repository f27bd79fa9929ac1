import pytest
from logfleet.controller.brokers.leaving import decide, may_exit
from logfleet.controller.brokers.stop_check import TOO_FEW_LEFT, Objection
from logfleet.controller.changes.store_writes import pack
from logfleet.metadata.packing import Step


@pytest.fixture
def fleet(cluster):
    """Three brokers, and three partitions that need two of their three replicas; each broker leads one."""
    cluster.start(1, 2, 3)
    assignments = ((0, (1, 2, 3)), (1, (2, 3, 1)), (2, (3, 1, 2)))
    cluster.create("t", -1, assignments=assignments, configs={"min.insync.replicas": "2"})
    return cluster


def leave(cluster, broker_id: int) -> None:
    cluster.register(broker_id, leaving=True)
    cluster.do([answer for _, answer in decide(cluster.image) if isinstance(answer, Step)])


def states(cluster):
    return [(each.leader, each.isr_ids) for each in cluster.topic("t").partitions]


def test_a_broker_that_leaves_hands_over_leaves_every_isr_and_may_exit(fleet):
    assert not may_exit(fleet.image, 1)
    leave(fleet, 1)
    assert fleet.image.brokers[1].is_draining
    assert not may_exit(fleet.image, 1), "it leads still"
    fleet.converge()
    assert states(fleet) == [(2, [2, 3]), (2, [2, 3]), (3, [3, 2])]
    assert may_exit(fleet.image, 1)
    assert list(decide(fleet.image)) == []
    fleet.stop(1)
    fleet.start(1)
    assert fleet.image.brokers[1].is_active
    assert not may_exit(fleet.image, 7)


def test_of_two_that_would_leave_at_once_one_waits(fleet):
    fleet.register(1, 2, leaving=True)
    ((first, step),) = decide(fleet.image)
    assert first == 1
    assert isinstance(step, Step)
    fleet.do([step])
    (waiting,) = decide(fleet.image)
    assert waiting == (2, Objection("t", 0, TOO_FEW_LEFT, can_heal=True))
    fleet.converge()
    assert isinstance(dict(decide(fleet.image))[2], Objection)
    fleet.stop(1)
    assert isinstance(dict(decide(fleet.image))[2], Objection), (
        "who is fenced does not count either"
    )
    fleet.start(1)
    for index in range(3):
        fleet.in_sync("t", index, 1)
    leave(fleet, 2)
    assert fleet.image.brokers[2].is_draining


def test_a_broker_with_the_only_replica_of_something_is_not_kept_for_it(cluster):
    """No waiting would ever help: it goes, as it would in Kafka, and leads until then."""
    cluster.start(1, 2)
    cluster.create("t", -1, assignments=((0, (1,)),))
    leave(cluster, 1)
    cluster.converge()
    assert states(cluster) == [(1, [1])]
    assert may_exit(cluster.image, 1)


def test_a_broker_that_restarted_meanwhile_does_not_drain(fleet):
    fleet.register(1, leaving=True)
    ((_, step),) = decide(fleet.image)
    assert isinstance(step, Step)
    (late,) = pack(fleet.epoch, [step])
    fleet.vanish(1)
    fleet.start(1)
    assert not fleet.commit(late)


def test_a_replica_that_comes_into_sync_lets_a_draining_broker_out_of_the_isr(cluster):
    cluster.start(1, 2, 3)
    cluster.create("t", -1, assignments=((0, (1, 2)),), configs={"min.insync.replicas": "2"})
    leave(cluster, 1)
    cluster.converge()
    assert states(cluster) == [(2, [1, 2])], (
        "both of two are needed: it stays in sync until it is gone"
    )
    assert may_exit(cluster.image, 1)
    cluster.stop(1)
    assert states(cluster) == [(2, [2])]
    assert cluster.topic("t").partitions[0].elr == (1,)
