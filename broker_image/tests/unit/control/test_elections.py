import msgspec
from logfleet.control.elections import (
    election_steps,
    fence_steps,
    min_isr,
    next_state,
    refuse_election,
)
from logfleet.control.topic_configs import BrokerLayers
from logfleet.control.transactions import pack
from logfleet.metadata import keys
from logfleet.metadata.keys import NO_LEADER, TopicValue
from logfleet.metadata.store import Delete, Put, Txn
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode


def partition(cluster, index: int = 0):
    return cluster.topic("t").partitions[index]


def test_a_registered_broker_is_made_active_and_nothing_is_left_to_do(cluster):
    cluster.put(keys.broker(1), keys.BrokerValue("i", ()))
    assert not cluster.image.brokers[1].is_active
    cluster.converge()
    assert cluster.image.brokers[1].is_active
    assert list(fence_steps(cluster.image)) == []


def test_a_broker_that_is_gone_is_fenced_once(cluster):
    cluster.start(1)
    cluster.stop(1)
    assert cluster.image.fences[1].state == keys.FENCED
    assert list(fence_steps(cluster.image)) == []


def test_a_registration_that_was_fenced_stays_fenced(cluster):
    cluster.start(1)
    epoch = cluster.image.brokers[1].epoch
    cluster.put(keys.fence(1), keys.FenceValue(epoch, keys.FENCED))
    assert list(fence_steps(cluster.image)) == []


def test_a_broker_that_came_back_meanwhile_is_not_fenced(cluster):
    cluster.start(1)
    assert cluster.commit(Txn(success=[Delete(keys.broker(1))]))
    (late,) = pack(cluster.epoch, fence_steps(cluster.image))
    cluster.put(keys.broker(1), keys.BrokerValue("i2", ()))
    assert not cluster.commit(late)
    cluster.converge()
    assert cluster.image.brokers[1].is_active


def test_a_broker_that_restarted_unseen_is_not_made_active_by_an_old_decision(cluster):
    cluster.put(keys.broker(1), keys.BrokerValue("i", ()))
    (late,) = pack(cluster.epoch, fence_steps(cluster.image))
    assert cluster.commit(Txn(success=[Delete(keys.broker(1))]))
    cluster.put(keys.broker(1), keys.BrokerValue("i2", ()))
    assert not cluster.commit(late)


def test_the_only_replica_leads_stops_and_leads_again_with_a_higher_epoch_each_time(cluster):
    cluster.start(1)
    cluster.create("t")
    first = partition(cluster)
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (1, 0, 0)
    cluster.stop(1)
    gone = partition(cluster)
    assert (gone.leader, gone.leader_epoch, gone.partition_epoch) == (NO_LEADER, 1, 1)
    assert gone.isr == first.isr, "it still holds what was committed"
    cluster.start(1)
    back = partition(cluster)
    assert (back.leader, back.leader_epoch, back.partition_epoch) == (1, 2, 2)
    assert back.isr == ((1, cluster.image.brokers[1].epoch),)


def test_a_restart_between_two_looks_is_a_new_term_under_the_new_broker_epoch(cluster):
    cluster.start(1)
    cluster.create("t")
    before = partition(cluster)
    assert cluster.commit(Txn(success=[Delete(keys.broker(1))]))
    cluster.start(1)
    after = partition(cluster)
    assert (after.leader, after.leader_epoch) == (1, 1)
    assert after.isr != before.isr


def test_other_brokers_partitions_are_left_alone(cluster):
    cluster.start(1, 2)
    cluster.create("t", 4)
    before = cluster.topic("t").partitions
    cluster.stop(2)
    after = cluster.topic("t").partitions
    for old, new in zip(before, after, strict=True):
        assert (new is old) == (old.leader == 1)


def test_an_election_from_an_old_image_does_not_win_against_a_restart(cluster):
    cluster.start(1)
    cluster.create("t")
    cluster.stop(1)
    cluster.put(keys.broker(1), keys.BrokerValue("i", ()))
    for txn in pack(cluster.epoch, fence_steps(cluster.image)):
        assert cluster.commit(txn)
    topic = cluster.topic("t")
    (late,) = pack(cluster.epoch, election_steps(cluster.image, topic, cluster.layers))
    assert cluster.commit(Txn(success=[Delete(keys.broker(1))]))
    cluster.put(keys.broker(1), keys.BrokerValue("i2", ()))
    assert not cluster.commit(late)


def test_an_election_does_not_overwrite_what_changed_meanwhile(cluster):
    cluster.start(1)
    cluster.create("t")
    topic = cluster.topic("t")
    assert cluster.commit(Txn(success=[Delete(keys.broker(1))]))
    (late,) = pack(cluster.epoch, election_steps(cluster.image, topic, cluster.layers))
    key = keys.partition(uuids.to_text(topic.id), 0)
    item = cluster.keyspace.get(key)
    assert item is not None
    assert cluster.commit(Txn(success=[Put(key, item.value)]))
    assert not cluster.commit(late)


def test_min_insync_replicas_follows_the_topic_then_the_cluster():
    layers = BrokerLayers({"min.insync.replicas": "2"}, {"min.insync.replicas": "3"})
    assert min_isr("4", layers) == 4
    assert min_isr(None, layers) == 3
    assert min_isr(None, BrokerLayers()) == 1


def test_a_changed_min_insync_replicas_reaches_the_partition_without_a_new_term(cluster):
    cluster.start(1)
    cluster.create("t")
    topic = cluster.topic("t")
    uuid = uuids.to_text(topic.id)
    cluster.put(keys.topic("t"), TopicValue(uuid, {"min.insync.replicas": "2"}))
    cluster.converge()
    changed = partition(cluster)
    assert (changed.min_isr, changed.leader_epoch, changed.partition_epoch) == (2, 0, 1)
    assert next_state(cluster.image, changed, 2, is_offline=False) is None


def test_an_election_on_demand_has_nothing_to_do_or_nobody_to_elect(cluster):
    cluster.start(1)
    cluster.create("t")
    for unclean in (False, True):
        refusal = refuse_election(partition(cluster), unclean=unclean)
        assert refusal.error is ErrorCode.ELECTION_NOT_NEEDED
    cluster.stop(1)
    assert refuse_election(partition(cluster), unclean=False).error is (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    assert refuse_election(partition(cluster), unclean=True).error is (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )


def test_a_replica_in_a_directory_that_is_offline_leads_nothing_until_it_is_back(cluster):
    """KIP-858: the broker itself is active, and leads what is in its other directories."""
    cluster.start(1)
    cluster.create("t", 2)
    registered = cluster.image.brokers[1]
    uuid = uuids.to_text(cluster.topic("t").id)
    told = msgspec.structs.replace(registered.value, offline={uuid: (1,)})
    cluster.put(keys.broker(1), told)
    cluster.converge()
    assert cluster.image.brokers[1].epoch == registered.epoch
    assert cluster.image.is_offline(1, cluster.topic("t").id, 1)
    assert not cluster.image.is_offline(1, cluster.topic("t").id, 0)
    assert not cluster.image.is_offline(2, cluster.topic("t").id, 1)
    assert (partition(cluster, 0).leader, partition(cluster, 0).leader_epoch) == (1, 0)
    assert (partition(cluster, 1).leader, partition(cluster, 1).leader_epoch) == (NO_LEADER, 1)
    assert partition(cluster, 1).isr == ((1, registered.epoch),), (
        "it still holds what was committed"
    )
    cluster.put(keys.broker(1), registered.value)
    cluster.converge()
    assert (partition(cluster, 1).leader, partition(cluster, 1).leader_epoch) == (1, 2)
