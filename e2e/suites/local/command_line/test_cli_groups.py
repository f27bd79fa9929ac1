"""Consumer groups of the command line on a real broker; librdkafka says what is committed."""

import json
import signal

import pytest
from confluent_kafka import Consumer, TopicPartition
from logfleet.testing import Broker

from e2e.harness.command_line import (
    PATIENCE_S,
    partitions_of,
    planned,
    refused,
    said,
    started,
    until,
)


@pytest.fixture
def ten(one_topic: Broker) -> Broker:
    """With the topic t of two partitions and the records v0 to v9 in it, the even ones in partition 0."""
    for partition in range(2):
        lines = "".join(f"v{number}\n" for number in range(partition, 10, 2))
        said(one_topic, "produce", "t", "-p", str(partition), stdin=lines.encode())
    return one_topic


def values(text: str) -> list[int]:
    """The numbers in what was printed."""
    return [int(line.removeprefix("v")) for line in text.splitlines()]


def committed(broker: Broker, group: str, topic: str = "t") -> list[int]:
    """Offsets by partition as librdkafka sees them; -1001: none."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        keys = [TopicPartition(topic, index) for index in range(partitions_of(broker, topic))]
        return [each.offset for each in consumer.committed(keys, timeout=PATIENCE_S)]
    finally:
        consumer.close()


def test_a_group_goes_on_behind_what_was_printed(ten: Broker) -> None:
    member = ("consume", "t", "-g", "g", "--from-beginning")
    first = values(said(ten, *member, "-n", "3"))
    assert sum(committed(ten, "g")) - committed(ten, "g").count(-1001) * -1001 == 3
    second = values(said(ten, *member, "-n", "4"))
    rest = values(said(ten, *member, "-e"))
    assert sorted(first + second + rest) == list(range(10))
    assert committed(ten, "g") == [5, 5]
    assert said(ten, *member, "-e") == ""


def test_what_comes_while_nobody_reads_is_for_the_next_member(ten: Broker) -> None:
    member = ("consume", "t", "-g", "g", "-e")
    assert said(ten, *member) == ""  # it begins at the end, where nothing is yet
    said(ten, "produce", "t", "-p", "1", stdin=b"later")
    assert said(ten, *member) == "later\n"
    assert committed(ten, "g") == [5, 6]


def test_ctrl_c_commits_what_was_printed_and_leaves_the_group(ten: Broker) -> None:
    with started(ten, "consume", "t", "-g", "g", "--from-beginning") as running:
        for _ in range(10):
            running.stdout.readline()
        (described,) = json.loads(said(ten, "group", "describe", "g", "-o", "json"))
        assert (described["state"], len(described["members"])) == ("Stable", 1)
        assert running.interrupted() == (130, "")
    assert committed(ten, "g") == [5, 5]
    (described,) = json.loads(said(ten, "group", "describe", "g", "-o", "json"))
    assert (described["state"], described["members"]) == ("Empty", [])


def test_sigterm_is_as_good_as_ctrl_c(ten: Broker) -> None:
    with started(ten, "consume", "t", "-g", "g", "--from-beginning") as running:
        for _ in range(10):
            running.stdout.readline()
        assert running.interrupted(signal.SIGTERM) == (143, "")
    assert committed(ten, "g") == [5, 5]


def test_members_of_a_group_share_the_records(ten: Broker) -> None:
    member = ("consume", "t", "-g", "g", "--from-beginning", "-o", "json")
    with started(ten, *member) as one, started(ten, *member) as two:

        def shared() -> bool:
            (listed,) = json.loads(said(ten, "group", "list", "-o", "json")) or [{}]
            if listed.get("state") != "Stable":
                return False
            (described,) = json.loads(said(ten, "group", "describe", "g", "-o", "json"))
            return len({row["member"] for row in described["offsets"]} - {None}) == 2

        until(shared)
        for partition in ("0", "1"):
            said(ten, "produce", "t", "-p", partition, stdin=b"new")
        found = []
        for each in (one, two):
            rows = (json.loads(line) for line in each.stdout)
            found.append(next(row["partition"] for row in rows if row["value"] == "new"))
        assert sorted(found) == [0, 1]


@pytest.mark.timeout(300)  # twenty commands
def test_groups_are_listed_described_moved_and_deleted(ten: Broker) -> None:
    said(ten, "consume", "t", "-g", "g", "--from-beginning", "-e")
    (listed,) = json.loads(said(ten, "group", "list", "-o", "json"))
    assert listed == {
        "name": "g",
        "state": "Empty",
        "members": 0,
        "lag": 0,
        "type": "classic",
        "protocolType": "consumer",
    }
    row = said(ten, "group", "list", "-o", "wide").splitlines()[1]
    assert row.split() == ["g", "Empty", "0", "0", "classic", "consumer"]
    text = said(ten, "group", "describe", "g", "-o", "table").splitlines()
    assert text[:2] == ["Group:     g", "State:     Empty"]
    assert [line.split() for line in text[-6:]] == [
        ["t", "0", "5", "5", "0", "-"],
        ["t", "1", "5", "5", "0", "-"],
        [],
        ["TOPIC", "PARTITIONS", "LAG"],
        ["t", "2", "0"],
        ["(all)", "2", "0"],
    ]
    reset = ("group", "reset-offsets", "g")
    assert "BEFORE" in planned(ten, *reset, "--to", "beginning", "-o", "table")
    assert committed(ten, "g") == [5, 5]
    said(ten, *reset, "--to", "-2", "--execute")
    assert committed(ten, "g") == [3, 3]
    said(ten, *reset, "-t", "t", "-p", "1", "--to", "@0", "--execute")
    assert committed(ten, "g") == [3, 0]
    said(ten, *reset, "--shift-by", "-2", "--execute")
    assert committed(ten, "g") == [1, 0]
    said(ten, *reset, "--shift-by", "100", "-t", "t", "-p", "1", "--execute")
    assert committed(ten, "g") == [1, 5]
    said(ten, *reset, "--shift-by", "2", "-t", "t", "-p", "0", "--execute")
    said(ten, *reset, "-t", "t", "-p", "1", "--to", "0", "--execute")
    (described,) = json.loads(said(ten, "group", "describe", "g", "-o", "json"))
    assert [row["lag"] for row in described["offsets"]] == [2, 5]
    rows = json.loads(
        said(
            ten,
            *("group", "reset-offsets", "new", "-t", "t", "--to", "1", "-o", "json", "--execute"),
        )
    )
    assert rows[0] == {"topic": "t", "partition": 0, "before": None, "committed": 1}
    assert committed(ten, "new") == [1, 1]
    forget = ("group", "delete-offsets", "--yes", "new", "-t", "t")
    assert said(ten, *forget, "-p", "0") == "offsets/t deleted\n"
    assert committed(ten, "new") == [-1001, 1]
    assert said(ten, *forget, "-p", "0") == "offsets/t unchanged\n"

    assert (
        said(ten, "group", "delete", "--yes", "g", "new") == "group/g deleted\ngroup/new deleted\n"
    )
    assert said(ten, "group", "list", "-o", "json") == "[]\n"
    assert said(ten, "group", "delete", "--yes", "g", "--if-exists") == "group/g unchanged\n"


def test_what_a_broker_refuses_about_groups_is_one_line(ten: Broker) -> None:
    for command in (["describe"], ["delete", "--yes"]):
        line = refused(ten, "group", *command, "nope")
        assert line.startswith("Error: group/nope: ")
        assert line.endswith("; `logfleet group list` shows what there is")
    line = refused(ten, "group", "reset-offsets", "nope", "--to", "end")
    assert line == "Error: group nope has committed nothing; name a --topic"
    line = refused(ten, "group", "reset-offsets", "g", "--to", "9", "-t", "t")
    assert "offset 9: t-0 has offsets from 0" in line
    line = refused(ten, "group", "reset-offsets", "g", "--shift-by", "1", "-t", "t")
    assert "nothing is committed for t-0" in line
    for wrong in ((), ("--to", "end", "--shift-by", "1")):
        line = refused(ten, "group", "reset-offsets", "g", *wrong, code=2)
        assert "give --to or --shift-by" in line
    line = refused(ten, "group", "delete-offsets", "--yes", "nope", "-t", "t")
    assert "there is no such group; `logfleet group list`" in line
    with started(ten, "consume", "t", "-g", "g", "--from-beginning") as running:
        running.stdout.readline()
        for arguments in (
            ["delete", "--yes", "g"],
            ["reset-offsets", "g", "-t", "t", "--to", "end"],
        ):
            assert "the group has members; stop them first" in refused(ten, "group", *arguments)
        line = refused(ten, "group", "delete-offsets", "--yes", "g", "-t", "t")
        assert "members of the group read this topic" in line
