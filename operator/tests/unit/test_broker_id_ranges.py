import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.resources.cluster import ClusterSpec, MetadataSpec, Pool, Storage
from logfleet.resources.plan import Reason, SpecRefusal
from logfleet_operator.clusters.broker_id_ranges import (
    BrokerIdRange,
    RangeClaim,
    allocate,
    merge,
    spread,
)


def spec(zones: list[str], **replicas: int) -> ClusterSpec:
    pools = [Pool(name, Storage("1Gi"), count) for name, count in replicas.items()]
    return ClusterSpec(pools=pools, metadata=MetadataSpec(endpoints=["etcd:2379"]), zones=zones)


@pytest.mark.parametrize(
    "present, total, wanted",
    [
        ({}, 3, {"a": 1, "b": 1, "c": 1}),
        ({}, 5, {"a": 2, "b": 2, "c": 1}),
        ({}, 1, {"a": 1, "b": 0, "c": 0}),
        ({"a": 2, "b": 2}, 4, {"a": 2, "b": 2, "c": 0}),
        ({"a": 2, "b": 2}, 5, {"a": 2, "b": 2, "c": 1}),
        ({"c": 1}, 3, {"a": 1, "b": 1, "c": 1}),
        ({"a": 2}, 1, {"a": 1, "b": 0, "c": 0}),
        ({"a": 2, "b": 2, "c": 2}, 4, {"a": 2, "b": 1, "c": 1}),
        ({"d": 1}, 3, {"a": 1, "b": 1, "c": 1}),
        ({"d": 0}, 3, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_brokers_go_where_fewest_are_and_those_present_stay(
    present: dict[str, int], total: int, wanted: dict[str, int]
) -> None:
    assert spread(present, ["a", "b", "c"], total, {}) == wanted


@pytest.mark.parametrize(
    "asked, ran, total, wanted",
    [
        # what was asked for before and never ran goes away, the newest-zone first
        ({"a": 10, "b": 10, "c": 10}, {"a": 1, "b": 1, "c": 1}, 3, {"a": 1, "b": 1, "c": 1}),
        ({"a": 10, "b": 10, "c": 10}, {"a": 2, "b": 1}, 3, {"a": 2, "b": 1, "c": 0}),
        ({"a": 10, "b": 10, "c": 10}, {"a": 2, "b": 1}, 4, {"a": 2, "b": 1, "c": 1}),
        # a pod that waits for a node stays where it is asked for
        ({"b": 2, "a": 1}, {"a": 1, "b": 1}, 3, {"a": 1, "b": 2, "c": 0}),
        ({"a": 1, "typo": 1}, {"a": 1}, 2, {"a": 1, "b": 1, "c": 0}),
        ({}, {"a": 2, "b": 2}, 3, {"a": 2, "b": 1, "c": 0}),
    ],
)
def test_only_what_ran_must_stay(
    asked: dict[str, int], ran: dict[str, int], total: int, wanted: dict[str, int]
) -> None:
    assert spread(ran, ["a", "b", "c"], total, asked) == wanted


@given(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_growing_step_by_step_or_at_once_never_moves_a_broker(
    zones: list[str], steps: list[int]
) -> None:
    counts: dict[str, int] = {}
    total = 0
    for step in steps:
        total += step
        grown = spread(counts, zones, total, counts)
        assert grown is not None
        assert all(grown[zone] >= count for zone, count in counts.items())
        counts = grown
    at_once = spread({}, zones, total, {})
    assert at_once is not None
    assert sorted(at_once.values()) == sorted({**dict.fromkeys(zones, 0), **counts}.values())
    assert max(at_once.values()) - min(at_once.values()) <= 1


def test_each_pool_has_a_range_in_each_zone() -> None:
    assert allocate(spec(["a", "b"], one=2, two=1), []) == [
        BrokerIdRange("one", "a", 0, 1),
        BrokerIdRange("one", "b", 1000, 1),
        BrokerIdRange("two", "a", 2000, 1),
    ]


def test_a_base_is_kept_and_a_new_one_lies_above_all_that_were_given() -> None:
    known = [BrokerIdRange("one", "b", 3000, 1), BrokerIdRange("one", "a", 0, 0)]
    assert allocate(spec(["a", "b", "c"], one=3), known) == [
        BrokerIdRange("one", "a", 0, 1),
        BrokerIdRange("one", "b", 3000, 1),
        BrokerIdRange("one", "c", 4000, 1),
    ]


@pytest.mark.parametrize(
    "wanted, leaving",
    [
        (spec(["a"], one=1), {1000: 1}),
        (spec(["a", "b"], one=1), {1000: 1}),
        (spec(["a", "b"], two=2), {0: 1, 1000: 1}),
        (spec(["a", "b"], one=2), {}),
    ],
)
def test_what_ran_and_is_not_wanted_is_there_until_it_is_empty(
    wanted: ClusterSpec, leaving: dict[int, int]
) -> None:
    found = allocate(
        wanted, [BrokerIdRange("one", "a", 0, 1, 1), BrokerIdRange("one", "b", 1000, 1, 1)]
    )
    assert {each.base: each.leaving for each in found if each.leaving} == leaving
    assert [each.replicas for each in found if each.pool == "one"] == [1, 1]


@pytest.mark.parametrize(
    "wanted, ids",
    [
        (spec(["a"], one=1), [(0, 1)]),
        (spec(["a", "b"], one=1), [(0, 1), (1000, 0)]),
        (spec(["a", "c"], one=2), [(0, 1), (2000, 1)]),
    ],
)
def test_what_never_ran_can_be_written_back(
    wanted: ClusterSpec, ids: list[tuple[int, int]]
) -> None:
    given = [BrokerIdRange("one", "a", 0, 1, 1), BrokerIdRange("one", "b", 1000, 3, 0)]
    found = allocate(wanted, given)
    assert [(each.base, each.replicas) for each in found] == ids


def claim(source: str, zone: str, base: int, replicas: int) -> RangeClaim:
    return RangeClaim(source, BrokerIdRange("one", zone, base, replicas))


def test_several_sources_that_agree_are_one() -> None:
    claims = [claim("record", "b", 1000, 1), claim("volume", "b", 1000, 3), claim("set", "a", 0, 1)]
    assert merge(claims) == [BrokerIdRange("one", "a", 0, 1), BrokerIdRange("one", "b", 1000, 3)]


@pytest.mark.parametrize(
    "claims",
    [
        [claim("record", "a", 0, 1), claim("volume", "a", 1000, 1)],
        [claim("record", "a", 0, 1), claim("volume", "b", 0, 1)],
    ],
)
def test_sources_that_contradict_each_other_are_a_conflict(claims: list[RangeClaim]) -> None:
    refused = merge(claims)
    assert isinstance(refused, SpecRefusal)
    assert refused.reason is Reason.CONFLICT
