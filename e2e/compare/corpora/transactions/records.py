"""Records of transactions: who may produce them, who reads them, and the markers that end them.

Source: ReplicaManager, UnifiedLog, ProducerStateManager, VerificationStateEntry, TransactionIndex; KIP-98, KIP-392, KIP-664, KIP-890, KIP-1228.
"""

import itertools
from typing import Any, Final

from logfleet.wire import messages as m

from e2e.compare import producers as p
from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.producers import ADDED_WITH_RECORDS_SINCE, UNKNOWN_PRODUCER, Who
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("transactions-records")
ISOLATION_SINCE: Final = {"Fetch": 4, "ListOffsets": 2}
TV1, TV2 = 4, 5
"""Versions of EndTxn."""
LAST_EPOCH: Final = 32_767
ONE, OTHER, AGAIN = (Who("", UNKNOWN_PRODUCER + n, 0) for n in range(3))
"""Producers that no coordinator knows, whose transactions only markers end."""


def ends(side: Side, topic: MadeTopic, index: int = 0) -> None:
    for isolation in (0, 1):
        side.ask(r.list_offsets(topic, -1, index=index, isolation=isolation))


def sent(who: Who, topic: MadeTopic, *batches: bytes, index: int = 0) -> m.ProduceRequest:
    """The batches as rows of one partition each."""
    rows = [(index + number, each) for number, each in enumerate(batches)]
    request = r.produce_rows(topic, rows)
    request.transactional_id = who.id or None
    return request


# --- Produce


@CORPUS.versions("Produce")
def producing(side: Side, version: int) -> None:
    """Before and after the partition is added, out of sequence, and over several transactions."""
    topic = side.topic(partitions=3)
    who = p.initialised(side, "id")
    tv2 = version >= ADDED_WITH_RECORDS_SINCE
    side.settle(p.produce(who, topic), version)
    side.ask(p.describe(who.id))
    side.settle(p.add(who, {topic.name: [0]}), 3)
    for sequence in (0, 1, 1, 3, 2):
        side.settle(p.produce(who, topic, sequence), version)
    side.settle(p.produce(who, topic, 0, index=1), version)
    side.settle(p.produce(who, topic, 5, index=2), version)
    side.ask(p.describe_producers(topic.name, 0, 1, 2))
    ends(side, topic)
    following = p.ended(side, who, TV2 if tv2 else TV1)
    ends(side, topic)
    side.settle(p.produce(who, topic, 3), version)
    side.settle(p.add(following, {topic.name: [0]}), 3)
    for sequence in (7, 0, 3) if tv2 else (7, 3, 4, 3):
        side.settle(p.produce(following, topic, sequence), version)
    fresh = p.again(side, who)
    ends(side, topic)
    side.settle(p.produce(following, topic, 4), version)
    side.settle(p.add(fresh, {topic.name: [0]}), 3)
    for sequence in (1, 0):
        side.settle(p.produce(fresh, topic, sequence), version)
    p.ended(side, fresh, TV2 if tv2 else TV1, commit=False)
    ends(side, topic)
    side.ask(p.describe_producers(topic.name, 0, 1, 2))


@CORPUS.versions("Produce", only=(3, 11, 12, 13))
def repeating(side: Side, version: int) -> None:
    """A batch that was appended is sent again: during its transaction, after its end, and in the next."""
    topic = side.topic()
    who = p.initialised(side, "id")
    side.settle(p.add(who, {topic.name: [0]}), 3)
    for sequence in (0, 1, 2, 0, 2):
        side.settle(p.produce(who, topic, sequence), version)
    following = p.ended(side, who, TV2 if version >= ADDED_WITH_RECORDS_SINCE else TV1)
    for sequence in (2, 0):
        side.settle(p.produce(who, topic, sequence), version)
    side.settle(p.add(following, {topic.name: [0]}), 3)
    side.settle(p.produce(who, topic, 2), version)
    ends(side, topic)


@CORPUS.versions("Produce", only=(3, 9, 11, 12, 13))
def producing_as_nobody_may(side: Side, version: int) -> None:
    topic = side.topic(partitions=2)
    who, other = p.initialised(side, "id"), p.initialised(side, "other")
    side.settle(p.add(who, {topic.name: [0, 1]}), 3)
    side.settle(p.produce(who, topic), version)

    def batch(whose: Who, sequence: int = 1, *, transactional: bool = True) -> bytes:
        return r.batch(producer=whose.stamp(sequence, transactional=transactional))

    for request in (
        sent(Who(""), topic, batch(who)),
        sent(who, topic, batch(who, transactional=False)),
        sent(Who(""), topic, batch(who, transactional=False)),
        sent(who, topic, r.batch()),
        sent(who, topic, batch(who), batch(other)),
        sent(who, topic, batch(who), batch(who.of_epoch(1), 0)),
        sent(who, topic, batch(who, 7), r.batch()),
        sent(other, topic, batch(who)),
        sent(other, topic, batch(who, 0), index=1),
        sent(who._replace(id=f"{side.prefix}none"), topic, batch(other, 0), index=1),
        sent(who, topic, batch(who.of_epoch(1), 0)),
        sent(who, topic, batch(who.of_epoch(-1), 0)),
        sent(who, topic, batch(who.of_epoch(5), 0), index=1),
        sent(who, topic, batch(who._replace(producer_id=UNKNOWN_PRODUCER), 0), index=1),
        sent(who, topic, batch(who, 0), index=7),
    ):
        side.settle(request, version)
    for acks in (0, 1):
        request = sent(who, topic, batch(other, 0))
        request.acks = acks
        if acks:
            side.settle(request, version)
        else:
            side.tell(request, version, on="other")
    side.ask(p.describe(who.id, other.id))
    p.ended(side, who)
    side.ask(p.describe_producers(topic.name, 0, 1))


@CORPUS.versions("Produce", only=(3, 11, 12, 13))
def producing_to_internal_topics(side: Side, version: int) -> None:
    who = p.initialised(side, "id")
    for name in ("__consumer_offsets", "__transaction_state"):
        (row,) = side.get(r.metadata(name), 12).topics
        topic = MadeTopic(name, row.topic_id)
        for each in (who, Who("")):
            batch = r.batch(producer=who.stamp(0, transactional=bool(each.id)))
            side.settle(sent(each, topic, batch), version)


@CORPUS.case
def idempotent_producers_beside(side: Side) -> None:
    """A plain batch of a producer with a transaction, and after it."""
    topic = side.topic()
    for version in (3, 11, 12, 13):
        who = p.initialised(side, f"id{version}")
        side.settle(p.add(who, {topic.name: [0]}), 3)
        side.settle(p.produce(who, topic), version)
        plain = r.batch(producer=who.stamp(1, transactional=False))
        side.settle(sent(Who(""), topic, plain), version)
        p.ended(side, who, TV1)
        side.settle(sent(Who(""), topic, plain), version)
        side.settle(sent(Who(""), topic, plain), version)
        ends(side, topic)


# --- reading


def mixed(side: Side) -> MadeTopic:
    """Plain records, then transactions that overlap: committed, aborted, empty, and in progress from offset 21 on."""
    topic = side.topic()
    one, other, third = (p.initialised(side, name) for name in ("one", "other", "third"))
    r.fill(side, topic, r.batch(2))
    p.filled(side, one, topic, count=2)
    p.filled(side, other, topic, count=3)
    r.fill(side, topic, r.batch(1))
    one = p.ended(side, one)  # at offset 8
    p.filled(side, one, topic, count=1)
    other = p.ended(side, other, commit=False)  # at 10
    one = p.ended(side, one, commit=False)  # at 11
    p.filled(side, third, topic, count=4)
    p.filled(side, other, topic, count=1)
    other = p.ended(side, other, commit=False)
    third = p.ended(side, third, commit=False)
    side.settle(p.add(one, {topic.name: [0]}), 3)
    one = p.ended(side, one, commit=False)
    r.fill(side, topic, r.batch(2))
    p.filled(side, other, topic, count=1)
    r.fill(side, topic, r.batch(1))
    p.filled(side, third, topic, count=1)
    p.ended(side, third, commit=False)
    return topic


@CORPUS.versions("Fetch", only=range(ISOLATION_SINCE["Fetch"], 19))
def reading(side: Side, version: int) -> None:
    topic = mixed(side)
    for offset, isolation in itertools.product(range(28), (0, 1)):
        request = r.fetch_rows(topic, [r.fetch_row(offset)], isolation_level=isolation)
        side.ask(request, version)
    for offset, size in itertools.product((0, 4, 9, 12), (1, 100, 200, 300, 500)):
        row = r.fetch_row(offset, partition_max_bytes=size)
        side.ask(r.fetch_rows(topic, [row], isolation_level=1), version)


@CORPUS.versions("ListOffsets", only=range(ISOLATION_SINCE["ListOffsets"], 12))
def ends_for_readers(side: Side, version: int) -> None:
    topic = mixed(side)
    for timestamp in (*range(-6, 1), r.T0, r.T0 + 1, r.T0 + 3, r.T0 + 4, r.T0 + 10_000_000):
        for isolation in (0, 1):
            side.ask(r.list_offsets(topic, timestamp, isolation=isolation), version)


@CORPUS.versions("Fetch", only=(7, 12, 18))
def sessions_of_readers(side: Side, version: int) -> None:
    """A session is told of what became stable."""
    topic = side.topic(partitions=2)
    who = p.initialised(side, "id")
    sessions = []
    for isolation in (0, 1):
        rows = [r.fetch_row(index=index) for index in (0, 1)]
        request = r.fetch_rows(topic, rows, session_epoch=0, isolation_level=isolation)
        sessions.append(side.ask(request, version).session_id)

    def fetch_again(epoch: int) -> None:
        for isolation, session in enumerate(sessions):
            request = m.FetchRequest(
                max_bytes=1 << 20,
                session_id=session,
                session_epoch=epoch,
                isolation_level=isolation,
            )
            side.ask(request, version)

    p.filled(side, who, topic, count=2)
    fetch_again(1)
    r.fill(side, topic, r.batch(1))
    fetch_again(2)
    p.ended(side, who, commit=False)
    fetch_again(3)
    fetch_again(4)


@CORPUS.versions("DeleteRecords")
def deleting_records(side: Side, version: int) -> None:
    """Through a transaction in progress."""
    topic = mixed(side)
    for offset in (3, 9, 21, 23, -1, 99):
        side.ask(r.delete_records(topic.name, offset), version)
        ends(side, topic)
        for isolation in (0, 1):
            for at in (offset, 9, 24):
                row = r.fetch_row(at)
                side.ask(r.fetch_rows(topic, [row], isolation_level=isolation), 12)
    side.ask(p.describe_producers(topic.name, 0))


# --- markers


def write(side: Side, version: int, *markers: p.Marker) -> None:
    side.ask(m.WriteTxnMarkersRequest(markers=list(markers)), version)


@CORPUS.versions("WriteTxnMarkers")
def markers_of_nobody(side: Side, version: int) -> None:
    """Of producers that have written nothing: what the epochs of one marker allow to the next."""

    topic = side.topic(partitions=4)
    first: dict[str, Any] = {"coordinator_epoch": 3}
    for transaction_version in (0, 1, 2, 3, -1) if version >= 2 else (0,):
        where = {topic.name: [0, 1]}
        fields: dict[str, Any] = {"transaction_version": transaction_version}
        who = Who("", UNKNOWN_PRODUCER + transaction_version, 5)
        write(side, version, p.marker(who, where, **fields, **first))
        for epoch, coordinator_epoch, commit in itertools.product(
            (5, 4, 6, 6, LAST_EPOCH, LAST_EPOCH, -1), (3, 2, 4, -1), (True, False)
        ):
            each = p.marker(
                who.of_epoch(epoch),
                {topic.name: [0]},
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                **fields,
            )
            write(side, version, each)
        side.ask(p.describe_producers(topic.name, 0, 1))
    ends(side, topic)
    side.ask(r.fetch_rows(topic, [r.fetch_row(0)], isolation_level=1))


@CORPUS.versions("WriteTxnMarkers")
def markers_of_transactions(side: Side, version: int) -> None:
    """From a client, while the transaction is in progress, and again after its end."""
    topic = side.topic()
    for transaction_version, change, commit in itertools.product(
        (0, 1, 2) if version >= 2 else (0,), (-1, 0, 1), (True, False)
    ):
        who = p.initialised(side, f"id{transaction_version}{change}{commit}")
        who = p.again(side, who)
        p.filled(side, who, topic)
        each = p.marker(
            who.of_epoch(who.epoch + change),
            {topic.name: [0]},
            commit=commit,
            coordinator_epoch=0,
            transaction_version=transaction_version,
        )
        write(side, version, each)
        ends(side, topic)
        write(side, version, each)
        for produced in (11, 12):
            side.settle(p.produce(who, topic, 1), produced)
            side.settle(p.produce(who, topic), produced)
        side.ask(p.describe_producers(topic.name, 0))
        p.ended(side, who)
        side.ask(p.describe_producers(topic.name, 0))
        ends(side, topic)
    side.ask(r.fetch_rows(topic, [r.fetch_row(0)], isolation_level=1))


@CORPUS.versions("WriteTxnMarkers")
def markers_for_many(side: Side, version: int) -> None:
    """Several producers and partitions, some of which there are not."""
    topic, other = side.topic(partitions=2), side.topic("other")
    fields: dict[str, Any] = {"coordinator_epoch": 1}
    everywhere = {topic.name: [0, 1, 7], other.name: [0], f"{side.prefix}none": [0]}
    write(side, version, p.marker(ONE, everywhere, **fields))
    write(
        side,
        version,
        p.marker(AGAIN, {topic.name: [9]}, **fields),  # Kafka never answers if it comes last
        p.marker(ONE, {topic.name: [0]}, commit=False, **fields),
        p.marker(OTHER, {topic.name: [0, 1], other.name: [0]}, **fields),
    )
    for nobody in (Who("", -1, -1), Who("", -1, 0)):
        write(side, version, p.marker(nobody, {topic.name: [0]}, **fields))
    write(side, version, p.marker(ONE, {"__transaction_state": [0], "no name!": [0]}, **fields))
    write(side, version, p.marker(ONE, {"__consumer_offsets": [0]}, **fields))
    for each in (topic, other):
        side.ask(r.fetch_rows(each, [r.fetch_row(0)], isolation_level=1))
    side.ask(p.describe_producers(topic.name, 0, 1))


@CORPUS.case
def describing_producers(side: Side) -> None:
    topic = mixed(side)
    for name in (topic.name, f"{side.prefix}none", "no name!", ""):
        for indexes in ([0], [0, 1, -1], [], [0, 0]):
            side.ask(p.describe_producers(name, *indexes))
    side.ask(m.DescribeProducersRequest(topics=[]))
