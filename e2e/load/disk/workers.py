"""The mixed load: idempotent writers, a group that reads and commits, and one client that commits, deletes records and looks.

All of it goes on while the broker is away, as clients do, until told to stop.
"""

import contextlib
import random
import threading
from collections.abc import Iterable
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.harness.wire_connection import Disconnected, WireConnection
from e2e.load.disk.history import History, Partition, Value, is_tombstone, key_of

KEPT, PRUNED, COMPACTED = "kept", "pruned", "compacted"
PARTITIONS = {KEPT: 2, PRUNED: 2, COMPACTED: 1}
NUMBER = "number"
PADDING = b"." * 60
GROUP, PLAIN_GROUP = "readers", "plain"
RECONNECT_S = 0.02
FLUSH_S_MAX = 60.0
_CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "log_level": 2,  # connections are meant to fail here
}


class Worker(threading.Thread):
    """Repeats `step` until stopped. Whatever escapes from it is a failure of the run."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.ending = threading.Event()
        self.abandoned = False  # ends without completing what it has begun

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self.step()
            self.end()
        except Exception as error:  # noqa: BLE001  shown by the main thread
            self.history.failures.append(f"{self.name}: {error!r}")

    def step(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """After the last step."""


class Writer(Worker):
    """Writes its next number to each partition of each topic, idempotently; librdkafka sends again what was not confirmed."""

    def __init__(self, name: str, bootstrap: str, history: History) -> None:
        super().__init__(name, history)
        config: dict[str, Any] = {
            **_CLIENT,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": 20,
            "retry.backoff.ms": 20,
            "message.timeout.ms": 300_000,
            "queue.buffering.max.messages": 1000,
        }
        self._producer = Producer(config)
        self._number = 0

    def step(self) -> None:
        value = Value(self.name, self._number)
        text = b"%s %d " % (self.name.encode(), self._number)
        for topic in (KEPT, PRUNED):
            for partition in range(PARTITIONS[topic]):
                self._produce(topic, partition, value, text + PADDING)
        name = key_of(self._number)
        self.history.attempted[self.name, name] = self._number
        content = None if is_tombstone(self._number) else text
        self._produce(COMPACTED, 0, value, content, f"{self.name} {name}")
        self._number += 1
        self._producer.poll(0)

    def end(self) -> None:
        if self.abandoned:
            self._producer.purge()
        elif self._producer.flush(FLUSH_S_MAX):
            self.history.failures.append(f"{self.name}: not everything was confirmed in time")

    def _produce(
        self,
        topic: str,
        partition: int,
        value: Value,
        content: bytes | None,
        key: str | None = None,
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=content,
                    key=key,
                    partition=partition,
                    headers=[(NUMBER, b"%d" % value.number)] if key else None,
                    on_delivery=lambda error, message: self._delivered(error, message, value),
                )
            except BufferError:
                if self.abandoned:
                    return
                self._producer.poll(0.02)
            else:
                return

    def _delivered(self, error: object, message: Message, value: Value) -> None:
        if error is not None:
            self.history.failures.append(f"{value}: {error}")
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        if topic == COMPACTED:
            self.history.keys[self.name, key_of(value.number)] = value.number
        elif (
            offset >= 0
        ):  # librdkafka does not know it of a batch that was confirmed as a repetition
            self.history.acknowledged[topic, partition][offset] = value


class Member(Worker):
    """A member of a group that commits behind what it has read. read: (partition, offset) of what it saw."""

    def __init__(self, bootstrap: str, history: History) -> None:
        super().__init__("member", history)
        self.read: set[tuple[int, int]] = set()
        config: dict[str, Any] = {
            **_CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
        self._consumer = Consumer(config)
        self._consumer.subscribe([KEPT])

    def step(self) -> None:
        messages = [each for each in self._consumer.consume(500, timeout=0.1) if not each.error()]
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.read.add((partition, offset))
        if not messages:
            return
        with contextlib.suppress(KafkaException):  # the broker is away, or the group rebalances
            for each in self._consumer.commit(asynchronous=False):
                if each.error is None:
                    self.history.committed[GROUP, (each.topic, each.partition)] = each.offset
                    self.history.commits += 1

    def state(self) -> str:
        """What it is assigned, where it is there, and what it has committed: for people."""
        assigned = self._consumer.assignment()
        at = {each.partition: each.offset for each in self._consumer.position(assigned)}
        committed = {
            partition: offset
            for (group, (_, partition)), offset in dict(self.history.committed).items()
            if group == GROUP
        }
        return f"position by partition: {at}, committed: {committed}"

    def end(self) -> None:
        self._consumer.close()


class Plain(Worker):
    """Over one connection at a time: commits rising offsets without being a member, deletes records, asks for log starts."""

    def __init__(self, port: int, history: History, seed: int) -> None:
        super().__init__("plain", history)
        self._port = port
        self._dice = random.Random(seed)
        self._connection: WireConnection | None = None
        self._next_commit = 1

    def step(self) -> None:
        try:
            if self._connection is None:
                self._connection = WireConnection(self._port)
            work = self._dice.choice([self._commit] * 6 + [self._look] * 3 + [self._delete_records])
            work(self._connection)
        except (Disconnected, OSError):  # it was killed
            self.end()
            self.ending.wait(RECONNECT_S)

    def end(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def _commit(self, connection: WireConnection) -> None:
        kind = m.OffsetCommitRequest
        offset, self._next_commit = self._next_commit, self._next_commit + 1
        partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = kind.OffsetCommitRequestTopic(name=KEPT, partitions=[partition])
        request = kind(group_id=PLAIN_GROUP, generation_id_or_member_epoch=-1, topics=[topic])
        answer = connection.call(request, 8).topics[0].partitions[0]
        if answer.error_code == ErrorCode.NONE:
            self.history.committed[PLAIN_GROUP, (KEPT, 0)] = offset
            self.history.commits += 1
        else:
            self.ending.wait(RECONNECT_S)  # the coordinator is loading

    def _look(self, connection: WireConnection) -> None:
        for partition, offset in log_starts(connection).items():
            self.history.raise_start(partition, offset)

    def _delete_records(self, connection: WireConnection) -> None:
        kind = m.DeleteRecordsRequest
        index = self._dice.randrange(PARTITIONS[PRUNED])
        known = self.history.acknowledged[PRUNED, index]
        offset = self._dice.randrange(max(known, default=0) + 1)
        if offset <= self.history.starts.get((PRUNED, index), 0):
            return
        self.history.deleted[PRUNED, index] = max(
            offset, self.history.deleted.get((PRUNED, index), 0)
        )
        partition = kind.DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = kind.DeleteRecordsTopic(name=PRUNED, partitions=[partition])
        answer = connection.call(kind(topics=[topic], timeout_ms=30_000), 2)
        row = answer.topics[0].partitions[0]
        if row.error_code == ErrorCode.NONE:
            self.history.raise_start((PRUNED, index), row.low_watermark)
            self.history.deletions += 1


def log_starts(connection: WireConnection) -> dict[Partition, int]:
    """Where the logs of the topics begin, as far as the broker tells."""
    kind = m.ListOffsetsRequest
    topics = [
        kind.ListOffsetsTopic(
            name=name,
            partitions=[
                kind.ListOffsetsPartition(partition_index=index, timestamp=-2)
                for index in range(count)
            ],
        )
        for name, count in PARTITIONS.items()
    ]
    answer = connection.call(kind(replica_id=-1, topics=topics), 7)
    return {
        (topic.name, row.partition_index): row.offset
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
    }


def committed_offsets(connection: WireConnection, group: str) -> dict[Partition, int] | None:
    """What the group has committed; None while its coordinator does not answer."""
    kind = m.OffsetFetchRequest
    asked = kind.OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = connection.call(kind(groups=[asked]), 8).groups[0]
    if answer.error_code != ErrorCode.NONE or has_errors(answer.topics):
        return None
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
    }


def has_errors(topics: Iterable[msgspec.Struct]) -> bool:
    return any(row.error_code for topic in topics for row in topic.partitions)  # type: ignore[attr-defined]
