"""A follower that has to catch up takes no more than its throttle allows (KIP-73), and others do not feel it."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.kafka import run_tool
from e2e.harness.processes import Broker, Fleet, Rig

MIB = 1024 * 1024
RATE = MIB
"""Bytes per second."""
SIZE = 8 * MIB
WINDOWS_S = 2
"""So much may be copied at once before the rate is felt."""
CONFIG = {"replication.quota.window.num": str(WINDOWS_S), "default.replication.factor": "3"}
PATIENCE_S = 60
LONG_SIZE = 30 * MIB
STANDS_S, RUNS_S = 0.6, 0.2
CALM_RECORDS = 500


def fill(fleet: Fleet, topic: str, size: int = SIZE) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    for _ in range(size // 65536):
        producer.produce(topic, b"x" * 65536)
    assert producer.flush(PATIENCE_S) == 0


def fill_calmly(fleet: Fleet, topic: str, size: int) -> None:
    """One record after the other: what producers wait for meanwhile is what they wait for on a calm broker."""
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "linger.ms": 0})
    for _ in range(size // 65536):
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


class Slowed:
    """A broker that stands still again and again, so that whoever waits for its acknowledgement waits long."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(RUNS_S):
            self._broker.pause()
            self._is_over.wait(STANDS_S)
            self._broker.resume()


def until(holds: Callable[[], object], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_at, f"after {PATIENCE_S} s still not: {what}"
        time.sleep(0.05)


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


@pytest.mark.full
def test_a_throttle_yields_while_producers_wait_and_comes_back_to_its_rate(rig: Rig) -> None:
    """Broker 1 leads what is produced and what is copied to broker 2; what slows its producers down is broker 3."""
    fleet = rig.fleet(3, zones=["a", "b", "c"], config={"default.replication.factor": "3"})
    leader, behind, slow = fleet.brokers
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    made = admin.create_topics(
        [
            NewTopic("produced", 1, replica_assignment=[[1, 3]]),
            NewTopic("copied", 1, replica_assignment=[[1, 2]]),
        ]
    )
    for topic in ("produced", "copied"):
        made[topic].result(PATIENCE_S)
    for broker_id in ("1", "2", "3"):
        alter(fleet, "brokers", broker_id, f"rate={RATE}")
    alter(fleet, "topics", "copied", "replicas=*")
    with producing(fleet, "produced") as offsets:
        until(lambda: len(offsets) > CALM_RECORDS, "it is known what producers wait for")
        behind.terminate()
        in_sync_after(admin, "copied", 1)
        fill_calmly(fleet, "copied", LONG_SIZE)
        before = copied(leader)
        behind.launch()
        until(lambda: copied(leader) > before, "the throttled replica is copied")
        assert rate(leader) == RATE
        with Slowed(slow):
            until(lambda: rate(leader) < RATE / 2, "the throttle yields")
        until(lambda: rate(leader) == RATE, "it is back at its rate")
    in_sync_after(admin, "copied", 2)


def rate(broker: Broker) -> float:
    """What the throttle of its leader's side lets through, bytes per second."""
    return broker.metric('logfleet_replication_throttle_bytes_per_second{side="leader"')


def copied(broker: Broker) -> float:
    """Bytes of throttled replicas that others have fetched from it."""
    return broker.metric('logfleet_replication_throttled_bytes_total{side="leader"')


@contextmanager
def producing(fleet: Fleet, topic: str) -> Iterator[list[int | None]]:
    """A record every few milliseconds, acknowledged by all replicas, so far at these offsets."""
    is_over = threading.Event()
    offsets: list[int | None] = []
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "linger.ms": 0})

    def produce() -> int:
        while not is_over.wait(0.01):
            producer.produce(
                topic, b"x" * 100, on_delivery=lambda _, told: offsets.append(told.offset())
            )
            producer.poll(0)
        return producer.flush(PATIENCE_S)

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(produce)
        try:
            yield offsets
        finally:
            is_over.set()
    assert left.result() == 0
