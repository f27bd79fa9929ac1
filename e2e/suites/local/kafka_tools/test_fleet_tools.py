"""Kafka's tools for leaders and for what replicas hold, on a fleet of three: kafka-leader-election and kafka-replica-verification."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.kafka import run_tool, tool_command
from e2e.harness.processes import Fleet, Rig
from e2e.harness.program import Program
from e2e.load.running import RECORD_BYTES, fill

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 2
PATIENCE_S = 60
RECORDS = 16
CONFIG = {"auto.leader.rebalance.enable": "false", "min.insync.replicas": "2"}


def until(holds: Callable[[], object], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_at, f"after {PATIENCE_S} s still not: {what}"
        time.sleep(0.05)


@pytest.fixture
def fleet(rig: Rig) -> Fleet:
    fleet = rig.fleet(3, zones=["a", "b", "c"], config=CONFIG)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    made = admin.create_topics([NewTopic("t", PARTITIONS, replica_assignment=[[1, 2, 3]] * 2)])
    made["t"].result(PATIENCE_S)
    return fleet


def led(fleet: Fleet) -> tuple[list[int], list[int]]:
    """Leaders, and how many replicas are in sync, of each partition."""
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    partitions = admin.list_topics("t", timeout=10).topics["t"].partitions.values()
    return [each.leader for each in partitions], [len(each.isrs) for each in partitions]


@pytest.mark.timeout(300)
def test_leaders_are_given_back_to_preferred_replicas(fleet: Fleet) -> None:
    first = fleet.brokers[0]
    first.terminate()
    until(lambda: 1 not in led(fleet)[0], "others lead")
    first.launch()
    until(lambda: led(fleet)[1] == [3] * PARTITIONS, "it is in sync again")
    assert 1 not in led(fleet)[0]
    arguments = ("--election-type", "PREFERRED", "--all-topic-partitions")
    said = run_tool(
        f"{TOOLS}.LeaderElectionCommand", ["--bootstrap-server", fleet.bootstrap, *arguments]
    )
    assert "Successfully completed leader election (PREFERRED) for partitions t-" in said
    assert led(fleet)[0] == [1] * PARTITIONS


@pytest.mark.timeout(300)
def test_replicas_are_found_to_hold_the_same(fleet: Fleet, tmp_path: Path) -> None:
    """The tool reads every replica as one, and compares offsets and checksums, for ever."""
    fill(fleet.bootstrap, "t", PARTITIONS, RECORDS * RECORD_BYTES)
    arguments = ["--broker-list", fleet.bootstrap, "--topics-include", "t"]
    command = tool_command(
        f"{TOOLS}.ReplicaVerificationTool",
        [*arguments, "--time", "-2", "--report-interval-ms", "500"],
    )
    verifying = Program("replica-verification", command, tmp_path)
    verifying.launch()
    try:
        whole = re.compile(
            rf"max lag is 0 for partition t-\d at offset {RECORDS} among 2 partitions"
        )
        verifying.wait_until(lambda: whole.search(verifying.said()) is not None, PATIENCE_S)
    finally:
        verifying.close()
