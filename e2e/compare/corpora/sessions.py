"""Talks over Fetch with one broker, Kafka's or ours.

Each yields outcomes that are equal for two brokers with the same behaviour.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.compare.talks.talker import Talker
from e2e.harness.wire_connection import WireConnection

Outcomes = Iterator[object]
FIRST_SESSION_VERSION, LAST_NAMES_VERSION, NEWEST = 7, 12, 18
UNKNOWN_ID = bytes(15) + b"\x07"
SHORT_WAIT_MS, LONG_WAIT_MS = 300, 60_000


class Topic:
    """A topic of the talk's own, newly created."""

    def __init__(self, talker: Talker, name: str, partitions: int = 1) -> None:
        self.name = name
        self._talker = talker
        self.id = talker.make_topic(name, partitions=partitions)

    def append(self, partition: int = 0, value: bytes = b"value") -> int:
        """Append one record in a batch of its own.

        Return the batch's length, equal on both brokers.
        """
        batch = bytes(build_batch([Record(b"key", value, time.time_ns() // 1_000_000)]))
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=batch)
        topic = m.ProduceRequest.TopicProduceData(topic_id=self.id, partition_data=[data])
        answer = self._talker.call(
            m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 13
        )
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        return len(batch)

    def delete_before(self, offset: int) -> None:
        """Delete the records of partition 0 below `offset`."""
        asked = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=self.name, partitions=[asked])
        request = m.DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
        answer = self._talker.call(request, 2)
        assert answer.topics[0].partitions[0].error_code == 0, answer


Row = tuple[Topic | None, int, int]
"""Topic (None: one that does not exist), partition, offset."""


class Reader:
    """A consumer with its own session and connection, until the block ends."""

    def __init__(self, talker: Talker, version: int = NEWEST) -> None:
        self._connection = WireConnection(talker.port)
        self.version = version
        self.id = self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.socket.close()

    def ask(
        self,
        *rows: Row,
        forget: tuple[tuple[Topic, int], ...] = (),
        fields: dict[str, Any] | None = None,
        **given: Any,
    ) -> list[object]:
        """Return the outcome of the next request.

        fields: further fields of each row. given: further fields of the request.
        """
        self.send(*rows, forget=forget, fields=fields, **given)
        return self.outcome()

    def send(
        self,
        *rows: Row,
        forget: tuple[tuple[Topic, int], ...] = (),
        fields: dict[str, Any] | None = None,
        **given: Any,
    ) -> None:
        """Send the next request without waiting for the response."""
        topics = [
            m.FetchRequest.FetchTopic(
                partitions=[
                    m.FetchRequest.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        **{"partition_max_bytes": 1 << 20, **(fields or {})},
                    )
                ],
                **self._named(topic),
            )
            for topic, partition, offset in rows
        ]
        forgotten = [
            m.FetchRequest.ForgottenTopic(partitions=[partition], **self._named(topic))
            for topic, partition in forget
        ]
        asked: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1 << 20}
        if self.version >= FIRST_SESSION_VERSION:
            asked |= {"session_id": self.id, "session_epoch": self.epoch}
            asked["forgotten_topics_data"] = forgotten
        self._connection.send(m.FetchRequest(**asked | given, topics=topics), self.version)
        self.epoch += 1

    def outcome(self) -> list[object]:
        """Return the outcome of the request that was sent.

        It has the error, whether the session is new, the same or none, and the rows in their order.
        """
        answer = self._connection.receive(m.FetchRequest, self.version)
        if answer.session_id == 0:
            session = "none"
        else:
            session = "same" if answer.session_id == self.id else "new"
            self.id = answer.session_id
        names = [topic.topic_id or topic.topic for topic in answer.responses]
        # topics are numbered in order of appearance, as their ids differ between brokers
        rows = [
            (names.index(name), *_seen(row))
            for name, topic in zip(names, answer.responses, strict=True)
            for row in topic.partitions
        ]
        nodes = [(node.node_id, node.host, node.rack) for node in answer.node_endpoints]
        return [ErrorCode(answer.error_code).name, session, len(names), nodes, *rows]

    def _named(self, topic: Topic | None) -> dict[str, Any]:
        if self.version > LAST_NAMES_VERSION:
            return {"topic_id": UNKNOWN_ID if topic is None else topic.id}
        return {"topic": "not-there" if topic is None else topic.name}


def _seen(row: Any) -> tuple[object, ...]:
    leader, diverging = row.current_leader, row.diverging_epoch
    return (
        row.partition_index,
        ErrorCode(row.error_code).name,
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        len(row.records or b""),
        row.aborted_transactions,
        row.preferred_read_replica,
        diverging and (diverging.epoch, diverging.end_offset),
        leader and (leader.leader_id, leader.leader_epoch),
    )


def a_session_step_by_step(talker: Talker, version: int) -> Outcomes:
    topic, other = Topic(talker, f"steps-{version}", 3), Topic(talker, f"steps-other-{version}")
    topic.append(0)
    with Reader(talker, version) as reader:
        yield reader.ask((topic, 0, 0), (topic, 1, 0), (other, 0, 0))
        yield reader.ask((topic, 0, 1))
        yield reader.ask()
        topic.append(1)
        yield reader.ask(), reader.ask(), reader.ask((topic, 1, 1)), reader.ask()
        yield "added", reader.ask((topic, 2, 0)), reader.ask()
        topic.append(2)
        yield "forgotten", reader.ask(forget=((topic, 2), (topic, 2), (other, 0))), reader.ask()
        yield "out of range", reader.ask((topic, 0, 5)), reader.ask(), reader.ask((topic, 0, 1))
        yield "unknown", reader.ask((topic, 9, 0), (None, 0, 0), (topic, 2, 0)), reader.ask()
        topic.delete_before(1)
        yield "log start", reader.ask(forget=((topic, 9),)), reader.ask()
        yield "fenced", reader.ask((topic, 0, 1), fields={"current_leader_epoch": 7}), reader.ask()
        yield (
            "unfenced",
            reader.ask((topic, 0, 1), fields={"current_leader_epoch": 0}),
            reader.ask(),
        )
        yield "all forgotten", reader.ask(forget=tuple((topic, n) for n in range(3))), reader.ask()


def the_order_of_partitions(talker: Talker, version: int) -> Outcomes:
    topic, other = Topic(talker, f"order-{version}", 3), Topic(talker, f"order-other-{version}")
    for each, partition in ((topic, 0), (topic, 1), (topic, 2), (other, 0)):
        for _ in range(3):
            size = each.append(partition, bytes(1000))
    with Reader(talker, version) as reader:
        rows: tuple[Row, ...] = (
            (topic, 2, 0),
            (other, 0, 0),
            (topic, 0, 0),
            (None, 0, 0),
            (topic, 1, 0),
        )
        # room for one batch, for two, and for all. What no whole batch has room in, Kafka fills with the beginning of one; we leave it.
        for room in (1, 1, 2 * size, 2 * size, 1, 1 << 20, 1):
            yield reader.ask(*rows, max_bytes=room)
            rows = ()
        yield reader.ask((other, 0, 3), max_bytes=1), reader.ask(max_bytes=1)
        yield reader.ask((topic, 1, 0), max_bytes=2 * size, fields={"partition_max_bytes": 1})


def twice_the_same(talker: Talker, version: int) -> Outcomes:
    """Name a partition twice in a request, with a session and without."""
    topic, other = Topic(talker, f"twice-{version}"), Topic(talker, f"twice-other-{version}")
    topic.append()
    with Reader(talker, version) as reader:
        rows = ((topic, 0, 0), (other, 0, 0), (topic, 0, 1), (other, 7, 0), (other, 0, 0))
        yield reader.ask(*rows), reader.ask(*rows)
        reader.epoch = -1
        yield reader.ask(*rows)


def what_is_wrong_with_a_session(talker: Talker, version: int) -> Outcomes:
    topic = Topic(talker, f"wrong-{version}")
    with Reader(talker, version) as reader:
        yield reader.ask((topic, 0, 0))
        for epoch in (2, 0x7FFFFFFF, -2):
            reader.epoch = epoch
            yield reader.ask((topic, 0, 0))
        reader.epoch = 1
        yield reader.ask()
        known = reader.id
        reader.version = LAST_NAMES_VERSION if version > LAST_NAMES_VERSION else NEWEST
        yield reader.ask((topic, 0, 0))
        reader.version, reader.epoch = version, 2
        yield reader.ask()
        for epoch in (1, 3):
            reader.id, reader.epoch = known ^ 1, epoch
            yield reader.ask((topic, 0, 0))
        reader.id, reader.epoch = known, -1
        yield "closed", reader.ask((topic, 0, 0))
        reader.epoch = 3
        yield reader.ask()
        reader.epoch = 0
        yield "new", reader.ask((topic, 0, 0))
        reader.epoch = 0
        yield "new again", reader.ask()
        yield "empty", reader.ask(), reader.ask((topic, 0, 0)), reader.ask()


def waiting(talker: Talker, version: int) -> Outcomes:
    """Let a fetch wait, and end the wait in different ways."""
    topic = Topic(talker, f"wait-{version}", 2)

    def waits(*rows: Row, **given: Any) -> object:
        """Return whether the response comes when the wait time is over.

        It may be up to 1 ms early, as Kafka's timers count whole milliseconds (SystemTimer).
        """
        began = time.monotonic()
        outcome = reader.ask(*rows, max_wait_ms=SHORT_WAIT_MS, **given)
        assert time.monotonic() - began >= (SHORT_WAIT_MS - 1) / 1000, outcome
        return outcome

    def answers(*rows: Row, **given: Any) -> object:
        """Return whether the response comes long before the wait time is over."""
        began = time.monotonic()
        outcome = reader.ask(*rows, max_wait_ms=LONG_WAIT_MS, **given)
        assert time.monotonic() - began < LONG_WAIT_MS / 2000, outcome
        return outcome

    there, unknown, no_partition = (topic, 0, 0), (None, 0, 0), (topic, 9, 0)
    for epoch in (0, -1):
        with Reader(talker, version) as reader:
            reader.epoch = epoch
            yield waits(there)
            reader.epoch = epoch
            yield waits(unknown, there, no_partition)
            reader.epoch = epoch
            yield answers(unknown, no_partition)
            reader.epoch = epoch
            yield answers(there, (topic, 1, 9))
            reader.epoch = epoch
            yield answers(there, min_bytes=0)
    with Reader(talker, version) as reader:
        yield reader.ask((topic, 0, 0), (topic, 1, 0))
        yield waits(), answers(min_bytes=0), waits(unknown), waits(no_partition)
        yield answers((topic, 1, 9)), answers(), waits((topic, 1, 0))
        reader.send(max_wait_ms=LONG_WAIT_MS)
        topic.append(1)
        yield reader.outcome(), waits((topic, 1, 1))
        reader.send(max_wait_ms=LONG_WAIT_MS, min_bytes=100)
        topic.append(1)
        topic.append(0)
        yield reader.outcome()


def diverging_epochs(talker: Talker, version: int) -> Outcomes:
    topic = Topic(talker, f"diverging-{version}")
    for _ in range(3):
        topic.append()
    with Reader(talker, version) as reader:
        yield reader.ask((topic, 0, 3))
        for offset, last_epoch in ((3, 0), (4, 0), (2, 1), (3, 1), (0, 5), (4, 3), (-1, 0)):
            yield reader.ask((topic, 0, offset), fields={"last_fetched_epoch": last_epoch})
        yield reader.ask()
        yield reader.ask((topic, 0, 2), fields={"last_fetched_epoch": 0, "current_leader_epoch": 1})
        yield reader.ask(
            (topic, 0, 2), fields={"last_fetched_epoch": -2, "current_leader_epoch": -9}
        )


TALKS: dict[str, tuple[Callable[[Talker, int], Outcomes], tuple[int, ...]]] = {
    "a session step by step": (a_session_step_by_step, (7, 12, 13, 18)),
    "the order of partitions": (the_order_of_partitions, (7, 18)),
    "twice the same": (twice_the_same, (12, 18)),
    "what is wrong with a session": (what_is_wrong_with_a_session, (12, 13, 18)),
    "waiting": (waiting, (12, 18)),
    "diverging epochs": (diverging_epochs, (12, 18)),
}
"""Name -> the talk, and the versions of Fetch in which it is held."""
