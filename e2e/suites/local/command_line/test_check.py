"""`logfleet check` on a fleet of three: what is wrong is found, and gone once its remedy was typed."""

import json
import shlex
from typing import Any

import pytest

from e2e.harness.command_line import logfleet, refused, said
from e2e.harness.processes import Broker, Fleet, Rig

SAFE = {"default.replication.factor": "3", "min.insync.replicas": "2"}
THIS_MACHINE = ("--ignore", "LF402")
"""How full its disk is."""
INTERNAL = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def fleet(rig: Rig) -> Fleet:
    """Three brokers in three zones, with the topic orders, about which nothing is wrong."""
    started = rig.fleet(3, zones=["a", "b", "c"], config=SAFE | INTERNAL)
    said(started.brokers[0], "topic", "create", "orders", "-p", "3")
    said(started.brokers[0], "produce", "orders", stdin=b"a\nb\nc\n")
    return started


def report(fleet: Fleet, *options: str) -> dict[str, Any]:
    done = logfleet(fleet, "check", "-o", "json", *THIS_MACHINE, *options)
    assert done.stderr == b"", done
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    errors = any(each["severity"] == "error" for each in found["findings"])
    assert done.returncode == int(errors)
    return found


def findings(fleet: Fleet, *options: str) -> dict[tuple[str, str], str]:
    """Code and subject -> remedy."""
    found = report(fleet, *options)["findings"]
    return {(each["code"], each["subject"]): each["remedy"] for each in found}


def type_in(fleet: Fleet, remedy: str, *more: str) -> None:
    """Run a remedy as it stands."""
    program, *arguments = shlex.split(remedy)
    assert program == "logfleet"
    done = logfleet(fleet.brokers[0], *arguments, *more)
    assert done.returncode == 0, done


def test_what_is_found_is_gone_after_its_remedy(fleet: Fleet) -> None:
    healthy = report(fleet)
    assert [healthy[each] for each in ("findings", "not_checked", "gaps")] == [[], [], []]
    first, second, _ = fleet.brokers
    said(first, "topic", "create", "single", "-r", "1")
    said(first, "topic", "create", "strict", "-c", "min.insync.replicas=3")
    for topic in ("single", "strict"):
        said(first, "produce", topic, stdin=b"x\n")
    said(first, "consume", "orders", "--group", "the job", "--from-beginning", "-n", "1")
    found = findings(fleet)
    assert set(found) == {("LF103", "strict"), ("LF201", "single"), ("LF301", "the job")}
    people_are_shown_the_same(first, second.bootstrap)
    assert set(findings(fleet, "--select", "LF1,LF2", "--ignore", "LF103")) == {("LF201", "single")}
    type_in(fleet, found["LF103", "strict"])
    type_in(fleet, found["LF201", "single"])
    type_in(fleet, found["LF301", "the job"], "--yes")
    said(first, "cluster", "--wait", "--brokers", "3")
    assert findings(fleet) == {}


def people_are_shown_the_same(broker: Broker, other: str) -> None:
    lines = logfleet(
        broker, "check", "-o", "table", "--strict", *THIS_MACHINE, "-b", other
    ).stdout.decode()
    head, error, remedy, *_, sums = lines.splitlines()
    assert "3 brokers, 3 zones" in head
    assert error.startswith("error    LF103  strict: min.insync.replicas is 3")
    assert remedy.strip() == (
        f"logfleet config set topic strict min.insync.replicas=2 -b {other}"
    ), "it is typed where the address is another one"
    assert sums.startswith("1 error, 1 warning, 1 hint; ")


def test_a_stopped_broker_is_found_until_it_is_back(fleet: Fleet) -> None:
    first, _, third = fleet.brokers
    third.terminate()
    found = findings(fleet)
    assert {("LF105", "broker 3"), ("LF104", "orders")} <= set(found)
    type_in(fleet, found["LF105", "broker 3"])
    refusal = refused(first, "cluster", "--wait", "--timeout", "1")
    assert refusal.startswith("Error: after 1 s: broker 3 does not run, partitions under-repl")
    third.start()
    said(first, "cluster", "--wait", "--brokers", "3")
    assert findings(fleet) == {}
    third.kill()
    killed = report(fleet)
    assert killed["not_checked"] == [], "two brokers answer"
    assert "LF105" in {each["code"] for each in killed["findings"]}, "even before it is fenced"
