import pytest
from logfleet.controller.brokers.readiness import not_ready, out_of_sync
from logfleet.metadata.kinds.brokers import DRAINING, FENCE, FENCED, FenceValue
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids


@pytest.fixture
def fleet(cluster):
    """Three brokers, and three partitions that need two of their three replicas; each broker leads one."""
    cluster.start(1, 2, 3)
    assignments = ((0, (1, 2, 3)), (1, (2, 3, 1)), (2, (3, 1, 2)))
    cluster.create("t", -1, assignments=assignments, configs={"min.insync.replicas": "2"})
    return cluster


def why(cluster, broker_id: int) -> str | None:
    broker = cluster.image.brokers.get(broker_id)
    epoch = 0 if broker is None else broker.epoch
    return not_ready(broker, BrokerEpoch(epoch), out_of_sync(cluster.topic("t"), broker_id))


def change(cluster, index: int, **changes) -> None:
    topic = cluster.topic("t")
    state = topic.partitions[index].changed(**changes)
    cluster.put(PARTITION.key((uuids.from_text(cluster.uuid("t")), index)), state)


def test_a_broker_is_ready_when_each_replica_of_it_is_in_sync(fleet):
    assert why(fleet, 1) is None
    fleet.stop(1)
    fleet.start(1)
    assert why(fleet, 1) == "3 of its replicas are not in sync yet"
    for index in range(3):
        assert why(fleet, 1) is not None
        fleet.in_sync("t", index, 1)
    assert why(fleet, 1) is None


def test_a_replica_that_falls_behind_makes_its_broker_not_ready_again(fleet):
    state = fleet.topic("t").partitions[1]
    change(fleet, 1, isr=tuple(each for each in state.isr if each[0] != 1))
    assert why(fleet, 1) == "1 of its replicas are not in sync yet"
    assert why(fleet, 2) is None


def test_a_replica_that_is_being_added_is_not_waited_for(fleet):
    state = fleet.topic("t").partitions[1]
    isr = tuple(each for each in state.isr if each[0] != 1)
    change(fleet, 1, isr=isr, adding=(1,))
    assert why(fleet, 1) is None


def test_a_partition_without_a_leader_is_not_waited_for(fleet):
    """Else a whole fleet that starts would wait for itself."""
    fleet.create("alone", -1, assignments=((0, (1,)),))
    fleet.stop(1)
    assert out_of_sync(fleet.topic("alone"), 1) == 0


def test_a_broker_that_is_not_let_in_or_leaves_is_not_ready(fleet):
    epoch = fleet.image.brokers[1].epoch
    fleet.put(FENCE.key(1), FenceValue(epoch, DRAINING))
    assert why(fleet, 1) == "it is leaving"
    fleet.put(FENCE.key(1), FenceValue(epoch, FENCED))
    assert why(fleet, 1) == "the controller does not let it lead yet"


def test_a_registration_of_a_former_process_does_not_make_this_one_ready(fleet):
    broker = fleet.image.brokers[1]
    said = "not registered with the cluster: the metadata store cannot be reached, or is behind"
    assert not_ready(broker, broker.epoch + 1, 0) == said
    assert not_ready(None, broker.epoch, 0) == said
