"""etcd is away for far longer than a lease lasts: producers, consumers and groups go on, and every broker keeps its registration."""

import json
import os
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.command_line import logfleet
from e2e.harness.processes import Broker, Fleet, Rig

pytestmark = pytest.mark.timeout(300)
AWAY_S = 15.0
GAP_S_MAX = 3.0
"""Generous, as other tests run beside this one; docs/internals/failover.md has what is felt on a calm machine."""
CONFIG = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}


class Load(threading.Thread):
    """Sends one record after the other to each topic by librdkafka with its default settings; reads and commits what comes.

    gap_s: by topic the longest time without an acknowledgement; failed: sends and commits that failed.
    """

    def __init__(self, fleet: Fleet, topics: list[str]) -> None:
        super().__init__(daemon=True)
        self.gap_s = dict.fromkeys(topics, 0.0)
        self.acked = dict.fromkeys(topics, 0)
        self.failed: list[str] = []
        self.commits = 0
        self._servers = fleet.bootstrap
        self._ends = threading.Event()

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(list(self.gap_s))
        last_s = dict.fromkeys(self.gap_s, time.monotonic())

        def delivered(error: object, message: object) -> None:
            topic = message.topic()  # type: ignore[attr-defined]
            if error is not None:
                self.failed.append(f"{topic}: {error}")
                return
            now_s = time.monotonic()
            self.gap_s[topic] = max(self.gap_s[topic], now_s - last_s[topic])
            self.acked[topic], last_s[topic] = self.acked[topic] + 1, now_s

        try:
            while not self._ends.wait(0.02):
                for topic in self.gap_s:
                    producer.produce(topic, b"v", on_delivery=delivered)
                producer.poll(0)
                message = consumer.poll(0)
                if message is not None and message.error() is None:
                    consumer.commit(message=message, asynchronous=False)
                    self.commits += 1
            assert producer.flush(60) == 0
        except Exception as error:  # noqa: BLE001  the test reports it
            self.failed.append(repr(error))
        finally:
            consumer.close()

    def end(self) -> None:
        self._ends.set()
        self.join(90)


def events(broker: Broker, *kinds: str) -> list[dict[str, object]]:
    wanted = [part for kind in kinds for part in ("--kind", kind)]
    ended = logfleet(broker, "events", *wanted, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, object]] = json.loads(ended.stdout)
    return [each for each in found if str(each["by"]) == broker.config["node.id"]]


def test_the_fleet_goes_on_without_etcd_and_with_the_same_registrations_after_it(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=("a", "b", "c"), config=CONFIG)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    for name, replicas in (("replicated", 3), ("single", 1)):
        admin.create_topics([NewTopic(name, 3, replicas)])[name].result(60)
    load = Load(fleet, ["replicated", "single"])
    load.start()
    fleet.brokers[0].wait_until(lambda: load.commits > 20, 60)
    acked, commits = dict(load.acked), load.commits
    load.gap_s = dict.fromkeys(load.gap_s, 0.0)
    for member in fleet.etcd_members:
        member.kill()
    away_until_s = time.monotonic() + AWAY_S
    fleet.brokers[0].wait_until(lambda: time.monotonic() >= away_until_s, 60)
    assert all(load.acked[each] > acked[each] + 100 for each in acked), load.failed
    assert load.commits > commits + 100
    for member in fleet.etcd_members:
        member.start()
    created = admin.create_topics([NewTopic("after", 1, 3)], operation_timeout=30)
    created["after"].result(60)
    load.end()
    print(f"longest gaps {load.gap_s}, acknowledged {load.acked}, load {os.getloadavg()[0]:.1f}")
    assert load.failed == []
    assert all(gap_s < GAP_S_MAX for gap_s in load.gap_s.values()), load.gap_s
    for broker in fleet.brokers:
        kinds = [each["kind"] for each in events(broker, "failsafe_began", "failsafe_ended")]
        assert kinds == ["failsafe_began", "failsafe_ended"]
        assert events(broker, "registration_lost") == []
