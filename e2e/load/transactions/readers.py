"""Readers of committed records: one that reads while faults happen, and one of all in the end."""

import threading
import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from e2e.harness.topics import PATIENCE_S
from e2e.load.transactions.checker import Logs, Reading

BATCH: Final = 10_000
WAIT_S: Final = 0.5
WITHIN_S: Final = 240.0


def _consumer(bootstrap: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    return consumer


class LiveReader(threading.Thread):
    """Reads from the beginning until `stop`, through all faults. reading: what it got so far."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.reading: dict[int, list[tuple[int, str]]] = {n: [] for n in range(partitions)}
        self._consumer = _consumer(bootstrap, topic, partitions)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(BATCH, WAIT_S):
                value, partition, offset = message.value(), message.partition(), message.offset()
                if message.error() is None:
                    assert value is not None
                    assert partition is not None
                    assert offset is not None
                    self.reading[partition].append((offset, value.decode()))
        self._consumer.close()

    def stop(self) -> Reading:
        self._ended.set()
        self.join(PATIENCE_S)
        return self.reading


def read_committed(bootstrap: str, topic: str, partitions: int) -> Logs:
    """Every partition from its beginning to the last stable offset of now: value by offset."""
    logs: dict[int, dict[int, str]] = {n: {} for n in range(partitions)}
    consumer = _consumer(bootstrap, topic, partitions)
    left = set(logs)
    give_up_s = time.monotonic() + WITHIN_S
    try:
        while left:
            assert time.monotonic() < give_up_s, f"partitions {left} were not read to their ends"
            for message in consumer.consume(BATCH, WAIT_S):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    value, offset = message.value(), message.offset()
                    assert value is not None
                    assert offset is not None
                    logs[partition][offset] = value.decode()
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
                    left.discard(partition)
    finally:
        consumer.close()
    return logs


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The stable committed offsets of a group, 0 where it has none. Raises KafkaException."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    )
    try:
        asked = [TopicPartition(topic, n) for n in range(partitions)]
        found = consumer.committed(asked, PATIENCE_S)
    finally:
        consumer.close()
    for each in found:
        assert each.error is None, each.error
    return {each.partition: max(0, each.offset) for each in found}
