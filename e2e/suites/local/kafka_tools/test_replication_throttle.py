"""A follower that has to catch up takes no more than its throttle allows (KIP-73), and others do not feel it."""

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.kafka import run_tool
from e2e.harness.processes import Fleet, Rig

MIB = 1024 * 1024
RATE = MIB
"""Bytes per second."""
SIZE = 8 * MIB
WINDOWS_S = 2
"""So much may be copied at once before the rate is felt."""
CONFIG = {"replication.quota.window.num": str(WINDOWS_S), "default.replication.factor": "3"}
PATIENCE_S = 60


def fill(fleet: Fleet, topic: str) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    for _ in range(SIZE // 65536):
        producer.produce(topic, b"x" * 65536)
    assert producer.flush(PATIENCE_S) == 0


def in_sync_after(admin: AdminClient, topic: str, count: int) -> float:
    """Seconds from now until so many replicas are in sync."""
    began = time.monotonic()
    while True:
        (state,) = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        if len(state.isrs) == count:
            return time.monotonic() - began
        assert time.monotonic() < began + PATIENCE_S, state.isrs
        time.sleep(0.02)


def alter(fleet: Fleet, kind: str, name: str, sides: str) -> None:
    """By kafka-configs.sh; sides: a setting that leaders and followers have alike."""
    added = ",".join(f"{side}.replication.throttled.{sides}" for side in ("leader", "follower"))
    entity = ["--entity-type", kind, "--entity-name", name]
    run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", fleet.bootstrap, *entity, "--alter", "--add-config", added],
    )


def test_a_throttled_follower_keeps_to_its_rate_and_others_are_not_held_up(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=["a", "b", "c"], config=CONFIG)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    topics = ("throttled", "free")
    made = admin.create_topics([NewTopic(topic, 1, 3) for topic in topics])
    for topic in topics:
        made[topic].result(PATIENCE_S)
    for broker_id in ("1", "2", "3"):
        alter(fleet, "brokers", broker_id, f"rate={RATE}")
    alter(fleet, "topics", "throttled", "replicas=*")
    fleet.brokers[2].terminate()
    for topic in topics:
        in_sync_after(admin, topic, 2)
        fill(fleet, topic)
    fleet.brokers[2].launch()
    free_s = in_sync_after(admin, "free", 3)
    throttled_s = free_s + in_sync_after(admin, "throttled", 3)
    print(f"in sync after {free_s:.1f} s, throttled after {throttled_s:.1f} s")
    assert throttled_s >= 0.9 * (SIZE / RATE - WINDOWS_S)
    assert throttled_s <= 2 * SIZE / RATE
    assert free_s < throttled_s / 2
