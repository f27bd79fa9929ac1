import pytest
from logfleet.controller.brokers.stop_check import NO_LEADER_LEFT, TOO_FEW_LEFT, CatchUp, check_stop
from logfleet.metadata.kinds.brokers import DRAINING, FENCE, FENCED, FenceValue


@pytest.fixture
def fleet(cluster):
    """Three brokers in three racks, and a topic that needs two of its three replicas."""
    for broker_id, rack in enumerate("abc", 1):
        cluster.start(broker_id, rack=rack)
    configs = {"min.insync.replicas": "2"}
    cluster.create("t", -1, assignments=((0, (1, 2, 3)),), configs=configs)
    return cluster


def objection(cluster, *going_down: int, **options):
    verdict = check_stop(cluster.image, set(going_down), **options)
    assert verdict.is_yes == (verdict.objection is None)
    return verdict.objection


def test_one_of_three_in_sync_replicas_may_stop(fleet):
    assert check_stop(fleet.image, {1}).is_yes
    assert check_stop(fleet.image, {1}).under_replicated == (("t", 0),)


def test_two_of_them_may_not(fleet):
    found = objection(fleet, 1, 2)
    assert (found.topic, found.index, found.rule) == ("t", 0, TOO_FEW_LEFT)
    assert str(found).startswith("t-0: fewer in-sync replicas")


def test_what_is_on_its_way_out_is_not_counted_on(fleet):
    epoch = fleet.image.brokers[3].epoch
    fleet.put(FENCE.key(3), FenceValue(epoch, DRAINING))
    assert objection(fleet, 1).rule == TOO_FEW_LEFT
    fleet.put(FENCE.key(3), FenceValue(epoch, FENCED))
    assert objection(fleet, 1).rule == TOO_FEW_LEFT


def test_who_is_gone_or_started_anew_is_not_counted_on(fleet):
    fleet.vanish(3)
    assert objection(fleet, 1).rule == TOO_FEW_LEFT
    fleet.register(3)
    assert objection(fleet, 1).rule == TOO_FEW_LEFT


def test_a_replica_in_a_failed_directory_is_not_counted_on(fleet):
    uuid = fleet.uuid("t")
    fleet.register(3, offline={uuid: (0,)})
    assert objection(fleet, 1).rule == TOO_FEW_LEFT


def test_a_follower_that_is_not_in_sync_keeps_the_others_where_they_are(fleet):
    fleet.stop(3)
    fleet.start(3)
    found = objection(fleet, 1)
    assert (found.rule, found.can_heal, found.wait_s) == (TOO_FEW_LEFT, True, None)
    topic_id = fleet.topic("t").id
    rates = {(topic_id, 0): CatchUp(1_000, 100.0)}
    assert objection(fleet, 1, catching_up=rates).wait_s == 10.0
    assert objection(fleet, 1, catching_up={(topic_id, 0): CatchUp(1_000, 0)}).wait_s is None
    fleet.in_sync("t", 0, 3)
    assert check_stop(fleet.image, {1}).is_yes


def test_the_only_replica_of_a_partition_may_not_stop_however_long_one_waits(cluster):
    cluster.start(1)
    cluster.create("t")
    found = objection(cluster, 1)
    assert (found.rule, found.can_heal) == (NO_LEADER_LEFT, False)


def test_what_has_no_leader_anyway_and_what_is_elsewhere_speaks_against_nothing(fleet):
    fleet.create("one", -1, assignments=((0, (2,)),))
    assert check_stop(fleet.image, {1}).is_yes
    fleet.stop(2)
    assert objection(fleet, 2) is None or objection(fleet, 2).topic == "t"


def test_a_zone_is_its_brokers(fleet):
    fleet.start(4, rack="a")
    zone = {broker.id for broker in fleet.image.brokers.values() if broker.rack == "a"}
    assert zone == {1, 4}
    assert check_stop(fleet.image, zone).is_yes
