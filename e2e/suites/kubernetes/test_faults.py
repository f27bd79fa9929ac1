"""Faults: a broker's pod goes, the operator goes in the middle of a change, a namespace goes without its operator."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from e2e.harness.kube.fleet import (
    CHARTS,
    CLUSTERS,
    OPERATOR_NAMESPACE,
    OPERATOR_RELEASE,
    TOPICS,
    Fleet,
    example,
    install_operator,
    operator_pods,
    set_operator,
    topic,
)
from e2e.harness.kube.kubernetes import wait_for

POD_BACK_WITHIN_S = 240
NAMESPACE_GONE_WITHIN_S = 240
SMALL = {
    "cluster": {
        "pools": [
            {
                "name": "main",
                "replicas": 1,
                "storage": {"size": "1Gi"},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
            }
        ],
        "metadata": {"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
    },
    "topics": [{"name": "hello", "partitions": 2}],
}


class Traffic:
    """One record after the other, spread over all partitions, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.acknowledged: list[tuple[int, int, int]] = []
        """(partition, offset, number) of each acknowledged record."""
        self.errors: list[str] = []

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._producer.produce(
                self._topic,
                str(self.sent).encode(),
                partition=self.sent % self._partitions,
                on_delivery=self._on_delivery,
            )
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(120)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acknowledged.append((partition, offset, int(value)))

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def read_all(bootstrap: str, topic: str, partitions: int, count: int) -> list[tuple[int, int, int]]:
    """(partition, offset, number) of the first `count` records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"read-{topic}", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[tuple[int, int, int]] = []
    end = time.monotonic() + 120
    try:
        while len(found) < count and time.monotonic() < end:
            for message in consumer.consume(1000, timeout=1):
                problem = message.error()
                if problem is not None:
                    raise KafkaException(problem)
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert value is not None
                found.append((partition, offset, int(value)))
    finally:
        consumer.close()
    return found


@pytest.fixture
def steady(fleet):
    """A topic with a partition on every broker."""
    fleet.kubernetes.apply(topic("steady", fleet.name, 6), namespace=fleet.namespace)
    fleet.wait_topic("steady")
    yield "steady"
    fleet.kubernetes.delete(TOPICS, "steady", fleet.namespace)


def test_a_broker_whose_pod_is_deleted_comes_back_and_clients_go_on(fleet, steady, rig):
    before = {broker["id"]: broker for broker in fleet.brokers()}
    victim = before[min(before)]
    uid = fleet.kubernetes.get("pod", victim["pod"], fleet.namespace)["metadata"]["uid"]
    traffic = Traffic(fleet.outside, steady, 6)
    with traffic.running(), rig.part("broker pod deleted and back"):
        wait_for("traffic", lambda: len(traffic.acknowledged) > 100, within_s=120)
        fleet.kubernetes.delete("pod", victim["pod"], fleet.namespace)

        def is_new() -> bool:
            pod = fleet.kubernetes.get("pod", victim["pod"], fleet.namespace)
            return bool(pod["metadata"]["uid"] != uid)

        wait_for("a new pod", is_new, within_s=120)
        fleet.kubernetes.wait_pod(victim["pod"], fleet.namespace, POD_BACK_WITHIN_S)
        back = len(traffic.acknowledged)
        wait_for(
            "traffic on every broker",
            lambda: {p for p, _, _ in traffic.acknowledged[back:]} == set(range(6)),
            within_s=120,
        )
    assert traffic.errors == []
    assert len(traffic.acknowledged) == traffic.sent
    found = read_all(fleet.outside, steady, 6, traffic.sent)
    assert sorted(found) == sorted(traffic.acknowledged)
    fleet.wait_ready()
    after = {broker["id"]: broker for broker in fleet.brokers()}
    same = ("id", "pool", "zone", "pod")
    assert [[after[i][key] for key in same] for i in sorted(after)] == [
        [before[i][key] for key in same] for i in sorted(before)
    ]


def test_an_operator_that_is_killed_in_the_middle_of_a_change_finishes_it_afterwards(fleet):
    names = [f"wave-{number}" for number in range(5)]
    (pod,) = operator_pods(fleet.kubernetes, ready=True)
    wanted = example("cluster")
    wanted["spec"]["pools"][0]["replicas"] += 1
    fleet.kubernetes.apply(
        wanted, *(topic(name, fleet.name, 2) for name in names), namespace=fleet.namespace
    )
    count = wanted["spec"]["pools"][0]["replicas"]
    wait_for(
        "the new broker's pod, which cannot be ready yet",
        lambda: len(fleet.broker_pods()) == count,
        within_s=120,
    )
    fleet.kubernetes.kubectl(
        *("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force"),
        namespace=OPERATOR_NAMESPACE,
    )
    fleet.wait_ready()
    assert len(fleet.brokers()) == count
    for name in names:
        fleet.wait_topic(name)
        fleet.kubernetes.delete(TOPICS, name, fleet.namespace)


def test_charts_install_upgrade_and_pass_their_own_tests(fleet, kubernetes):
    kubernetes.helm("test", OPERATOR_RELEASE, "-n", OPERATOR_NAMESPACE)
    kubernetes.install("small", CHARTS / "cluster", "doomed", SMALL)
    small = Fleet(kubernetes, "doomed", "small")
    small.wait_ready()
    small.wait_topic("hello")
    kubernetes.helm("test", "small", "-n", "doomed")
    more = SMALL | {"topics": [{"name": "hello", "partitions": 4}]}
    kubernetes.install("small", CHARTS / "cluster", "doomed", more)
    assert small.wait_topic("hello")["status"]["partitions"] == 4
    install_operator(kubernetes)


def test_a_namespace_goes_although_its_operator_is_gone(kubernetes):
    assert kubernetes.exists(CLUSTERS, "small", "doomed")
    set_operator(kubernetes, running=False)
    try:
        kubernetes.delete("namespace", "doomed", wait=False)
        wait_for(
            "the namespace to go",
            lambda: not kubernetes.exists("namespace", "doomed"),
            NAMESPACE_GONE_WITHIN_S,
        )
    finally:
        set_operator(kubernetes, running=True)
