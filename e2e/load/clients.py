"""Producers as processes and a group that reads, on one topic of a fleet, and all that the topic holds in the end."""

import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from e2e.harness.program import Program
from e2e.harness.topics import PATIENCE_S, read
from e2e.load.verdict import History, read_history, read_java_history

GROUP = "readers"
JAVA = "java"


def producer(
    kind: str, bootstrap: str, topic: str, partitions: int, rate: int, directory: Path
) -> Program:
    """A process of `e2e.load.producers`. rate: records a second."""
    command = [sys.executable, "-m", "e2e.load.producers", kind, bootstrap, topic]
    return Program(f"producer-{kind}", [*command, str(partitions), str(rate)], directory)


class Producers:
    """By their kinds, `java` among them or not. They are idempotent, have acks=all and number their records."""

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self.programs = dict(programs)

    def launch(self) -> None:
        for program in self.programs.values():
            program.launch()

    def stop(self) -> None:
        """Each ends once everything that it sent was answered."""
        for program in self.programs.values():
            if program.running:
                program.terminate()

    def histories(self) -> dict[str, History]:
        """What each has reported so far."""
        return {kind: self._history(kind) for kind in self.programs}

    def _history(self, kind: str) -> History:
        text = self.programs[kind].log.read_text()
        if kind == JAVA:
            return read_java_history(text, wall_to_monotonic_s=time.monotonic() - time.time())
        return read_history(kind, text)


class Reader(threading.Thread):
    """A member of a group that commits what it has read once a second; says so if a commit is found to have gone back."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{GROUP}-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self.confirmed: dict[int, int] = {}
        self.went_back: list[str] = []
        self._ended = threading.Event()

    def run(self) -> None:
        consumer = Consumer(self._config)
        consumer.subscribe([self._topic])
        due_s = time.monotonic() + 1
        while not self._ended.is_set():
            consumer.consume(500, 0.2)
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + 1
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        """What is committed is read back; a coordinator that moves is no fault, an older offset is."""
        try:
            for each in consumer.commit(asynchronous=False) or []:
                if each.error is None:
                    self.confirmed[each.partition] = each.offset
            asked = [TopicPartition(self._topic, index) for index in self.confirmed]
            for found in consumer.committed(asked, timeout=10):
                if found.error is None and found.offset < self.confirmed[found.partition]:
                    self.went_back.append(
                        f"{found.partition}: {self.confirmed[found.partition]} -> {found.offset}"
                    )
        except KafkaException:
            return

    def stop(self) -> None:
        self._ended.set()
        self.join(PATIENCE_S)


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, dict[int, str]]:
    """Every partition from its beginning to its end: value by offset."""
    logs: dict[int, dict[int, str]] = {index: {} for index in range(partitions)}
    for record in read(bootstrap, topic, despite_errors=True):
        logs[record.partition][record.offset] = record.value.decode()
    return logs
