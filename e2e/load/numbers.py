"""Writes consecutive numbers; checks that a topic holds each acknowledged one once, in order."""

import threading
import time
from collections.abc import Iterable

from confluent_kafka import Producer

from e2e.harness.topics import PATIENCE_S, read


class Numbers(threading.Thread):
    """Writes 0, 1, 2 ... to every partition of a topic until it is stopped.

    pause_s: between two numbers, for tests in which a reader must keep up. acknowledged: per
    partition, the numbers whose delivery was confirmed, in that order.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, pause_s: float = 0) -> None:
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
            "log_level": 2,  # these tests break connections on purpose
        }
        self._producer = Producer(config)
        self._topic = topic
        self._pause_s = pause_s
        self._ending = threading.Event()
        self.acknowledged: list[list[int]] = [[] for _ in range(partitions)]
        self.failed: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            for partition in range(len(self.acknowledged)):
                self._produce(partition, number)
            number += 1
            self._producer.poll(0)
            if self._pause_s:
                self._ending.wait(self._pause_s)
        if self._producer.flush(PATIENCE_S):
            self.failed.append("not everything was acknowledged in time")

    def _produce(self, partition: int, number: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
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
        self.wait_for_some(count, range(len(self.acknowledged)))

    def wait_for_some(self, count: int, partitions: Iterable[int]) -> None:
        """Return when `count` more records have been acknowledged in each of these partitions."""
        wanted = {index: len(self.acknowledged[index]) + count for index in partitions}
        deadline = time.monotonic() + PATIENCE_S
        while any(len(self.acknowledged[index]) < want for index, want in wanted.items()):
            assert time.monotonic() < deadline, f"stuck: {self.failed[:3]}"
            time.sleep(0.01)

    def stop(self) -> None:
        self._ending.set()
        self.join()

    def finish(self) -> None:
        """Stop the producer; all records that were sent are acknowledged when this returns."""
        self.stop()
        assert self.failed == []

    def written(self) -> set[tuple[int, int]]:
        """Return (partition, number) of every acknowledged record."""
        return {
            (partition, number)
            for partition, numbers in enumerate(self.acknowledged)
            for number in numbers
        }


def stored(bootstrap: str, topic: str, partitions: int) -> list[list[int]]:
    """Read the numbers in each partition, from its beginning to its end."""
    found: list[list[int]] = [[] for _ in range(partitions)]
    for record in read(bootstrap, topic):
        found[record.partition].append(int(record.value))
    return found


def check_once_and_in_order(producer: Numbers, found: list[list[int]]) -> None:
    """Check that a topic holds 0, 1, 2 ...

    Without gap or repetition, and every acknowledged number.
    """
    for acknowledged, numbers in zip(producer.acknowledged, found, strict=True):
        assert acknowledged == sorted(acknowledged)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= len(acknowledged) > 0
