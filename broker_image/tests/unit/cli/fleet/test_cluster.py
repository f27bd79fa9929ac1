import asyncio
import socket

import click
import pytest
from click.testing import CliRunner
from logfleet.cli.fleet.cluster import Own, _echo, missing, overview, until_complete
from logfleet.cli.main import cli
from logfleet.cli.output.formats import Output
from logfleet.client.admin import ClusterDescription
from logfleet.client.cluster import Client
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


OWN = {2: Own(cordoned=True, version="0.1.0")}


def test_brokers_are_shown_with_their_zones_state_and_load() -> None:
    found = overview(ClusterDescription("c", 2, BROKERS, frozenset({1})), TOPICS, {}, OWN)
    assert found["brokers"] == [
        {
            "id": 1,
            "zone": "a",
            "host": "h1",
            "port": 9092,
            "state": "fenced",
            "cordoned": None,
            "controller": False,
            "version": None,
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
            "version": "0.1.0",
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
        overview(
            ClusterDescription("c", 2, BROKERS),
            [*TOPICS, many],
            {},
            {1: Own(cordoned=True, version=None), **OWN},
        ),
        Output(),
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "Cluster:     c",
        "Partitions:  29, 27 under replicated, 0 under min isr, 1 offline",
    ]
    assert [line.split() for line in lines[2:6]] == [
        ["BROKER", "ZONE", "ADDRESS", "STATE", "VERSION", "LEADS", "REPLICAS"],
        ["1", "a", "h1:9092", "active,", "cordoned", "-", "27", "28"],
        ["2", "b", "h2:9092", "active,", "cordoned,", "controller", "0.1.0", "1", "28"],
        ["3", "-", "-", "unregistered", "-", "0", "3"],
    ]
    assert lines[6].startswith("Under replicated: t-0 t-1 v-0 v-1 ")
    assert lines[6].endswith(" v-17 and 7 more")
    assert lines[7:] == ["Offline: t-2"]


WHOLE = [topic("t", (1, (1, 2), (1, 2)), (2, (2, 1), (2, 1)))]


def test_a_fleet_whose_brokers_serve_and_whose_replicas_are_in_sync_lacks_nothing() -> None:
    assert missing(ClusterDescription("c", 2, BROKERS), WHOLE, None) == ""
    assert missing(ClusterDescription("c", 2, BROKERS), WHOLE, 2) == ""


def test_what_a_fleet_lacks_is_one_sentence() -> None:
    assert missing(ClusterDescription("c", 2, BROKERS, frozenset({2})), TOPICS, 3) == (
        "1 of 3 brokers serve, broker 2 is fenced, broker 3 does not run, "
        "partitions offline: 1, partitions under-replicated: 2"
    )
    assert missing(ClusterDescription("c", -1, ()), [], None) == "0 of 1 brokers serve"


def test_waiting_ends_with_what_is_missing() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

        async def wait() -> None:
            async with Client(f"127.0.0.1:{port}") as client:
                await until_complete(client, 3, 0.05)

        with pytest.raises(click.ClickException) as refused:
            asyncio.run(wait())
    assert "after 0.05 s: cannot connect to 127.0.0.1" in str(refused.value)


def test_a_number_of_brokers_needs_a_wait() -> None:
    result = CliRunner().invoke(cli, ["cluster", "--brokers", "3"])
    assert result.exit_code == 2
    assert "--brokers: give --wait too" in result.output
