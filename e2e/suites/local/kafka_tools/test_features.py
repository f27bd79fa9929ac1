"""An upgrade in two phases by Kafka's own tool (KIP-584): brokers one by one, then the level that they may write at; the way back is closed by the second only."""

import json

import pytest
from confluent_kafka import Producer

from e2e.harness.command_line import logfleet, said
from e2e.harness.kafka import run_tool, try_tool
from e2e.harness.processes import Broker, Fleet, Rig

FEATURE = "logfleet.version"
LEVEL = "logfleet.feature.level.max"
CONFIG = {"default.replication.factor": "3", "min.insync.replicas": "2", LEVEL: "1"}
MAIN = "org.apache.kafka.tools.FeatureCommand"
STOPPED_WITHIN_S = 60
TRANSACTIONS = (
    "Feature: transaction.version SupportedMinVersion: 0 SupportedMaxVersion: 2 "
    "FinalizedVersionLevel: 2"
)


def described(fleet: Fleet | Broker) -> list[str]:
    """Kafka's line of each feature, with single spaces, without the epoch at its end."""
    lines = run_tool(MAIN, ["--bootstrap-server", fleet.bootstrap, "describe"]).splitlines()
    words = [line.split() for line in lines if line.startswith("Feature:")]
    return [" ".join(each).partition(" Epoch:")[0] for each in words]


def line(level: int, highest: int) -> str:
    return (
        f"Feature: {FEATURE} SupportedMinVersion: 1 SupportedMaxVersion: {highest} "
        f"FinalizedVersionLevel: {level}"
    )


def update(fleet: Fleet, act: str, level: int, *more: str) -> tuple[int, str]:
    arguments = ["--bootstrap-server", fleet.bootstrap, act, "--feature", f"{FEATURE}={level}"]
    done = try_tool(MAIN, [*arguments, *more])
    return done.returncode, done.stdout + done.stderr


def is_written(fleet: Fleet) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    producer.produce("t", b"v")
    assert producer.flush(60) == 0


def upgraded(broker: Broker, level: int) -> None:
    broker.config[LEVEL] = str(level)
    broker.restart()


@pytest.mark.timeout(600)
@pytest.mark.full
def test_a_level_is_raised_once_all_brokers_can_do_it_and_is_no_way_back(rig: Rig) -> None:
    fleet = rig.fleet(3, config=CONFIG)
    first, second, third = fleet.brokers
    is_written(fleet)
    assert described(fleet) == [line(1, 1)]
    upgraded(first, 2)
    upgraded(second, 2)
    third.terminate()
    assert described(fleet) == [line(1, 2)], "no other feature is told of"
    failed, told = update(fleet, "upgrade", 2)
    assert failed, told
    assert "Broker 3 is not running" in told
    third.start()
    failed, told = update(fleet, "upgrade", 2)
    assert failed, told
    assert f"Could not upgrade {FEATURE} to 2" in told
    assert "Broker 3 only supports versions 1-1" in told
    upgraded(first, 1)  # until now there is a way back
    upgraded(first, 2)

    upgraded(third, 2)
    assert update(fleet, "upgrade", 2, "--dry-run")[0] == 0
    found = json.loads(said(first, "features", "describe", "-o", "json"))
    assert found == {"finalized": 1, "possible": 2, "objection": ""}
    failed, told = update(fleet, "upgrade", 2)
    assert not failed, told
    assert f"{FEATURE} was upgraded to 2." in told
    assert described(fleet) == [line(2, 2)]
    failed, told = update(fleet, "downgrade", 1)
    assert failed, told
    assert "is never lowered" in told

    third.terminate()
    third.config[LEVEL] = "1"
    third.launch()
    third.wait_until(lambda: not third.running, STOPPED_WITHIN_S)
    tail = third.tail()
    assert f"the cluster is at level 2 of {FEATURE}, and this broker supports up to 1" in tail
    upgraded(third, 2)
    is_written(fleet)


@pytest.mark.timeout(300)
def test_a_new_fleet_begins_at_the_highest_level_and_the_command_line_tells_so(rig: Rig) -> None:
    broker = rig.broker()
    assert described(broker) == [line(3, 3), TRANSACTIONS]
    assert f"{FEATURE} is at 3." in said(broker, "features", "describe", "-o", "table")
    assert (
        said(broker, "features", "upgrade", "--yes", "3").strip() == f"feature/{FEATURE} unchanged"
    )
    refused = logfleet(broker, "features", "upgrade", "--yes", "4")
    assert refused.returncode == 1
    assert "only supports versions 1-3" in refused.stderr.decode()
