"""Fetch: limits, waits, offsets, epochs, sessions. Source: ReplicaManager.readFromLog, FetchManager, KIP-74, KIP-227, KIP-320."""

from typing import Final

from logfleet.records.compression import Codec
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("fetch")
LONG_WAIT_MS: Final = 10_000
SIZE: Final = len(r.batch(value=b"x" * 1000))
LONG_MAX: Final = 2**63 - 1


def filled(side: Side, name: str = "t", partitions: int = 1) -> MadeTopic:
    """Offsets 0 to 9: batches of 3, 1, 4 (compressed) and 2 records in each partition."""
    topic = side.topic(name, partitions)
    for index in range(partitions):
        packed = r.batch(4, first=4, codec=Codec.GZIP)
        batches = (r.batch(3), r.batch(1, first=3), packed, r.batch(2, first=8))
        r.fill(side, topic, *batches, index=index)
    return topic


def even(side: Side, partitions: int = 1, count: int = 4) -> MadeTopic:
    """Batches of SIZE bytes, one record each."""
    topic = side.topic("even", partitions)
    for index in range(partitions):
        batches = (r.batch(value=b"x" * 1000) for _ in range(count))
        r.fill(side, topic, *batches, index=index)
    return topic


@CORPUS.versions("Fetch")
def offsets(side: Side, version: int) -> None:
    topic = filled(side)
    for offset in (0, 1, 3, 5, 9, 10, 11, -1, -2, LONG_MAX):
        side.ask(r.fetch(topic, offset), version)


@CORPUS.versions("Fetch", only=(4, 11, 18))
def empty_logs(side: Side, version: int) -> None:
    topic = side.topic()
    for offset in (0, 1, -1):
        side.ask(r.fetch(topic, offset), version)


@CORPUS.case
def bytes_of_a_partition(side: Side) -> None:
    topic = even(side)
    for limit in (0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 3 * SIZE - 1, 9 * SIZE):
        side.ask(r.fetch(topic, partition_max_bytes=limit), 12)


@CORPUS.case
def bytes_of_an_answer(side: Side) -> None:
    """The first partition with records gives one batch whatever the limits (KIP-74)."""
    topic = even(side, partitions=3)
    for limit in (0, 1, SIZE, SIZE + 1, 2 * SIZE, 4 * SIZE, 5 * SIZE, 99 * SIZE):
        for own in (1, SIZE, 2 * SIZE, 99 * SIZE):
            rows = [r.fetch_row(0, index=index, partition_max_bytes=own) for index in (1, 0, 2)]
            side.ask(r.fetch_rows(topic, rows, max_bytes=limit), 12)


@CORPUS.case
def the_first_partition_with_records_need_not_be_the_first(side: Side) -> None:
    topic = even(side, partitions=3)
    ends = {0: 4, 1: 2, 2: 0}
    rows = [
        r.fetch_row(offset, index=index, partition_max_bytes=1) for index, offset in ends.items()
    ]
    side.ask(r.fetch_rows(topic, rows, max_bytes=1), 12)
    rows.insert(0, r.fetch_row(99, index=0))
    side.ask(r.fetch_rows(topic, rows[:1] + rows[2:], max_bytes=1), 12)


@CORPUS.case
def several_segments(side: Side) -> None:
    """A read does not cross the end of a segment."""
    topic = side.topic(config={"segment.bytes": str(1 << 20)})
    r.fill(side, topic, *(r.batch(value=b"x" * 400_000) for _ in range(5)))
    for offset in range(6):
        side.ask(r.fetch(topic, offset, partition_max_bytes=10 << 20), 12)


@CORPUS.case
def waiting_for_nothing(side: Side) -> None:
    topic = side.topic()
    for wait_ms, least in ((0, 1), (1, 1), (200, 1), (200, 0), (LONG_WAIT_MS, 0), (200, -1)):
        side.ask(r.fetch_rows(topic, [r.fetch_row()], max_wait_ms=wait_ms, min_bytes=least), 12)


@CORPUS.case
def waiting_ends_with_enough_records(side: Side) -> None:
    topic = side.topic()
    size = len(r.batch())
    for offset, least in ((0, 1), (1, size), (2, size + 1)):
        request = r.fetch_rows(
            topic, [r.fetch_row(offset)], max_wait_ms=LONG_WAIT_MS, min_bytes=least
        )
        side.send(request, 12)
        r.fill(side, topic, r.batch())
        if least > size:
            r.fill(side, topic, r.batch())
        side.answer(request, 12)


@CORPUS.case
def errors_end_a_wait(side: Side) -> None:
    topic = filled(side, partitions=2)
    for bad in (r.fetch_row(99, index=1), r.fetch_row(0, index=5)):
        rows = [r.fetch_row(10, index=0), bad]
        request = r.fetch_rows(topic, rows, max_wait_ms=LONG_WAIT_MS, min_bytes=1)
        side.ask_in_time(request, 12, within_s=LONG_WAIT_MS / 2000)


@CORPUS.versions("Fetch", only=(9, 12, 16, 18))
def leader_epochs(side: Side, version: int) -> None:
    topic = filled(side)
    for epoch in (-1, 0, 1, 99):
        side.ask(r.fetch(topic, current_leader_epoch=epoch), version)


@CORPUS.versions("Fetch", only=(12, 18))
def last_fetched_epochs(side: Side, version: int) -> None:
    topic = filled(side)
    for epoch in (-1, 0, 1):
        for offset in (0, 5, 10, 11):
            side.ask(r.fetch(topic, offset, last_fetched_epoch=epoch), version)


@CORPUS.versions("Fetch", only=(4, 11, 18))
def committed_records_only(side: Side, version: int) -> None:
    topic = filled(side)
    for offset in (0, 10, 11):
        side.ask(r.fetch_rows(topic, [r.fetch_row(offset)], isolation_level=1), version)


@CORPUS.versions("Fetch", only=(4, 12, 13, 18))
def topics_that_are_not_there(side: Side, version: int) -> None:
    topic = filled(side)
    for index in (1, -1, 2**31 - 1):
        side.ask(r.fetch(topic, index=index), version)
    for name, topic_id in (
        (f"{side.prefix}none", b"unknown-unknown-"),
        ("no name!", bytes(16)),
        ("", topic.id),
    ):
        side.ask(r.fetch(MadeTopic(name, topic_id)), version)
    side.ask(m.FetchRequest(max_bytes=1 << 20), version)


# --- sessions (KIP-227)


@CORPUS.versions("Fetch", only=(7, 12, 13, 18))
def session_life(side: Side, version: int) -> None:
    topic = filled(side, partitions=2)
    both = [r.fetch_row(0, index=0), r.fetch_row(10, index=1)]
    first = side.ask(r.fetch_rows(topic, both, session_epoch=0), version)
    session = first.session_id
    again = m.FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=1)
    side.ask(again, version)
    moved = r.fetch_rows(topic, [r.fetch_row(10)], session_id=session, session_epoch=2)
    side.ask(moved, version)
    side.ask(m.FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=3), version)
    r.fill(side, topic, r.batch(), index=1)
    side.ask(m.FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=4), version)
    forgotten = m.FetchRequest.ForgottenTopic(
        topic=topic.name, topic_id=topic.id, partitions=[0, 1]
    )
    side.ask(
        m.FetchRequest(
            max_bytes=1 << 20,
            session_id=session,
            session_epoch=5,
            forgotten_topics_data=[forgotten],
        ),
        version,
    )
    side.ask(m.FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=-1), version)
    side.ask(m.FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=6), version)


@CORPUS.versions("Fetch", only=(7, 13))
def sessions_gone_wrong(side: Side, version: int) -> None:
    topic = filled(side)
    for session, epoch in ((0, 1), (123456789, 1), (123456789, 0), (123456789, -1), (0, -1)):
        request = r.fetch_rows(topic, [r.fetch_row()], session_id=session, session_epoch=epoch)
        side.ask(request, version)
    made = side.ask(r.fetch_rows(topic, [r.fetch_row()], session_epoch=0), version).session_id
    for epoch in (2, 1, 1):
        side.ask(m.FetchRequest(max_bytes=1 << 20, session_id=made, session_epoch=epoch), version)


@CORPUS.case
def errors_in_a_session(side: Side) -> None:
    topic = filled(side)
    rows = [r.fetch_row(99), r.fetch_row(0, index=7)]
    made = side.ask(r.fetch_rows(topic, rows, session_epoch=0)).session_id
    for epoch in (1, 2):
        side.ask(m.FetchRequest(max_bytes=1 << 20, session_id=made, session_epoch=epoch))
