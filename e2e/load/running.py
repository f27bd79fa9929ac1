"""Clients that go on while something is done to a fleet: what they were told, and what they read; and topics that hold something before."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer

from e2e.harness.topics import write

PATIENCE_S: Final = 90
RECORD_BYTES: Final = 65_536
PREFIX: Final = b"r"
"""Of its records."""


class Load:
    """An idempotent producer with acks=all and a group that reads, until `stop`: what was acknowledged, and what was read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self.failed: list[str] = []
        self.read: list[bytes] = []
        self.stall_s = 0.0
        self._topic, self._bootstrap = topic, bootstrap
        self._stopping, self._drained = Event(), Event()
        self._threads = [Thread(target=self._produce), Thread(target=self._consume)]
        self._answered = time.monotonic()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Return once all that was sent is answered, and all of that is read."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def check(self) -> None:
        """Nothing failed, and what was acknowledged was read once; other records of the topic are let be."""
        assert self.failed == []
        assert len(self.acknowledged) > 500
        read = [value for value in self.read if value.startswith(PREFIX)]
        assert set(read) == self.acknowledged
        assert len(read) == len(set(read))

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        number = 0
        while not self._stopping.wait(0.002):
            value = PREFIX + f"{number:07}".encode()
            producer.produce(self._topic, value, on_delivery=self._told)
            number += 1
            producer.poll(0)
        producer.flush(PATIENCE_S)
        self._drained.set()

    def _told(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        self.stall_s, self._answered = max(self.stall_s, now - self._answered), now
        value = message.value()
        assert value is not None
        if error is None:
            self.acknowledged.add(value)
        else:
            self.failed.append(str(error))

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "movers",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([self._topic])
        ends_at = time.monotonic() + 600
        while time.monotonic() < ends_at:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                self.read.append(value)
            elif message is None and self._has_all():
                break
        consumer.close()

    def _has_all(self) -> bool:
        return self._drained.is_set() and self.acknowledged <= set(self.read)


@contextmanager
def load(bootstrap: str, topic: str) -> Iterator[Load]:
    running = Load(bootstrap, topic)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def fill(bootstrap: str, topic: str, partitions: int, size: int) -> None:
    """So many bytes in each partition, of one record after the other, all acknowledged by acks=all."""
    value = b"x" * RECORD_BYTES
    count = partitions * size // RECORD_BYTES
    write(bootstrap, topic, ((None, value, n % partitions) for n in range(count)), PATIENCE_S)
