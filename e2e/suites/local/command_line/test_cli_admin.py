"""Configurations, records, disks and files on the command line, with a real broker behind it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from logfleet.testing import Broker

from e2e.harness.command_line import config_of, environment, logfleet, planned, refused, said


@pytest.fixture
def ten(one_topic: Broker) -> Broker:
    """Five records, v0 to v4, in each of the two partitions of t."""
    for partition in "01":
        lines = "".join(f"v{number}\n" for number in range(5))
        said(one_topic, "produce", "t", "-p", partition, stdin=lines.encode())
    return one_topic


def begins(broker: Broker) -> list[int]:
    (described,) = json.loads(said(broker, "topic", "describe", "t", "-o", "json"))
    return [row["begin"] for row in described["partitions"]]


def test_configurations_are_set_shown_and_taken_back(ten: Broker) -> None:
    change = ("config", "set", "topic", "t", "retention.ms=60000", "segment.bytes=2000000")
    assert said(ten, *change, "--dry-run") == "topic/t configured (dry run)\n"
    assert config_of(ten, "t") == {}
    assert said(ten, *change) == "topic/t configured\n"
    assert said(ten, *change) == "topic/t unchanged\n"
    assert config_of(ten, "t") == {"retention.ms": "60000", "segment.bytes": "2000000"}
    shown = said(ten, "config", "describe", "topic", "t", "-o", "table").splitlines()
    assert [line.split() for line in shown] == [
        ["KEY", "VALUE", "SOURCE"],
        ["retention.ms", "60000", "dynamic-topic"],
        ["segment.bytes", "2000000", "dynamic-topic"],
    ]
    said(ten, "config", "delete", "topic", "t", "retention.ms")
    assert config_of(ten, "t") == {"segment.bytes": "2000000"}
    everything = json.loads(said(ten, "config", "describe", "topic", "t", "--all", "-o", "json"))
    assert {"key": "retention.ms", "value": "604800000", "source": "default"}.items() <= next(
        row for row in everything if row["key"] == "retention.ms"
    ).items()


def test_brokers_the_cluster_and_groups_have_configurations(ten: Broker) -> None:
    for kind, name, key, value in (
        ("broker", ["1"], "log.retention.ms", "70000"),
        ("cluster", [], "message.max.bytes", "900000"),
        ("group", ["g"], "consumer.session.timeout.ms", "50000"),
    ):
        said(ten, "config", "set", kind, *name, f"{key}={value}")
        (row,) = json.loads(said(ten, "config", "describe", kind, *name, "-o", "json"))
        assert (row["key"], row["value"]) == (key, value)
        said(ten, "config", "delete", kind, *name, key)
        assert json.loads(said(ten, "config", "describe", kind, *name, "-o", "json")) == []


LIST, FLAG = ("compact, delete", "compact,delete"), ("TRUE", "true")
"""As people spell them, and as brokers show them."""


@pytest.mark.parametrize(
    "command, keys",
    [
        (
            "topic alter t",
            {"cleanup.policy": LIST, "preallocate": FLAG, "retention.ms": ("+07", "7")},
        ),
        (
            "config set topic t",
            {"cleanup.policy": LIST, "preallocate": FLAG, "retention.ms": ("+07", "7")},
        ),
        ("config set broker 1", {"log.cleaner.threads": ("01", "1")}),
        ("config set cluster", {"log.cleanup.policy": LIST, "log.preallocate": FLAG}),
        ("config set group g", {"consumer.session.timeout.ms": ("050000", "50000")}),
    ],
)
def test_another_spelling_of_what_is_set_is_no_change(
    one_topic: Broker, command: str, keys: dict[str, tuple[str, str]]
) -> None:
    spelled, shown = (
        [f"{key}={texts[number]}" for key, texts in keys.items()] for number in range(2)
    )
    results = []
    for pairs in (spelled, spelled, shown):
        option = ["-c"] if command.startswith("topic") else []
        given = [word for pair in pairs for word in (*option, pair)]
        results.append(said(one_topic, *command.split(), *given).split()[-1])
    assert results == ["configured", "unchanged", "unchanged"]


def test_what_cannot_be_configured_is_one_line(ten: Broker) -> None:
    line = refused(ten, "config", "set", "topic", "t", "retention.ms=soon")
    assert line.startswith("Error: topic/t: Invalid value soon for configuration retention.ms")
    assert "there is no key nope" in refused(ten, "config", "delete", "topic", "t", "nope")
    line = refused(ten, "config", "describe", "topic", "nope")
    assert "The topic 'nope' does not exist; `logfleet topic list` shows what there is" in line
    for arguments in (
        ("set", "topic", "t"),
        ("set", "topic"),
        ("set", "topic", "t", "retention.ms"),
        ("delete", "topic", "t"),
        ("describe", "broker", "one"),
        ("describe", "cluster", "extra"),
        ("describe", "shelf", "s"),
    ):
        refused(ten, "config", *arguments, code=2)


def test_records_are_deleted_once_that_is_asked_for(ten: Broker) -> None:
    delete = ("records", "delete", "t")
    shown = planned(ten, *delete, "--before", "2", "-o", "table").splitlines()
    assert shown[1].split() == ["t", "0", "0", "2", "2"]
    assert begins(ten) == [0, 0]
    said(ten, *delete, "--before", "2", "-p", "1", "--execute")
    assert begins(ten) == [0, 2]
    rows = json.loads(said(ten, *delete, "--before", "-1", "--execute", "-o", "json"))
    assert [row["deleted"] for row in rows] == [4, 2]
    assert begins(ten) == [4, 4]
    said(ten, *delete, "--before", "end", "--execute")
    assert begins(ten) == [5, 5]
    assert said(ten, "consume", "t", "--from-beginning", "-e") == ""


def test_records_that_are_to_be_kept_are_not_deleted(ten: Broker) -> None:
    line = refused(ten, "records", "delete", "nope", "--before", "end", "--execute")
    assert "there is no such topic" in line
    line = refused(ten, "records", "delete", "t", "--before", "9", "--execute")
    assert "offset 9: t-0 has offsets from 0" in line
    said(ten, "config", "set", "topic", "t", "cleanup.policy=compact")
    line = refused(ten, "records", "delete", "t", "--before", "end", "--execute")
    assert "cleanup.policy of the topic has no delete" in line


def test_directories_tell_their_room_and_what_is_in_them(ten: Broker) -> None:
    (row,) = json.loads(said(ten, "log-dirs", "-o", "json"))
    assert (row["broker"], row["path"], row["error"]) == (1, str(ten.data), None)
    assert 0 < row["usable"] <= row["total"]
    sizes = {(each["topic"], each["partition"]): each["size"] for each in row["partitions"]}
    for index in (0, 1):
        files = (ten.data / f"t-{index}").glob("*.log")
        assert sizes["t", index] == sum(file.stat().st_size for file in files) > 0
    table = said(ten, "log-dirs", "--broker", "1", "-o", "table").splitlines()
    assert table[1].split()[:3] == [
        *("1", str(ten.data)),
        str(len(sizes)),
    ]
    lines = said(ten, "log-dirs", "t", "--partitions", "-o", "table").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["t", "0"], ["t", "1"]]
    assert "broker 7 is not there; there are 1" in refused(ten, "log-dirs", "--broker", "7")


def rows_of(broker: Broker, *arguments: str) -> list[dict[str, object]]:
    return [
        json.loads(line) for line in said(broker, "dump", "-o", "json", *arguments).splitlines()
    ]


def test_files_are_dumped_while_they_are_in_use(ten: Broker) -> None:
    partition = ten.data / "t-0"
    segment = str(partition / "00000000000000000000.log")
    batches = rows_of(ten, segment)
    assert sum(int(str(row["records"])) for row in batches) == 5
    assert all(row["valid"] for row in batches)
    values = [row["value"] for row in rows_of(ten, segment, "--records")]
    assert values == [f"v{number}" for number in range(5)]
    assert len(rows_of(ten, segment, "-r", "-n", "2")) == 2
    table = said(ten, "dump", str(partition), "-o", "table").splitlines()
    assert segment in table
    assert any(line.split()[:3] == ["POSITION", "BASE", "LAST"] for line in table)
    ten.stop()  # writes the indexes, if the flush of every few seconds has not come before
    table = said(ten, "dump", str(partition), "-o", "table").splitlines()
    assert table[0] == segment.replace(".log", ".index")
    times = rows_of(ten, segment.replace(".log", ".timeindex"))
    assert [row["offset"] for row in times] == [4]


def test_what_is_damaged_is_told(ten: Broker, tmp_path: Path) -> None:
    good = (ten.data / "t-0" / "00000000000000000000.log").read_bytes()
    path = tmp_path / "00000000000000000000.log"
    for content, words in (
        (good + b"torn", "4 bytes at position"),
        (good[:-1] + b"?", "another checksum"),
        (bytes(200), "no batch at 0"),
    ):
        path.write_bytes(content)
        done = logfleet(ten, "dump", str(path), "-o", "json")
        (line,) = done.stderr.decode().splitlines()
        assert done.returncode == 1
        assert line.startswith(f"Error: {path}: ")
        assert words in line
    (tmp_path / "notes.txt").touch()
    assert "no segment or index" in refused(ten, "dump", str(tmp_path / "notes.txt"), code=2)


def test_a_terminal_gets_a_drawn_table(ten: Broker) -> None:
    """And a pipe JSON, as in the other tests here."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "logfleet", "topic", "list"]
    subprocess.run(command, stdout=theirs, env=environment(ten), check=True, timeout=60)
    with open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123  a descriptor
        shown = terminal.read(65536).decode()

    os.close(theirs)
    assert "─" in shown
    assert "NAME" in shown
