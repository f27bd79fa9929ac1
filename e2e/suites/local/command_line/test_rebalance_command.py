"""`logfleet rebalance`, `drain`, `cordon`: three brokers become six and three again, under load, by the command line alone."""

import json
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.command_line import logfleet, said
from e2e.harness.processes import Broker, Fleet, Rig
from e2e.load.running import fill, load

TOPIC = "spread"
PARTITIONS = 12
SIZE = 1 << 20
CONFIG = {"default.replication.factor": "3", "min.insync.replicas": "2"}
ZONES = ("a", "b", "c")


def held(admin: AdminClient) -> Counter[int]:
    topic = admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
    return Counter(each for one in topic.partitions.values() for each in one.replicas)


def zones_of_each(admin: AdminClient) -> set[int]:
    topic = admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
    return {len({(each - 1) % 3 for each in one.replicas}) for one in topic.partitions.values()}


def plan_of(broker: Broker) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(said(broker, "rebalance", "plan", "-o", "json"))
    return made


@pytest.mark.full
def test_a_hot_partition_is_named_with_its_client(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=ZONES, config=CONFIG)
    first = fleet.brokers[0]
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    settings = {"bootstrap.servers": fleet.bootstrap, "client.id": "shop", "linger.ms": 5}
    producer = Producer(settings)

    found: list[str] = []

    def is_hot() -> bool:
        for _ in range(20):
            producer.produce(TOPIC, b"x" * 1_000, partition=7)
        producer.flush(30)
        found[:] = plan_of(first)["hot"]
        return bool(found)

    first.wait_until(is_hot, 60)
    (line,) = found
    assert line == f"{TOPIC}-7 is 100% of all traffic, written mostly by shop"


def grow(rig: Rig, fleet: Fleet) -> None:
    for number in (4, 5, 6):
        config = {"node.id": str(number), "broker.rack": ZONES[(number - 1) % 3], **CONFIG}
        broker = rig.own(Broker(rig.directory / f"broker-{number}", config, f"broker-{number}"))
        fleet.add(broker)
        broker.launch()
    for broker in fleet.brokers[3:]:
        broker.wait_ready()


@pytest.mark.timeout(600)
@pytest.mark.full
def test_three_brokers_become_six_and_three_again(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=ZONES, config=CONFIG)
    first = fleet.brokers[0]
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    fill(fleet.bootstrap, TOPIC, PARTITIONS, 4 * SIZE)
    with load(fleet.bootstrap, TOPIC) as clients:
        first.wait_until(lambda: plan_of(first)["before"]["traffic"] > 0, 40)
        # leaders may be proposed, as what is written is not the same everywhere at every moment
        assert plan_of(first)["bytes"] == 0
        grow(rig, fleet)
        made = json.loads(said(first, "rebalance", "plan", "-o", "json"))
        assert made["bytes"] <= 1.3 * made["least_bytes"]
        began = time.monotonic()
        assert said(first, "rebalance", "run", "--per-broker", "20").endswith("Done.\n")
        print(
            f"spread in {time.monotonic() - began:.1f} s: {made['bytes']} bytes, at least {made['least_bytes']}"
        )
        assert max(held(admin).values()) - min(held(admin).values()) <= 2
        assert set(held(admin)) == {1, 2, 3, 4, 5, 6}
        assert zones_of_each(admin) == {3}
        again = json.loads(said(first, "rebalance", "plan", "-o", "json"))
        assert again["bytes"] == 0

        assert said(first, "may-i", "drain", "4", "5", "6").startswith("Yes: 4, 5, 6\n")
        assert said(first, "may-i", "scale", "3").startswith("Yes: 4, 5, 6\n")
        assert said(first, "may-i", "roll").count(" yes ") == 6
        assert said(first, "drain", "4", "5", "6", "--per-broker", "20").endswith("Done.\n")
        assert set(held(admin)) == {1, 2, 3}
        assert zones_of_each(admin) == {3}
        admin.create_topics([NewTopic("later", 12, 3)])["later"].result(60)
        later = admin.list_topics("later", timeout=10).topics["later"]
        there = {each for one in later.partitions.values() for each in one.replicas}
        assert there == {1, 2, 3}, "cordoned brokers are given nothing"
        assert said(first, "uncordon", "4") == "broker/4 uncordoned\n"
        assert json.loads(said(first, "rebalance", "status", "-o", "json")) == {
            "moves": [],
            "bytes_left": 0,
        }
        config = logfleet(first, "config", "describe", "topic", TOPIC).stdout.decode()
        assert "throttled" not in config, "throttles are gone"
        asked = logfleet(first, "may-i", "drain", "1", "2")
        assert asked.returncode == 1
        assert b"no other broker may take it" in asked.stdout
        refused = logfleet(first, "drain", "1", "2", "4", "5", "6")
        assert refused.returncode == 1
        assert b"no other broker may take it" in refused.stderr
    print(f"{len(clients.acknowledged)} acknowledged, longest stall {clients.stall_s:.1f} s")
    clients.check()
