"""What the command line says of a fleet whose broker dies: who is there, what lacks replicas, and why."""

import json
import time
from typing import Any

import pytest

from e2e.harness.command_line import PATIENCE_S, logfleet, refused, said
from e2e.harness.processes import Fleet, Rig


@pytest.fixture
def fleet(rig: Rig) -> Fleet:
    """Three brokers in the zones a, b and c, which all lead partitions of t."""
    started = rig.fleet(3, zones=["a", "b", "c"])
    said(started.brokers[0], "topic", "create", "t", "-p", "3")
    return started


def overview(fleet: Fleet) -> dict[str, Any]:
    found = json.loads(said(fleet.brokers[0], "cluster", "-o", "json"))
    assert isinstance(found, dict)
    return found


def until_state(fleet: Fleet, state: str) -> dict[str, Any]:
    """The overview once broker 3 is in that state, or past it."""
    states = ("active", "fenced", "unregistered")
    give_up_s = time.monotonic() + PATIENCE_S
    while states.index((found := overview(fleet))["brokers"][2]["state"]) < states.index(state):
        assert time.monotonic() < give_up_s, found
    return found


def test_a_broker_that_dies_is_seen_and_what_it_led_is_offline(fleet: Fleet) -> None:
    before = overview(fleet)
    assert [(each["id"], each["zone"], each["state"]) for each in before["brokers"]] == [
        (1, "a", "active"),
        (2, "b", "active"),
        (3, "c", "active"),
    ]
    assert [each["leads"] for each in before["brokers"]] == [1, 1, 1]
    assert sum(each["controller"] for each in before["brokers"]) == 1
    assert before["offline"] == before["under_replicated"] == []
    fleet.brokers[2].kill()
    found = until_state(fleet, "fenced")
    assert len(found["offline"]) == 1, (
        "fenced by who saw it refuse connections, before its lease ends"
    )
    found = until_state(fleet, "unregistered")
    assert found["brokers"][2] == {
        "id": 3,
        "state": "unregistered",
        "controller": False,
        "leads": 0,
        "replicas": 1,
    }
    table = said(fleet.brokers[0], "cluster", "-o", "table")
    assert f"Offline: {found['offline'][0]}\n" in table
    described = said(fleet.brokers[0], "topic", "describe", "t", "-o", "table")
    assert described.count("offline") == 1


def test_a_drain_that_cannot_be_done_changes_nothing(fleet: Fleet) -> None:
    first = fleet.brokers[0]
    said(first, "topic", "create", "everywhere", "-p", "1", "-r", "3")
    done = logfleet(first, "drain", "3")
    assert (done.returncode, done.stdout) == (1, b"")
    *reasons, last = done.stderr.decode().splitlines()
    assert any("everywhere-0" in line for line in reasons)
    assert last == "Error: nothing was changed: not all can be moved away"
    assert [each["cordoned"] for each in overview(fleet)["brokers"]] == [False] * 3
    said(first, "topic", "create", "also", "-p", "1", "-r", "3")


def test_cordoned_brokers_are_shown_and_named_where_a_topic_is_refused(fleet: Fleet) -> None:
    first = fleet.brokers[0]
    said(first, "cordon", "3")
    assert [each["cordoned"] for each in overview(fleet)["brokers"]] == [False, False, True]
    (row,) = (
        line for line in said(first, "cluster", "-o", "table").splitlines() if line[:2] == "3 "
    )
    assert "active, cordoned" in row
    line = refused(first, "topic", "create", "everywhere", "-p", "1", "-r", "3")
    assert "only 2 broker(s) are registered and not cordoned; 1 broker(s) are cordoned: 3." in line
    said(first, "uncordon", "3")
    said(first, "topic", "create", "everywhere", "-p", "1", "-r", "3")


def test_a_broker_that_nobody_has_is_refused_at_once(fleet: Fleet) -> None:
    """--timeout is longer here than the test waits for a command."""
    first = fleet.brokers[0]
    for arguments in (
        ("config", "set", "broker", "9", "log.cleaner.threads=2"),
        ("config", "describe", "broker", "9"),
        ("cordon", "9"),
        ("drain", "9"),
        ("may-i", "drain", "9"),
    ):
        line = refused(first, *arguments, "--timeout", "3600")
        assert line.endswith("there is no broker 9; the ids are 1, 2, 3"), line


def test_events_come_from_all_brokers_that_run_and_the_others_are_named(fleet: Fleet) -> None:
    first = fleet.brokers[0]
    found = json.loads(said(first, "events", "--kind", "registered", "-o", "json"))
    assert {each["by"] for each in found} == {1, 2, 3}
    assert [each["time_ms"] for each in found] == sorted(each["time_ms"] for each in found)
    fleet.brokers[2].terminate()
    done = logfleet(first, "events", "--broker", "2", "--since", "1h", "-o", "table")
    assert (done.returncode, done.stderr) == (0, b"Error: broker 3: it does not run\n")
    titles, *rows = done.stdout.decode().splitlines()
    time, _zone, *others = titles.split()
    assert (time, others) == ("TIME", ["BY", "KIND", "ABOUT", "CAUSE"])
    assert any("registered" in row and "broker 2" in row for row in rows)
    fleet.brokers[2].start()
    again = json.loads(said(first, "events", "--kind", "registered", "--broker", "3", "-o", "json"))
    assert len(again) == 2, "what it decided before it was stopped is known"


def test_a_broker_that_holds_the_only_replica_may_not_go_and_says_what_forbids_it(
    fleet: Fleet,
) -> None:
    first = fleet.brokers[0]
    done = logfleet(first, "may-i", "stop", "2", "-o", "json")
    assert (done.returncode, done.stderr) == (1, b"")
    answer = json.loads(done.stdout)
    assert (answer["may"], answer["brokers"], answer["forbidden_count"]) == (False, [2], 1)
    assert answer["forbidden"][0]["topic"] == "t"
    table = logfleet(first, "may-i", "lose-zone", "c", "-o", "table")
    assert table.stdout.startswith(b"No: 3\n\nPartitions that forbid it: 1\n")
    said(first, "topic", "delete", "--yes", "t")
    assert json.loads(said(first, "may-i", "stop", "1", "2", "3", "-o", "json"))["may"]
    assert refused(first, "may-i", "stop", "9") == (
        "Error: no broker 9 is registered; there are 1, 2, 3"
    )
