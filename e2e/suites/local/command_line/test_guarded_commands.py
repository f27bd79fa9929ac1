"""Commands that delete for good ask, and a dry run says that it is one: on a real broker."""

import json
import os
import pty
import subprocess
import sys

import pytest
from logfleet.testing import Broker

from e2e.harness.command_line import (
    PATIENCE_S,
    environment,
    logfleet,
    partitions_of,
    refused,
    said,
)

OFFSETS = "__consumer_offsets"


@pytest.fixture
def grouped(one_topic: Broker) -> Broker:
    """Topic t, and a group that has committed."""
    said(one_topic, "produce", "t", stdin=b"a\nb\n")
    said(one_topic, "group", "reset-offsets", "g", "-t", "t", "--to", "beginning", "--execute")
    return one_topic


def on_a_terminal(broker: Broker, *arguments: str, typed: bytes) -> tuple[int, str]:
    """Exit code, and all that a person sees who types this."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "logfleet", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(broker),
    ) as process:
        os.close(theirs)
        os.write(ours, typed)
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:
            pass  # Linux says so that the other side is closed: pty(7)
        code = process.wait(PATIENCE_S)
    os.close(ours)
    return code, seen.decode()


def test_a_topic_is_deleted_once_a_person_says_so(one_topic: Broker) -> None:
    assert "--yes" in refused(one_topic, "topic", "delete", "t", code=2)
    code, seen = on_a_terminal(one_topic, "topic", "delete", "t", typed=b"n\n")
    assert code == 1
    assert "Delete t with all records, for good? [y/N]" in seen
    assert "nothing was changed" in seen
    assert partitions_of(one_topic, "t") == 2
    code, seen = on_a_terminal(one_topic, "topic", "delete", "t", typed=b"y\n")
    assert (code, "topic/t deleted" in seen) == (0, True)
    assert partitions_of(one_topic, "t") == 0


def test_what_brokers_keep_for_themselves_is_not_deleted_by_the_way(grouped: Broker) -> None:
    line = refused(grouped, "topic", "delete", OFFSETS, "--yes")
    assert line.startswith(f"Error: topic/{OFFSETS}: the brokers keep it for themselves")
    assert partitions_of(grouped, OFFSETS) > 0
    for guarded in (
        ("topic", "alter", OFFSETS, "-p", "99"),
        ("records", "delete", OFFSETS, "--before", "end", "--execute"),
    ):
        assert "keep it for themselves" in refused(grouped, *guarded)
    assert "g" in said(grouped, "group", "list")
    deleted = said(grouped, "topic", "delete", OFFSETS, "--internal", "--yes")
    assert deleted == f"topic/{OFFSETS} deleted\n"
    assert partitions_of(grouped, OFFSETS) == 0


TOPIC = b"""
apiVersion: logfleet.dev/v1beta1
kind: Topic
metadata: {name: x}
spec: {clusterRef: {name: fleet}, partitions: 1}
"""
DRY_RUNS = [
    ("records", "delete", "t", "--before", "end"),
    ("group", "reset-offsets", "g", "--to", "end"),
    ("config", "set", "topic", "t", "retention.ms=5", "--dry-run"),
    ("config", "delete", "topic", "t", "segment.ms", "--dry-run"),
    ("apply", "-f", "-", "--dry-run"),
    ("topic", "create", "u", "--dry-run"),
    ("topic", "alter", "t", "-p", "5", "--dry-run"),
    ("quota", "set", "--user", "u", "producer_byte_rate=9", "--dry-run"),
    ("quota", "delete", "--user", "u", "--yes", "--dry-run"),
    ("cordon", "1", "--dry-run"),
    ("uncordon", "1", "--dry-run"),
    ("features", "upgrade", "3", "--yes", "--dry-run"),
    ("group", "delete-offsets", "g", "-t", "t", "--yes", "--dry-run"),
    ("group", "delete", "g", "--yes", "--dry-run"),
    ("topic", "delete", "t", "--yes", "--dry-run"),
]


@pytest.mark.timeout(400)  # thirty commands
def test_a_dry_run_says_in_json_that_it_is_one(grouped: Broker) -> None:
    said(grouped, "config", "set", "topic", "t", "segment.ms=7")
    for arguments in DRY_RUNS:
        done = logfleet(grouped, *arguments, "-o", "json", stdin=TOPIC)
        rows = json.loads(done.stdout)
        assert done.returncode == 0
        assert rows, arguments
        assert all(row["dryRun"] is True for row in rows), arguments
    for arguments in DRY_RUNS:
        told = [each for each in arguments if each != "--dry-run"]
        does = [*told, *["--execute"] * (len(told) == len(arguments))]
        done = logfleet(grouped, *does, "-o", "json", stdin=TOPIC)
        rows = json.loads(done.stdout)
        assert done.returncode == 0
        assert rows, arguments
        assert not any("dryRun" in row for row in rows), arguments
