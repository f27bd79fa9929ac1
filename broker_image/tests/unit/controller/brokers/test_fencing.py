from logfleet.controller.brokers.fencing import (
    admission_steps,
    fence_steps,
    newcomers,
    suspect_step,
)
from logfleet.controller.changes.store_writes import pack
from logfleet.metadata.kinds.brokers import FENCE, FENCED, FenceValue
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION
from logfleet.wire import uuids


def settled(cluster) -> bool:
    return not list(fence_steps(cluster.image)) and not newcomers(cluster.image)


def partition(cluster, index: int = 0):
    return cluster.topic("t").partitions[index]


def test_a_registered_broker_is_made_active_and_nothing_is_left_to_do(cluster):
    cluster.register(1)
    assert not cluster.image.brokers[1].is_active
    cluster.converge()
    assert cluster.image.brokers[1].is_active
    assert settled(cluster)


def test_a_broker_that_is_gone_is_fenced_once(cluster):
    cluster.start(1)
    cluster.stop(1)
    assert cluster.image.fences[1].state == FENCED
    assert settled(cluster)


def test_a_registration_that_was_fenced_stays_fenced(cluster):
    cluster.start(1)
    epoch = cluster.image.brokers[1].epoch
    cluster.put(FENCE.key(1), FenceValue(epoch, FENCED))
    assert settled(cluster)


def test_a_broker_that_came_back_meanwhile_is_not_fenced(cluster):
    cluster.start(1)
    cluster.vanish(1)
    (late,) = pack(cluster.epoch, fence_steps(cluster.image))
    cluster.register(1)
    assert not cluster.commit(late)
    cluster.converge()
    assert cluster.image.brokers[1].is_active


def test_a_broker_that_restarted_unseen_is_not_made_active_by_an_old_decision(cluster):
    cluster.register(1)
    (late,) = pack(cluster.epoch, admission_steps(cluster.image))
    cluster.vanish(1)
    cluster.register(1)
    assert not cluster.commit(late)


def test_a_late_duplicate_of_an_admission_lets_no_suspect_in_again(cluster):
    cluster.register(1)
    (admission,) = pack(cluster.epoch, admission_steps(cluster.image))
    assert cluster.commit(admission)
    suspect = suspect_step(cluster.image, 1, cluster.image.brokers[1].epoch)
    assert suspect is not None
    cluster.do([suspect])
    assert not cluster.commit(admission)
    assert cluster.image.brokers[1].is_fenced


def test_a_late_duplicate_of_a_fencing_undoes_no_later_one(cluster):
    """The fence of a broker that is gone names its last registration."""
    cluster.start(1)
    cluster.vanish(1)
    (late,) = pack(cluster.epoch, fence_steps(cluster.image))
    cluster.start(1)
    last = cluster.image.brokers[1].epoch
    cluster.stop(1)
    assert not cluster.commit(late)
    assert cluster.image.fences[1].broker_epoch == last


def test_a_broker_that_restarted_unseen_is_let_in_once_it_is_in_no_isr(cluster):
    cluster.start(1, 2, 3)
    cluster.create("t", 3, replication_factor=3)
    cluster.vanish(1)
    cluster.register(1)
    admission = list(admission_steps(cluster.image))
    cluster.sweep()
    assert not cluster.image.brokers[1].is_active
    for state in cluster.topic("t").partitions:
        assert 1 not in state.isr_ids
        assert state.leader != 1
    cluster.do(admission)
    assert cluster.image.brokers[1].is_active
    assert settled(cluster)


def test_a_broker_that_may_have_lost_records_is_nowhere_eligible_when_it_is_let_in(cluster):
    cluster.start(1, 2)
    cluster.create("t", replication_factor=2)
    cluster.vanish(1)
    cluster.stop(2)
    assert partition(cluster).elr == (1, 2)
    cluster.start(1, unclean=True)
    assert cluster.image.brokers[1].is_active
    assert (partition(cluster).leader, partition(cluster).elr) == (NO_LEADER, (2,))
    cluster.start(2)
    assert partition(cluster).leader == 2


def test_a_disk_from_before_the_last_active_registration_is_nowhere_eligible(cluster):
    cluster.start(1, 2)
    cluster.create("t", replication_factor=2, configs={"min.insync.replicas": "2"})
    old = cluster.image.brokers[1].epoch
    cluster.vanish(1)
    cluster.start(1, previous_epoch=old)
    cluster.in_sync("t", 0, 1)
    last = cluster.image.brokers[1].epoch
    cluster.vanish(1)
    cluster.stop(2)
    assert partition(cluster).elr == (1, 2)
    cluster.register(1, previous_epoch=last)  # and was stopped before it was active
    cluster.vanish(1)
    cluster.start(1, previous_epoch=last)
    assert partition(cluster).leader == 1, "its disk is that of its last active registration"
    cluster.vanish(1)
    cluster.converge()
    assert 1 in partition(cluster).elr
    cluster.start(1, previous_epoch=old)
    assert cluster.image.brokers[1].is_active
    assert (partition(cluster).leader, partition(cluster).elr) == (NO_LEADER, (2,))


def test_a_replica_that_is_not_in_sync_does_not_lead_while_an_eligible_one_registers(cluster):
    cluster.start(1, 2)
    cluster.create("t", replication_factor=2, configs={"unclean.leader.election.enable": "true"})
    uuid = uuids.to_text(cluster.topic("t").id)
    alone = partition(cluster).changed(isr=partition(cluster).isr[:1])
    cluster.put(PARTITION.key((uuids.from_text(uuid), 0)), alone)
    cluster.vanish(1)
    cluster.start(1)
    assert (partition(cluster).leader, partition(cluster).recovering) == (1, False)


def test_a_broker_that_nobody_reaches_is_fenced_though_its_lease_still_stands(cluster):
    cluster.start(1, 2)
    cluster.create("t", replication_factor=2)
    epoch = cluster.image.brokers[1].epoch
    step = suspect_step(cluster.image, 1, epoch)
    assert step is not None
    cluster.do([step])
    assert cluster.image.fences[1].state == FENCED
    cluster.converge()
    assert (partition(cluster).leader, partition(cluster).isr_ids) == (2, [2])
    assert suspect_step(cluster.image, 1, epoch) is None, "it is fenced"
    assert settled(cluster), "and stays so until it registers anew"


def test_a_suspicion_of_an_earlier_registration_changes_nothing(cluster):
    cluster.start(1)
    epoch = cluster.image.brokers[1].epoch
    step = suspect_step(cluster.image, 1, epoch)
    assert step is not None
    (late,) = pack(cluster.epoch, [step])
    cluster.vanish(1)
    assert suspect_step(cluster.image, 1, epoch) is None
    cluster.start(1)
    assert suspect_step(cluster.image, 1, epoch) is None
    assert not cluster.commit(late)
    assert cluster.image.brokers[1].is_active
