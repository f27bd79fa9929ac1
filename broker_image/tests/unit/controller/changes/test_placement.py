from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.controller.changes.placement import (
    NotEnoughBrokersError,
    add_replicas,
    drop_replicas,
    place,
)

RACKS = st.dictionaries(
    st.integers(0, 2000), st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=20
)


@given(RACKS, st.integers(0, 200), st.integers(1, 5), st.integers(0, 10**9), st.data())
def test_replicas_are_distinct_racks_spread_and_leaders_even(
    racks, partitions, factor, start, data
):
    factor = min(factor, len(racks))
    existing = data.draw(st.lists(st.sampled_from(sorted(racks)), max_size=10))
    placed = place(racks, partitions, factor, start=start, leaders=existing)
    assert len(placed) == partitions
    sizes = Counter(racks.values())
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(racks)
        used = Counter(racks[broker] for broker in replicas)
        assert len(used) == min(factor, len(sizes)), "as many racks as there are"
        for rack, count in used.items():
            assert count <= 1 + min(
                used.get(other, 0)
                for other in sizes
                if used.get(other, 0) < sizes[other] or other == rack
            ), "no rack twice while another has a free broker"
    led = {broker: existing.count(broker) for broker in racks}
    for replicas in placed:
        assert led[replicas[0]] == min(led.values()), "the one that leads fewest leads next"
        led[replicas[0]] += 1


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_in_equal_racks_every_broker_holds_about_the_same(per_rack, rack_count, factor, start):
    racks = {
        rack * 10 + member: f"r{rack}" for rack in range(rack_count) for member in range(per_rack)
    }
    factor = min(factor, rack_count)
    rounds = 30
    placed = place(racks, rounds * len(racks), factor, start=start)
    held = Counter(broker for replicas in placed for broker in replicas)
    assert set(held) == set(racks)
    mean = rounds * factor
    assert max(held.values()) - min(held.values()) <= max(2, 0.1 * mean), held


def test_the_example_of_the_docstring():
    assert place({1: "a", 2: "a", 3: "b", 4: "c"}, 4, 2, start=0) == [
        (1, 3),
        (3, 4),
        (4, 1),
        (2, 3),
    ]


def test_one_replica_each_goes_round_all_brokers_and_zones_alternate():
    racks = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
    assert place(racks, 7, 1, start=2) == [(3,), (4,), (5,), (6,), (1,), (2,), (3,)]


def test_growth_begins_where_the_fewest_leaders_are():
    racks = dict.fromkeys([1, 2, 3])
    assert sorted(place(racks, 2, 1, start=0, leaders=[2, 2, 9])) == [(1,), (3,)]


def test_a_lost_broker_s_leaders_have_different_followers():
    racks = {broker: "abc"[broker % 3] for broker in range(9)}
    placed = place(racks, 90, 2, start=0)
    for lost in racks:
        assert len({follower for leader, follower in placed if leader == lost}) >= 3


def test_fewer_brokers_than_replicas_is_refused_with_both_numbers():
    with pytest.raises(
        NotEnoughBrokersError, match=r"factor of 3 .* only 2 broker\(s\) are registered"
    ):
        place({1: None, 2: None}, 1, 3, start=0)


def test_no_partitions_need_no_place():
    assert place({1: None}, 0, 1, start=5) == []


@given(RACKS, st.integers(1, 5), st.integers(0, 100), st.data())
def test_added_replicas_are_new_and_of_the_racks_used_least(racks, count, turn, data):
    present = data.draw(st.lists(st.sampled_from(sorted(racks)), min_size=1, unique=True))
    count = min(count, len(racks) - len(present))
    added = add_replicas(racks, present, count, {}, turn)
    assert len({*added, *present}) == len(present) + count
    used = Counter(racks[broker] for broker in present)
    left = Counter(racks.values()) - used
    for broker in added:
        assert used[racks[broker]] == min(used[rack] for rack in left)
        used[racks[broker]] += 1
        left -= Counter([racks[broker]])


def test_of_equals_who_holds_least_is_added_then_each_in_turn():
    racks = {1: "a", 2: "b", 3: "b"}
    assert add_replicas(racks, [1], 1, {2: 5, 3: 4}, 0) == (3,)
    assert {add_replicas(racks, [1], 1, {}, turn) for turn in range(3)} == {(2,), (3,)}


@pytest.mark.parametrize(
    "replicas, count, leader, left",
    [
        ((1, 2, 3), 1, 1, (1, 2)),  # all alike: the last goes
        ((1, 2, 3), 2, 3, (3,)),  # the leader stays
        ((1, 4, 2), 1, 1, (1, 2)),  # 1 and 4 are in one rack
        ((1, 9, 8), 1, 9, (1, 9)),  # a broker that nobody knows has a rack of its own
    ],
)
def test_replicas_are_dropped_where_a_rack_has_most_and_the_leader_last(
    replicas, count, leader, left
) -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    assert drop_replicas(racks, replicas, count, leader, replicas) == left


def test_replicas_that_are_not_in_sync_are_dropped_first() -> None:
    racks = {1: "a", 3: "c"}  # 2 is gone
    assert drop_replicas(racks, (1, 2, 3), 1, 1, (1, 3)) == (1, 3)
    assert drop_replicas(racks, (2, 1, 3), 2, 3, (3,)) == (3,)
