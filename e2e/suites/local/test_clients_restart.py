"""A broker that stops, or is killed, under its clients: what was acknowledged is there once and in order, groups go on."""

import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from e2e.harness.clients import CLIENTS, Sent
from e2e.harness.processes import Broker, Rig
from e2e.harness.topics import PATIENCE_S, create_topic
from e2e.load.numbers import Numbers, check_once_and_in_order, stored

TOPIC = "numbers"
PARTITIONS = 3
PER_ROUND = 3000


@pytest.fixture
def broker(rig: Rig) -> Broker:
    made = rig.broker()
    create_topic(made.bootstrap, TOPIC, PARTITIONS)
    return made


def test_a_restart_loses_and_repeats_nothing_of_an_idempotent_producer(broker: Broker) -> None:
    producer = Numbers(broker.bootstrap, TOPIC, PARTITIONS)
    producer.start()
    for _ in range(2):
        producer.wait_for(PER_ROUND)
        broker.restart()
    producer.wait_for(PER_ROUND)
    producer.finish()
    check_once_and_in_order(producer, stored(broker.bootstrap, TOPIC, PARTITIONS))


def test_a_kill_loses_and_repeats_nothing_of_an_idempotent_producer(broker: Broker) -> None:
    producer = Numbers(broker.bootstrap, TOPIC, PARTITIONS)
    producer.start()
    for _ in range(3):
        producer.wait_for(PER_ROUND)
        broker.kill()
        broker.start()
    producer.wait_for(PER_ROUND)
    producer.finish()
    check_once_and_in_order(producer, stored(broker.bootstrap, TOPIC, PARTITIONS))


class Group(threading.Thread):
    """A member of a group that counts what it reads and commits behind what it read."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        self._consumer = Consumer(config)
        self._ending = threading.Event()
        self.read: Counter[tuple[int, int]] = Counter()

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self._ending.is_set():
            messages = [
                each for each in self._consumer.consume(500, timeout=0.1) if not each.error()
            ]
            for message in messages:
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                self.read[partition, int(value)] += 1
            if messages:
                try:
                    self._consumer.commit(asynchronous=False)
                except KafkaException:
                    continue  # the broker is away, or the group rebalances: read again
        self._consumer.close()

    def finish(self) -> None:
        self._ending.set()
        self.join()


def test_a_group_reads_everything_over_restarts_and_kills(broker: Broker) -> None:
    members = [Group(broker.bootstrap) for _ in range(2)]
    producer = Numbers(broker.bootstrap, TOPIC, PARTITIONS)
    for thread in (*members, producer):
        thread.start()
    producer.wait_for(PER_ROUND)
    broker.restart()
    producer.wait_for(PER_ROUND)
    broker.kill()
    broker.start()
    producer.wait_for(PER_ROUND)
    producer.finish()
    deadline = time.monotonic() + PATIENCE_S
    while not producer.written() <= members[0].read.keys() | members[1].read.keys():
        assert time.monotonic() < deadline, "the group did not read everything"
        time.sleep(0.05)
    for member in members:
        member.finish()


def test_committed_offsets_and_data_are_there_after_a_kill(broker: Broker) -> None:
    sent = [Sent(b"key", b"%d" % number, 1_700_000_000_000) for number in range(100)]
    writer = CLIENTS["confluent-kafka"]
    writer.write(broker.bootstrap, TOPIC, sent, "lz4")
    (partition,) = [
        index
        for index, numbers in enumerate(stored(broker.bootstrap, TOPIC, PARTITIONS))
        if numbers
    ]
    at = TopicPartition(TOPIC, partition, 42)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "alone"})
    consumer.commit(offsets=[at], asynchronous=False)
    broker.kill()
    broker.start()
    (committed,) = consumer.committed([TopicPartition(TOPIC, partition)], timeout=PATIENCE_S)
    assert committed.offset == 42
    consumer.close()
    assert stored(broker.bootstrap, TOPIC, PARTITIONS)[partition] == list(range(100))


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_other_clients_read_after_a_restart_what_they_wrote_before(
    broker: Broker, name: str
) -> None:
    client = CLIENTS[name]
    first = [Sent(b"a", b"%d" % number, 1_700_000_000_000) for number in range(200)]
    second = [Sent(b"a", b"%d" % number, 1_700_000_000_000) for number in range(200, 400)]
    client.write(broker.bootstrap, TOPIC, first, "gzip")
    broker.restart()
    client.write(broker.bootstrap, TOPIC, second, "snappy")
    broker.kill()
    broker.start()
    assert client.read(broker.bootstrap, TOPIC, 400) == first + second
