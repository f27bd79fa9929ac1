import msgspec
import pytest
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.feature_level import GIVING_UP
from logfleet.controller.brokers.fencing import admission_steps
from logfleet.controller.changes.election_writes import (
    REPLACED_MS,
    SETTLED_MS,
    balance_steps,
    elect,
    election_steps,
    imbalances,
    min_isr,
    preferences,
)
from logfleet.controller.changes.store_writes import pack
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, TOPIC, TopicValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Put, Txn
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal


def partition(cluster, index: int = 0):
    return cluster.topic("t").partitions[index]


def test_the_only_replica_leads_stops_and_leads_again_with_a_higher_epoch_each_time(cluster):
    cluster.start(1)
    cluster.create("t")
    first = partition(cluster)
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (1, 0, 0)
    cluster.stop(1)
    gone = partition(cluster)
    assert (gone.leader, gone.leader_epoch, gone.partition_epoch) == (NO_LEADER, 1, 1)
    assert (gone.isr, gone.elr) == ((), (1,)), "it still holds what was committed"
    cluster.start(1)
    back = partition(cluster)
    assert (back.leader, back.leader_epoch, back.partition_epoch) == (1, 2, 2)
    assert back.isr == ((1, cluster.image.brokers[1].epoch),)


def test_a_restart_between_two_looks_is_a_new_term_under_the_new_broker_epoch(cluster):
    cluster.start(1)
    cluster.create("t")
    before = partition(cluster)
    assert cluster.commit(Txn(success=[BROKER.delete(1)]))
    cluster.start(1)
    after = partition(cluster)
    assert (after.leader, after.leader_epoch) == (1, 2)
    assert after.isr != before.isr


def test_who_was_replaced_comes_first_and_who_has_only_just_started_last_by_its_own_clock(cluster):
    now_ms = 1_000_000
    ages_ms = {2: SETTLED_MS, 3: 5, 4: SETTLED_MS - 1, 6: REPLACED_MS - 1, 7: REPLACED_MS}
    ahead = {5: now_ms + 9}
    without_start = {1: 0}
    since = {each: now_ms - age_ms for each, age_ms in ages_ms.items()} | ahead | without_start
    for broker_id, at_ms in since.items():
        cluster.put(BROKER.key(broker_id), BrokerValue("i", (), since_ms=at_ms))
    assert preferences(cluster.image, now_ms) == {2: -2, 6: -1, 4: 1, 3: 2}, (
        "5 is ahead of this clock, or we behind"
    )


def test_brokers_that_started_together_with_their_fleet_are_no_roll(cluster):
    now_ms = 1_000_000
    ages_ms = {1: 2 * SETTLED_MS + 1, 2: 3 * SETTLED_MS - 1, 3: 3 * SETTLED_MS - 2, 4: SETTLED_MS}
    for broker_id, age_ms in ages_ms.items():
        cluster.put(BROKER.key(broker_id), BrokerValue("i", (), since_ms=now_ms - age_ms))
    assert preferences(cluster.image, now_ms) == {4: -1}, "4 started after the others"


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
    cluster.put(BROKER.key(1), BrokerValue("i", ()))
    cluster.do(admission_steps(cluster.image))
    topic = cluster.topic("t")
    (late,) = pack(cluster.epoch, election_steps(cluster.image, topic, cluster.layers))
    assert cluster.commit(Txn(success=[BROKER.delete(1)]))
    cluster.put(BROKER.key(1), BrokerValue("i2", ()))
    assert not cluster.commit(late)


def test_an_election_does_not_overwrite_what_changed_meanwhile(cluster):
    cluster.start(1)
    cluster.create("t")
    topic = cluster.topic("t")
    assert cluster.commit(Txn(success=[BROKER.delete(1)]))
    (late,) = pack(cluster.epoch, election_steps(cluster.image, topic, cluster.layers))
    key = PARTITION.key((topic.id, 0))
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
    cluster.put(TOPIC.key("t"), TopicValue(uuid, {"min.insync.replicas": "2"}))
    cluster.converge()
    changed = partition(cluster)
    assert (changed.min_isr, changed.leader_epoch, changed.partition_epoch) == (2, 0, 1)
    assert list(election_steps(cluster.image, cluster.topic("t"), cluster.layers)) == []


def refused(cluster, *, unclean: bool) -> ErrorCode:
    answer = elect(cluster.image, cluster.topic("t"), 0, unclean=unclean)
    assert isinstance(answer, Refusal)
    return answer.error


def test_an_election_on_demand_has_nothing_to_do_or_nobody_to_elect(cluster):
    cluster.start(1)
    cluster.create("t")
    assert refused(cluster, unclean=False) is ErrorCode.ELECTION_NOT_NEEDED
    assert refused(cluster, unclean=True) is ErrorCode.ELECTION_NOT_NEEDED
    cluster.stop(1)
    assert refused(cluster, unclean=False) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert refused(cluster, unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_what_nobody_has_any_more_is_given_up_on_demand_and_only_while_all_its_brokers_run(cluster):
    cluster.start(1, 2, level=GIVING_UP)
    cluster.create("t", assignments=((0, (1, 2)),), partitions=-1)
    uuid = uuids.to_text(cluster.topic("t").id)
    cluster.stop(2)
    cluster.stop(1)
    gone = {"directories": ("new",), "unclean": True, "offline": {uuid: (0,)}, "level": GIVING_UP}
    cluster.start(1, **gone)
    assert refused(cluster, unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, (
        "2 may have it"
    )
    cluster.start(2, **gone)
    assert partition(cluster).leader == NO_LEADER
    assert refused(cluster, unclean=False) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    answer = elect(cluster.image, cluster.topic("t"), 0, unclean=True)
    assert isinstance(answer, Refusal)
    assert "needs level 2 of logfleet.version, the cluster is at 1" in answer.message
    cluster.put(FEATURES.prefix, FeaturesValue(GIVING_UP))
    step = elect(cluster.image, cluster.topic("t"), 0, unclean=True)
    assert isinstance(step, Step)
    cluster.do([step])
    assert partition(cluster).given_up
    assert partition(cluster).leader == NO_LEADER, "no broker can begin it yet"
    cluster.stop(2)
    cluster.start(2, directories=("new",), level=GIVING_UP)
    assert (partition(cluster).leader, partition(cluster).given_up) == (2, False)


def test_the_preferred_replica_is_elected_on_demand_once_it_is_in_sync(cluster):
    cluster.start(1, 2)
    cluster.create("t", assignments=((0, (1, 2)),), partitions=-1)
    cluster.stop(1)
    cluster.start(1)
    assert partition(cluster).leader == 2
    assert refused(cluster, unclean=False) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.in_sync("t", 0, 1)
    step = elect(cluster.image, cluster.topic("t"), 0, unclean=False)
    assert isinstance(step, Step)
    cluster.do([step])
    assert (partition(cluster).leader, partition(cluster).isr_ids) == (1, [1, 2])


def test_a_replica_that_is_not_in_sync_is_elected_on_demand(cluster):
    cluster.start(1, 2)
    cluster.create("t", replication_factor=2)
    cluster.stop(2)
    cluster.stop(1)
    cluster.start(2)
    assert not partition(cluster).has_leader
    step = elect(cluster.image, cluster.topic("t"), 0, unclean=True)
    assert isinstance(step, Step)
    cluster.do([step])
    assert (partition(cluster).leader, partition(cluster).recovering) == (2, True)


@pytest.mark.parametrize("where", ["topic", "cluster"])
def test_a_replica_that_is_not_in_sync_leads_where_the_configuration_says_so(cluster, where):
    cluster.start(1, 2)
    setting = {"unclean.leader.election.enable": "true"}
    if where == "cluster":
        cluster.layers = BrokerLayers(cluster=setting)
    cluster.create("t", replication_factor=2, configs=setting if where == "topic" else {})
    cluster.stop(2)
    cluster.stop(1)
    cluster.start(2)
    assert (partition(cluster).leader, partition(cluster).recovering) == (2, True)


def test_a_replica_in_a_directory_that_is_offline_leads_nothing_until_it_is_back(cluster):
    """KIP-858: the broker itself is active, and leads what is in its other directories."""
    cluster.start(1)
    cluster.create("t", 2)
    registered = cluster.image.brokers[1]
    uuid = uuids.to_text(cluster.topic("t").id)
    registration = msgspec.structs.replace(registered.value, offline={uuid: (1,)})
    cluster.put(BROKER.key(1), registration)
    cluster.converge()
    assert cluster.image.brokers[1].epoch == registered.epoch
    assert cluster.image.is_offline(1, cluster.topic("t").id, 1)
    assert not cluster.image.is_offline(1, cluster.topic("t").id, 0)
    assert not cluster.image.is_offline(2, cluster.topic("t").id, 1)
    assert (partition(cluster, 0).leader, partition(cluster, 0).leader_epoch) == (1, 0)
    assert (partition(cluster, 1).leader, partition(cluster, 1).leader_epoch) == (NO_LEADER, 1)
    assert partition(cluster, 1).elr == (1,), "it still holds what was committed"
    cluster.put(BROKER.key(1), registered.value)
    cluster.converge()
    assert (partition(cluster, 1).leader, partition(cluster, 1).leader_epoch) == (1, 2)


def test_a_partition_goes_back_to_its_first_replica_if_it_could_have_led_all_the_time(cluster):
    cluster.start(1, 2, 3)
    cluster.create("t", -1, assignments=((0, (1, 2)), (1, (1, 2)), (2, (2, 1)), (3, (1, 3))))
    cluster.stop(1)
    cluster.start(1)
    topic = cluster.topic("t")
    assert list(imbalances(cluster.image, topic)) == [], "it is not in sync yet"
    for index in (0, 1, 3):
        cluster.in_sync("t", index, 1)
    found = list(imbalances(cluster.image, cluster.topic("t")))
    assert found == [(topic.id, 0, 1), (topic.id, 1, 1), (topic.id, 3, 1)]
    step = elect(cluster.image, cluster.topic("t"), 1, unclean=False)
    assert isinstance(step, Step)
    cluster.do([step])
    cluster.stop(3)
    cluster.do(balance_steps(cluster.image, [*found, (bytes(16), 9, 1)]))
    assert [each.leader for each in cluster.topic("t").partitions] == [1, 1, 2, 1]
    assert [each.leader_epoch for each in cluster.topic("t").partitions] == [2, 2, 0, 2]
