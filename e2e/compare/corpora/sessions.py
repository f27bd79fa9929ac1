"""Fetch sessions step by step (KIP-227), what ends a wait, and in which order partitions are answered."""

import time
from typing import Any, Final

from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("sessions")
LAST_NAMES_VERSION, NEWEST = 12, 18
NOWHERE: Final = MadeTopic("not-there", bytes(15) + b"\x07")
SHORT_WAIT_MS, LONG_WAIT_MS = 300, 60_000
Row = tuple[MadeTopic, int, int]
"""Topic, partition, offset."""


class Reader:
    """A consumer with a session and a connection of its own. id, epoch: of its next request."""

    def __init__(self, side: Side, version: int, name: str = "reader") -> None:
        self._side, self._on = side, name
        self.version = version
        self.id = self.epoch = 0
        self._topics: dict[bytes, str] = {}
        self._sent = m.FetchRequest()

    def ask(self, *rows: Row, **given: Any) -> None:
        """As `send`, and the answer is compared."""
        self.send(*rows, **given)
        self.answer()

    def ask_each(self, *requests: tuple[Row, ...]) -> None:
        for rows in requests:
            self.ask(*rows)

    def send(
        self,
        *rows: Row,
        forget: tuple[tuple[MadeTopic, int], ...] = (),
        fields: dict[str, Any] | None = None,
        **given: Any,
    ) -> None:
        """The next request. fields: further ones of each row. given: further ones of the request."""
        topics = [
            m.FetchRequest.FetchTopic(
                topic=topic.name,
                topic_id=topic.id,
                partitions=[r.fetch_row(offset, index=index, **(fields or {}))],
            )
            for topic, index, offset in rows
        ]
        forgotten = [
            m.FetchRequest.ForgottenTopic(topic=each.name, topic_id=each.id, partitions=[index])
            for each, index in forget
        ]
        asked: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1 << 20, "session_id": self.id}
        asked |= {"session_epoch": self.epoch, "forgotten_topics_data": forgotten, **given}
        self._topics |= {topic.id: topic.name for topic, _, _ in rows}
        self._sent = m.FetchRequest(**asked, topics=topics)
        self._side.send(self._sent, self.version, on=self._on)
        self.epoch += 1

    def answer(self) -> None:
        """Answers are compared row by row; their order is noted besides."""
        answer = self._side.answer(self._sent, self.version, on=self._on)
        self.id = answer.session_id or self.id
        named = [(self._topics.get(each.topic_id, each.topic), each) for each in answer.responses]
        order = [[name, row.partition_index] for name, each in named for row in each.partitions]
        self._side.note("order", order)


def append(side: Side, topic: MadeTopic, index: int = 0, value: bytes = b"value") -> int:
    """One record in a batch of its own; the length of the batch."""
    batch = r.batch(value=value)
    r.fill(side, topic, batch, index=index)
    return len(batch)


@CORPUS.versions("Fetch", only=(7, 12, 13, 18))
def a_session_step_by_step(side: Side, version: int) -> None:
    topic, other = side.topic("steps", 3), side.topic("other")
    append(side, topic)
    reader = Reader(side, version)
    reader.ask((topic, 0, 0), (topic, 1, 0), (other, 0, 0))
    reader.ask((topic, 0, 1))
    reader.ask()
    append(side, topic, 1)
    reader.ask_each((), (), ((topic, 1, 1),), (), ((topic, 2, 0),), ())
    append(side, topic, 2)
    reader.ask(forget=((topic, 2), (topic, 2), (other, 0)))
    reader.ask_each((), ((topic, 0, 5),), (), ((topic, 0, 1),))  # 5 is out of range
    reader.ask_each(((topic, 9, 0), (NOWHERE, 0, 0), (topic, 2, 0)), ())
    side.get(r.delete_records(topic.name, 1))
    reader.ask(forget=((topic, 9),))
    reader.ask()
    for epoch in (7, 0):  # fenced, and no longer
        reader.ask((topic, 0, 1), fields={"current_leader_epoch": epoch})
        reader.ask()
    reader.ask(forget=tuple((topic, index) for index in range(3)))
    reader.ask()


@CORPUS.versions("Fetch", only=(7, 18))
def the_order_of_partitions(side: Side, version: int) -> None:
    """Room for one batch, for two, and for all.

    What no whole batch has room in, Kafka fills with the beginning of one; we leave it.
    """
    topic, other = side.topic("order", 3), side.topic("other")
    for each, index in ((topic, 0), (topic, 1), (topic, 2), (other, 0)):
        for _ in range(3):
            size = append(side, each, index, bytes(1000))
    reader = Reader(side, version)
    rows: tuple[Row, ...] = (
        (topic, 2, 0),
        (other, 0, 0),
        (topic, 0, 0),
        (NOWHERE, 0, 0),
        (topic, 1, 0),
    )
    for room in (1, 1, 2 * size, 2 * size, 1, 1 << 20, 1):
        reader.ask(*rows, max_bytes=room)
        rows = ()
    reader.ask((other, 0, 3), max_bytes=1)
    reader.ask(max_bytes=1)
    reader.ask((topic, 1, 0), max_bytes=2 * size, fields={"partition_max_bytes": 1})


@CORPUS.versions("Fetch", only=(12, 18))
def twice_the_same(side: Side, version: int) -> None:
    """A partition twice in a request, with a session and without."""
    topic, other = side.topic("twice"), side.topic("other")
    append(side, topic)
    reader = Reader(side, version)
    rows = ((topic, 0, 0), (other, 0, 0), (topic, 0, 1), (other, 7, 0), (other, 0, 0))
    reader.ask(*rows)
    reader.ask(*rows)
    reader.epoch = -1
    reader.ask(*rows)


@CORPUS.versions("Fetch", only=(12, 13, 18))
def what_is_wrong_with_a_session(side: Side, version: int) -> None:
    topic = side.topic()
    there = (topic, 0, 0)
    reader = Reader(side, version)
    reader.ask(there)
    for epoch in (2, 0x7FFFFFFF, -2):
        reader.epoch = epoch
        reader.ask(there)
    reader.epoch = 1
    reader.ask()
    known = reader.id
    reader.version = LAST_NAMES_VERSION if version > LAST_NAMES_VERSION else NEWEST
    reader.ask(there)
    reader.version, reader.epoch = version, 2
    reader.ask()
    for epoch in (1, 3):
        reader.id, reader.epoch = known ^ 1, epoch
        reader.ask(there)
    reader.id, reader.epoch = known, -1  # closes it
    reader.ask(there)
    reader.epoch = 3
    reader.ask()
    reader.epoch = 0
    reader.ask(there)
    reader.epoch = 0
    reader.ask()
    reader.ask_each((), (there,), ())


@CORPUS.versions("Fetch", only=(12, 18))
def waiting(side: Side, version: int) -> None:
    """A fetch waits, and the wait ends in different ways."""
    topic = side.topic(partitions=2)

    def waits(*rows: Row) -> None:
        """The answer comes when the time is over; up to 1 ms before, as Kafka's timers count whole ones (SystemTimer)."""
        began = time.monotonic()
        reader.ask(*rows, max_wait_ms=SHORT_WAIT_MS)
        assert time.monotonic() - began >= (SHORT_WAIT_MS - 1) / 1000, rows

    def answers(*rows: Row, **given: Any) -> None:
        """The answer comes long before the time is over."""
        began = time.monotonic()
        reader.ask(*rows, max_wait_ms=LONG_WAIT_MS, **given)
        assert time.monotonic() - began < LONG_WAIT_MS / 2000, rows

    there, unknown, no_partition = (topic, 0, 0), (NOWHERE, 0, 0), (topic, 9, 0)
    for epoch in (0, -1):
        reader = Reader(side, version, f"reader-{epoch}")
        reader.epoch = epoch
        waits(there)
        reader.epoch = epoch
        waits(unknown, there, no_partition)
        reader.epoch = epoch
        answers(unknown, no_partition)
        reader.epoch = epoch
        answers(there, (topic, 1, 9))
        reader.epoch = epoch
        answers(there, min_bytes=0)
    reader = Reader(side, version)
    reader.ask((topic, 0, 0), (topic, 1, 0))
    waits()
    answers(min_bytes=0)
    waits(unknown)
    waits(no_partition)
    answers((topic, 1, 9))
    answers()
    waits((topic, 1, 0))
    reader.send(max_wait_ms=LONG_WAIT_MS)
    append(side, topic, 1)
    reader.answer()
    waits((topic, 1, 1))
    reader.send(max_wait_ms=LONG_WAIT_MS, min_bytes=100)
    append(side, topic, 1)
    append(side, topic, 0)
    reader.answer()


@CORPUS.versions("Fetch", only=(12, 18))
def diverging_epochs(side: Side, version: int) -> None:
    topic = side.topic()
    for _ in range(3):
        append(side, topic)
    reader = Reader(side, version)
    reader.ask((topic, 0, 3))
    for offset, epoch in ((3, 0), (4, 0), (2, 1), (3, 1), (0, 5), (4, 3), (-1, 0)):
        reader.ask((topic, 0, offset), fields={"last_fetched_epoch": epoch})
    reader.ask()
    for last, current in ((0, 1), (-2, -9)):
        fields = {"last_fetched_epoch": last, "current_leader_epoch": current}
        reader.ask((topic, 0, 2), fields=fields)
