import pytest
from logfleet.cli.fleet.cluster import _echo, overview
from logfleet.cli.output.formats import Output
from logfleet.client.admin import ClusterDescription
from logfleet.client.metadata import NO_LEADER, Node, PartitionInfo, Topic

BROKERS = (Node(1, "h1", 9092, "a"), Node(2, "h2", 9092, "b"))


def topic(name: str, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> Topic:
    rows = [
        PartitionInfo(index, leader, 0, replicas, isr)
        for index, (leader, replicas, isr) in enumerate(partitions)
    ]
    return Topic(name, bytes(16), internal=False, partitions=tuple(rows))


TOPICS = [
    topic("t", (1, (1, 2, 3), (1, 2)), (2, (2, 3, 1), (2,)), (NO_LEADER, (3,), (3,))),
    topic("u", (1, (1, 2), (1, 2))),
]


def test_brokers_are_shown_with_their_zones_state_and_load() -> None:
    found = overview(ClusterDescription("c", 2, BROKERS, frozenset({1})), TOPICS, {}, {2: True})
    assert found["brokers"] == [
        {
            "id": 1,
            "zone": "a",
            "host": "h1",
            "port": 9092,
            "state": "fenced",
            "cordoned": None,
            "controller": False,
            "leads": 2,
            "replicas": 3,
        },
        {
            "id": 2,
            "zone": "b",
            "host": "h2",
            "port": 9092,
            "state": "active",
            "cordoned": True,
            "controller": True,
            "leads": 1,
            "replicas": 3,
        },
        {"id": 3, "state": "unregistered", "controller": False, "leads": 0, "replicas": 3},
    ]


def test_partitions_that_lack_something_are_named() -> None:
    found = overview(ClusterDescription("c", 2, BROKERS), TOPICS, {"t": 2, "u": 5}, {})
    assert found["partitions"] == 4
    assert found["under_replicated"] == ["t-0", "t-1"]
    assert found["under_min_isr"] == ["t-1"]  # of fewer replicas than min.insync.replicas all count
    assert found["offline"] == ["t-2"]


def test_people_are_shown_a_table_and_the_first_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = topic("v", *[(1, (1, 2), (1,))] * 25)
    _echo(
        overview(ClusterDescription("c", 2, BROKERS), [*TOPICS, many], {}, {1: True, 2: True}),
        Output(),
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "Cluster:     c",
        "Partitions:  29, 27 under replicated, 0 under min isr, 1 offline",
    ]
    assert [line.split() for line in lines[2:6]] == [
        ["BROKER", "ZONE", "ADDRESS", "STATE", "LEADS", "REPLICAS"],
        ["1", "a", "h1:9092", "active,", "cordoned", "27", "28"],
        ["2", "b", "h2:9092", "active,", "cordoned,", "controller", "1", "28"],
        ["3", "-", "-", "unregistered", "0", "3"],
    ]
    assert lines[6].startswith("Under replicated: t-0 t-1 v-0 v-1 ")
    assert lines[6].endswith(" v-17 and 7 more")
    assert lines[7:] == ["Offline: t-2"]
