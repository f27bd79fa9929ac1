from collections import Counter

import pytest
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.internal_topics import factor_at_creation, raising_steps

OFFSETS = "__consumer_offsets"
FACTOR = "offsets.topic.replication.factor"
ZONES = {1: "a", 2: "b", 3: "c", 4: "a"}


def start(cluster, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        cluster.start(broker_id, rack=ZONES[broker_id])


def raise_topics(cluster) -> None:
    cluster.do(raising_steps(cluster.image, cluster.layers))


def with_offsets(cluster, *brokers: int, partitions: int = 6, name: str = OFFSETS) -> None:
    start(cluster, *brokers)
    factor = factor_at_creation(name, cluster.image, cluster.layers)
    cluster.create(name, partitions, replication_factor=factor)


def replicas(cluster, name: str = OFFSETS) -> list[tuple[int, ...]]:
    return [partition.replicas for partition in cluster.topic(name).partitions]


@pytest.mark.parametrize("brokers, factor", [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_it_is_created_with_as_many_replicas_as_there_are_brokers_three_at_most(
    cluster, brokers, factor
):
    start(cluster, *range(1, brokers + 1))
    assert factor_at_creation(OFFSETS, cluster.image, BrokerLayers()) == factor


def test_a_factor_that_is_set_is_never_clipped(cluster):
    start(cluster, 1)
    for text in ("1", "3", "5"):
        layers = BrokerLayers({FACTOR: text})
        assert factor_at_creation(OFFSETS, cluster.image, layers) == int(text)


@pytest.mark.parametrize("name", [OFFSETS, "__transaction_state", "__share_group_state"])
def test_it_gets_more_replicas_as_brokers_come_over_the_zones(cluster, name):
    with_offsets(cluster, 1, name=name)
    raise_topics(cluster)
    assert replicas(cluster, name) == [(1,)] * 6
    start(cluster, 4)
    raise_topics(cluster)
    assert {frozenset(each) for each in replicas(cluster, name)} == {frozenset({1, 4})}
    start(cluster, 2, 3)
    raise_topics(cluster)
    for each in replicas(cluster, name):
        assert len(each) == 3
        assert set(each) < {1, 2, 3, 4}
    held = Counter(broker for each in replicas(cluster, name) for broker in each)
    assert abs(held[2] - held[3]) <= 1
    assert list(raising_steps(cluster.image, cluster.layers)) == []


def test_each_zone_gets_a_replica_before_any_gets_two(cluster):
    with_offsets(cluster, 1)
    start(cluster, 4, 2, 3)
    raise_topics(cluster)
    assert {frozenset(each) for each in replicas(cluster)} == {frozenset({1, 2, 3})}


def test_who_is_added_is_being_added_until_it_is_in_sync_and_nothing_waits_for_it(cluster):
    cluster.layers = BrokerLayers({"min.insync.replicas": "2"})
    with_offsets(cluster, 1, partitions=1)
    start(cluster, 2, 3)
    before = cluster.topic(OFFSETS).partitions[0]
    raise_topics(cluster)
    state = cluster.topic(OFFSETS).partitions[0]
    assert set(state.adding) == {2, 3}
    assert (state.isr, state.leader, state.leader_epoch) == (before.isr, 1, before.leader_epoch)
    cluster.in_sync(OFFSETS, 0, 2)
    cluster.converge()
    assert set(cluster.topic(OFFSETS).partitions[0].adding) == {2, 3}
    cluster.in_sync(OFFSETS, 0, 3)
    cluster.converge()
    state = cluster.topic(OFFSETS).partitions[0]
    assert (state.adding, len(state.isr)) == ((), 3)


def test_preferred_leaders_are_shared_out_and_nobody_else_leads_yet(cluster):
    with_offsets(cluster, 1, partitions=9)
    start(cluster, 2, 3)
    raise_topics(cluster)
    partitions = cluster.topic(OFFSETS).partitions
    assert Counter(each.replicas[0] for each in partitions) == {1: 3, 2: 3, 3: 3}
    assert {each.leader for each in partitions} == {1}


def test_a_factor_that_is_set_is_what_it_is_raised_to(cluster):
    with_offsets(cluster, 1)
    start(cluster, 2, 3)
    assert list(raising_steps(cluster.image, BrokerLayers({FACTOR: "1"}))) == []
    cluster.do(raising_steps(cluster.image, BrokerLayers({FACTOR: "2"})))
    assert {len(each) for each in replicas(cluster)} == {2}


def test_what_nobody_leads_and_what_is_not_internal_is_left_alone(cluster):
    with_offsets(cluster, 1)
    cluster.create("t", replication_factor=1)
    start(cluster, 2, 3)
    cluster.stop(1)
    assert list(raising_steps(cluster.image, cluster.layers)) == []
    start(cluster, 1)
    raise_topics(cluster)
    assert replicas(cluster, "t") != replicas(cluster)
    assert {len(each) for each in replicas(cluster)} == {3}
    assert len(replicas(cluster, "t")[0]) == 1


def test_nobody_is_taken_away_when_brokers_go(cluster):
    with_offsets(cluster, 1, 2, 3)
    before = replicas(cluster)
    cluster.stop(3)
    raise_topics(cluster)
    assert replicas(cluster) == before
