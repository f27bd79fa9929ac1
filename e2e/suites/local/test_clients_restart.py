"""A broker that stops, or is killed, under its clients: what was acknowledged is there once and in order, groups go on."""

import threading
import time
from collections import Counter

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.clients import CLIENTS, Sent
from e2e.harness.processes import Broker, Rig

TOPIC = "numbers"
PARTITIONS = 3
PATIENCE_S = 60.0
PER_ROUND = 3000


@pytest.fixture
def broker(rig: Rig) -> Broker:
    made = rig.broker()
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    created[TOPIC].result(timeout=PATIENCE_S)
    return made


class Numbers(threading.Thread):
    """An idempotent producer that writes 0, 1, 2 ... to every partition until told to stop.

    acknowledged: per partition the numbers whose delivery was confirmed, in that order.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        config = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "message.timeout.ms": 120_000,
            "queue.buffering.max.messages": 3000,
        }
        self._producer = Producer(config)
        self._ending = threading.Event()
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            for partition in range(PARTITIONS):
                self._produce(partition, number)
            number += 1
            self._producer.poll(0)
        if self._producer.flush(PATIENCE_S):
            self.failed.append("not everything was acknowledged in time")

    def _produce(self, partition: int, number: int) -> None:
        while True:
            try:
                self._producer.produce(
                    TOPIC,
                    value=b"%d" % number,
                    partition=partition,
                    on_delivery=lambda error, _: self._delivered(error, partition, number),
                )
            except BufferError:
                self._producer.poll(0.02)
            else:
                return

    def _delivered(self, error: object, partition: int, number: int) -> None:
        if error is None:
            self.acknowledged[partition].append(number)
        else:
            self.failed.append(f"{number} in {partition}: {error}")

    def wait_for(self, count: int) -> None:
        """Return when `count` more records have been acknowledged in each partition."""
        wanted = [len(numbers) + count for numbers in self.acknowledged]
        deadline = time.monotonic() + PATIENCE_S
        while any(
            len(numbers) < want for numbers, want in zip(self.acknowledged, wanted, strict=True)
        ):
            assert time.monotonic() < deadline, f"stuck: {self.failed[:3]}"
            time.sleep(0.01)

    def finish(self) -> None:
        self._ending.set()
        self.join()
        assert self.failed == []


def stored(bootstrap: str) -> list[list[int]]:
    """The numbers in each partition, from its beginning to its end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    found: list[list[int]] = []
    for partition in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), PATIENCE_S)
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
        numbers: list[int] = []
        position = 0
        while position < end:
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None, message.error()
                value, offset = message.value(), message.offset()
                assert value is not None
                assert offset is not None
                numbers.append(int(value))
                position = offset + 1
        found.append(numbers)
    consumer.close()
    return found


def check_once_and_in_order(producer: Numbers, found: list[list[int]]) -> None:
    for acknowledged, numbers in zip(producer.acknowledged, found, strict=True):
        assert acknowledged == sorted(acknowledged)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= len(acknowledged) > 0


def test_a_restart_loses_and_repeats_nothing_of_an_idempotent_producer(broker: Broker) -> None:
    producer = Numbers(broker.bootstrap)
    producer.start()
    for _ in range(2):
        producer.wait_for(PER_ROUND)
        broker.restart()
    producer.wait_for(PER_ROUND)
    producer.finish()
    check_once_and_in_order(producer, stored(broker.bootstrap))


def test_a_kill_loses_and_repeats_nothing_of_an_idempotent_producer(broker: Broker) -> None:
    producer = Numbers(broker.bootstrap)
    producer.start()
    for _ in range(3):
        producer.wait_for(PER_ROUND)
        broker.kill()
        broker.start()
    producer.wait_for(PER_ROUND)
    producer.finish()
    check_once_and_in_order(producer, stored(broker.bootstrap))


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
    producer = Numbers(broker.bootstrap)
    for thread in (*members, producer):
        thread.start()
    producer.wait_for(PER_ROUND)
    broker.restart()
    producer.wait_for(PER_ROUND)
    broker.kill()
    broker.start()
    producer.wait_for(PER_ROUND)
    producer.finish()
    written = {
        (partition, number)
        for partition, numbers in enumerate(producer.acknowledged)
        for number in numbers
    }
    deadline = time.monotonic() + PATIENCE_S
    while not written <= members[0].read.keys() | members[1].read.keys():
        assert time.monotonic() < deadline, "the group did not read everything"
        time.sleep(0.05)
    for member in members:
        member.finish()


def test_committed_offsets_and_data_are_there_after_a_kill(broker: Broker) -> None:
    sent = [Sent(b"key", b"%d" % number, 1_700_000_000_000) for number in range(100)]
    writer = CLIENTS["confluent-kafka"]
    writer.write(broker.bootstrap, TOPIC, sent, "lz4")
    (partition,) = [index for index, numbers in enumerate(stored(broker.bootstrap)) if numbers]
    at = TopicPartition(TOPIC, partition, 42)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "alone"})
    consumer.commit(offsets=[at], asynchronous=False)
    broker.kill()
    broker.start()
    (committed,) = consumer.committed([TopicPartition(TOPIC, partition)], timeout=PATIENCE_S)
    assert committed.offset == 42
    consumer.close()
    assert stored(broker.bootstrap)[partition] == list(range(100))


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
