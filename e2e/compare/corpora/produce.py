"""Produce: what is checked before an append, idempotence, acks, what a topic does to batches.

Source of the rules: ProduceRequest.validateRecords, LogValidator, ProducerAppendInfo, ReplicaManager.appendRecords.
"""

import struct
from collections.abc import Iterator
from typing import Final

from logfleet.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    replace_payload,
    write_crc,
)
from logfleet.records.compression import Codec, compress
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("produce")
SEQUENCE_MAX: Final = 2**31 - 1
HOUR_MS: Final = 3_600_000
OFFSETS_TOPIC: Final = "__consumer_offsets"
NO_ID: Final = bytes(16)
EVERY_RECORD: Final = {"logfleet.record.validation": "full"}
"""What Kafka does always."""

# position in the batch, struct format
BASE_OFFSET, LEADER_EPOCH, MAGIC, ATTRIBUTES = (0, ">q"), (12, ">i"), (16, ">b"), (21, ">h")
LENGTH, LAST_DELTA, MAX_TIME, COUNT = (8, ">i"), (23, ">i"), (35, ">q"), (57, ">i")


def patched(batch: bytes, place: tuple[int, str], value: int, *, crc: bool = True) -> bytes:
    """The batch with one field of its header changed."""
    changed = bytearray(batch)
    struct.pack_into(place[1], changed, place[0], value)
    if crc:
        write_crc(changed)
    return bytes(changed)


def send_and_read(side: Side, topic: MadeTopic, *batches: bytes | None, version: int = 12) -> None:
    """Produce each, then fetch everything."""
    for each in batches:
        side.ask(r.produce(topic, each), version)
    side.ask(r.fetch(topic), 12)


# --- what a batch may be


@CORPUS.versions("Produce")
def codecs(side: Side, version: int) -> None:
    topic = side.topic()
    batches = [r.batch(3, codec=codec, value=b"value " * 20) for codec in Codec]
    send_and_read(side, topic, *batches, version=version)


@CORPUS.versions("Produce", only=(3, 9, 10, 11, 12, 13))
def flags_that_clients_may_not_set(side: Side, version: int) -> None:
    topic = side.topic()
    for bit in (CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, DELETE_HORIZON_BIT):
        side.ask(r.produce(topic, patched(r.batch(), ATTRIBUTES, bit)), version)
    for codec in (5, 6, 7):
        side.ask(r.produce(topic, patched(r.batch(), ATTRIBUTES, codec)), version)
    side.ask(r.fetch(topic), 12)


@CORPUS.case
def headers_that_do_not_fit(side: Side) -> None:
    topic = side.topic()
    good = r.batch(2)
    send_and_read(
        side,
        topic,
        patched(good, COUNT, 0),
        patched(good, COUNT, -1),
        patched(good, COUNT, 1),
        patched(good, COUNT, 3),
        patched(good, LAST_DELTA, 0),
        patched(good, LAST_DELTA, 2),
        patched(good, LAST_DELTA, -1),
        patched(good, MAGIC, 3, crc=False),
        patched(good, MAGIC, 1, crc=False),
        patched(good, MAGIC, 0, crc=False),
        patched(good, LENGTH, 0, crc=False),
        patched(good, LENGTH, -1, crc=False),
        patched(good, LENGTH, len(good), crc=False),
        patched(good, LENGTH, len(good) - 13, crc=False),
    )


@CORPUS.case
def headers_that_the_leader_writes_itself(side: Side) -> None:
    topic = side.topic()
    good = r.batch(2)
    send_and_read(
        side,
        topic,
        patched(good, BASE_OFFSET, 1000, crc=False),
        patched(good, BASE_OFFSET, -5, crc=False),
        patched(good, LEADER_EPOCH, 7, crc=False),
        patched(good, MAX_TIME, r.T0),
        patched(good, MAX_TIME, r.T0 + 1000),
    )


@CORPUS.case
def bytes_that_are_no_batch(side: Side) -> None:
    topic = side.topic()
    good = r.batch(2)
    broken = bytearray(good)
    broken[-1] ^= 1
    for each in (bytes(broken), good[:-1], good + b"x", good + good, good[:61], good[:17], b""):
        side.ask(r.produce(topic, each), 9)
    side.ask(r.fetch(topic), 12)


def with_records(payload: bytes, codec: Codec = Codec.NONE, *, packed: bool = True) -> bytes:
    """A batch that says it has three records, with these bytes for them under a right checksum."""
    body = compress(codec, payload) if packed else payload
    return bytes(replace_payload(r.batch(3), codec, body))


def records_alone(count: int) -> list[bytes]:
    """Each as the first of its batch would be."""
    return [bytes(build_batch([record])[HEADER_SIZE:]) for record in r.records(count)]


def insides() -> Iterator[bytes]:
    """Batches with a right header and checksum whose records are not what it says."""
    good = r.batch(3)[HEADER_SIZE:]
    alone = records_alone(3)
    for codec in Codec:
        yield with_records(b"\xff" * 60, codec)
        yield with_records(bytes(60), codec)
        yield with_records(good[:-1], codec)
        yield with_records(good + b"\0", codec)
        yield with_records(good + alone[0], codec)
        yield with_records(good[: -len(alone[2])], codec)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        yield with_records(b"no such stream", codec, packed=False)
        yield with_records(compress(codec, good)[:-3], codec, packed=False)


@CORPUS.case
def records_that_do_not_fit_the_header(side: Side) -> None:
    """Right checksums, wrong insides, where every record is read."""
    topic = side.topic(config=EVERY_RECORD)
    send_and_read(side, topic, *insides())


@CORPUS.case
def records_that_are_believed(side: Side) -> None:
    """The same where ours looks at headers alone."""
    topic = side.topic()
    for each in insides():
        side.ask(r.produce(topic, each))


@CORPUS.case
def records_at_other_offsets(side: Side) -> None:
    topic = side.topic(config=EVERY_RECORD)
    alone = b"".join(records_alone(3))
    for codec in (Codec.NONE, Codec.LZ4):
        side.ask(r.produce(topic, with_records(alone, codec)))


@CORPUS.case
def headers_with_another_newest_time(side: Side) -> None:
    """Before the first record's, between, and after all of them, where every record is read."""
    times = (r.T0, r.T0 + 5, r.T0 + 3)
    for codec in (Codec.NONE, Codec.GZIP):
        topic = side.topic(codec.name, config=EVERY_RECORD)
        batch = bytes(build_batch([Record(b"k", b"v", time) for time in times], codec=codec))
        send_and_read(
            side,
            topic,
            *(patched(batch, MAX_TIME, time) for time in (-1, r.T0, r.T0 + 4, r.T0 + 9)),
        )
        side.ask(r.list_offsets(topic, -3))


@CORPUS.case
def empty_and_odd_records(side: Side) -> None:
    topic = side.topic()
    odd = [
        Record(None, None, r.T0),
        Record(b"", b"", r.T0),
        Record(b"k", b"v", r.T0, (("h", None), ("h", b""), ("", b"x"))),
        Record(b"k", b"v", r.T0 - 5),
    ]
    send_and_read(side, topic, bytes(build_batch(odd)), bytes(build_batch(odd, codec=Codec.LZ4)))


# --- limits and times


@CORPUS.versions("Produce", only=(3, 7, 8, 13))
def sizes(side: Side, version: int) -> None:
    exact = r.batch(value=b"x" * 500)
    topic = side.topic("limited", config={"max.message.bytes": str(len(exact))})
    for each in (exact, r.batch(value=b"x" * 501), r.batch(value=b"x" * 9000, codec=Codec.GZIP)):
        side.ask(r.produce(topic, each), version)
    segment = side.topic(
        "segment", config={"segment.bytes": str(1 << 20), "max.message.bytes": str(4 << 20)}
    )
    for size in (900_000, 2 << 20):
        side.ask(r.produce(segment, r.batch(value=b"x" * size)), version)


@CORPUS.versions("Produce", only=(7, 8, 13))
def timestamps_out_of_the_window(side: Side, version: int) -> None:
    now = r.T0 + HOUR_MS
    usual = side.topic("usual")
    narrow = side.topic(
        "narrow",
        config={
            "message.timestamp.before.max.ms": "7200000",
            "message.timestamp.after.max.ms": "7200000",
        },
    )
    for topic in (usual, narrow):
        for times in (
            [now + 3 * HOUR_MS],
            [now, now + 3 * HOUR_MS],
            [now - 9 * HOUR_MS],
            [-1],
            [0],
        ):
            for codec in (Codec.NONE, Codec.GZIP):
                records = [Record(b"k", b"v", time) for time in times]
                side.ask(r.produce(topic, bytes(build_batch(records, codec=codec))), version)


@CORPUS.versions("Produce", only=(3, 7, 13))
def headers_without_the_newest_time(side: Side, version: int) -> None:
    """Sarama's encoder wrote -1 until its PR 3108; LogValidator finds out the newest time of every batch."""
    times = (r.T0, r.T0 + 5, r.T0 + 3)
    for codec in (Codec.NONE, Codec.LZ4):
        batch = bytes(build_batch([Record(b"k", b"v", time) for time in times], codec=codec))
        for name, claimed in (("none", -1), ("before-the-first", r.T0 - 1)):
            topic = side.topic(f"{codec.name}-{name}")
            send_and_read(side, topic, patched(batch, MAX_TIME, claimed), version=version)
            for time in (-3, r.T0, r.T0 + 4, r.T0 + 5, r.T0 + 6):
                side.ask(r.list_offsets(topic, time))


@CORPUS.versions("Produce")
def log_append_time(side: Side, version: int) -> None:
    topic = side.topic(config={"message.timestamp.type": "LogAppendTime"})
    far = bytes(build_batch([Record(b"k", b"v", r.T0 + 99 * HOUR_MS)]))
    send_and_read(side, topic, r.batch(2), far, r.batch(2, codec=Codec.GZIP), version=version)
    side.ask(r.list_offsets(topic, r.T0))


# --- what the topic wants


@CORPUS.versions("Produce", only=(7, 8, 13))
def keys_on_compacted_topics(side: Side, version: int) -> None:
    for policy in ("compact", "compact,delete"):
        topic = side.topic(policy.replace(",", "-"), config={"cleanup.policy": policy})
        mixed = [Record(key, b"v", r.T0) for key in (b"k", None, b"", None)]
        for codec in (Codec.NONE, Codec.GZIP):
            side.ask(r.produce(topic, bytes(build_batch(mixed, codec=codec))), version)
            side.ask(r.produce(topic, r.batch(2, codec=codec)), version)


@CORPUS.case
def recompression(side: Side) -> None:
    for wanted in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        topic = side.topic(wanted, config={"compression.type": wanted})
        batches = [r.batch(3, value=b"value " * 50, codec=codec) for codec in Codec]
        send_and_read(side, topic, *batches)


@CORPUS.case
def too_few_replicas(side: Side) -> None:
    topic = side.topic(config={"min.insync.replicas": "2"})
    for acks in (-1, 1):
        side.ask(r.produce(topic, r.batch(), acks=acks))
    side.tell(r.produce(topic, r.batch(), acks=0))
    side.ask(r.fetch(topic))


# --- acks, topics


@CORPUS.versions("Produce", only=(3, 9, 13))
def acks(side: Side, version: int) -> None:
    topic = side.topic()
    for each in (1, -1, 2, -2, 32767):
        side.ask(r.produce(topic, r.batch(), acks=each), version)
    side.tell(r.produce(topic, r.batch(), acks=0), version)
    side.ask(r.fetch(topic), 12)


@CORPUS.case
def no_acks_and_an_error(side: Side) -> None:
    topic = side.topic()
    unknown = MadeTopic("unknown", b"unknown-unknown-")
    broken = bytearray(r.batch())
    broken[-1] ^= 1
    side.tell(r.produce(topic, bytes(broken), acks=0), 9)
    side.tell(r.produce(unknown, r.batch(), acks=0), 9)
    side.tell(r.produce(unknown, r.batch(), acks=0), 13)
    side.tell(r.produce(topic, r.batch(), acks=0, index=9), 9)
    side.tell(r.produce(topic, b"", acks=0), 9)
    side.ask(r.fetch(topic), 12)


@CORPUS.versions("Produce", only=(3, 12, 13))
def topics_that_are_not_there(side: Side, version: int) -> None:
    topic = side.topic(partitions=2)
    for index in (1, 2, -1, SEQUENCE_MAX):
        side.ask(r.produce(topic, r.batch(), index=index), version)
    for name, topic_id in (
        (f"{side.prefix}none", b"unknown-unknown-"),
        ("no name!", NO_ID),
        ("", topic.id),
    ):
        side.ask(r.produce(MadeTopic(name, topic_id), r.batch()), version)


@CORPUS.case
def internal_topics(side: Side) -> None:
    (found,) = side.get(r.metadata(OFFSETS_TOPIC), 13).topics
    topic = MadeTopic(OFFSETS_TOPIC, found.topic_id)
    for version in (9, 13):
        side.ask(r.produce(topic, r.batch()), version)
    side.tell(r.produce(topic, r.batch(), acks=0), 9)


@CORPUS.case
def one_good_partition_beside_bad_ones(side: Side) -> None:
    topic = side.topic(partitions=3)
    rows = [(0, r.batch()), (1, r.batch()[:-1]), (2, r.batch(2)), (3, r.batch())]
    for version in (9, 13):
        side.ask(r.produce_rows(topic, rows), version)
    for index in range(3):
        side.ask(r.list_offsets(topic, -1, index=index))


# --- idempotence


def new_producer(side: Side) -> int:
    answer = side.get(
        m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=r.SESSION_MS)
    )
    producer_id: int = answer.producer_id
    return producer_id


def stamped(side: Side, topic: MadeTopic, *steps: tuple[int, int, int], version: int = 12) -> None:
    """One producer's batches: (epoch, first sequence, count) each, then what is in the log."""
    producer_id = new_producer(side)
    for epoch, sequence, count in steps:
        stamp = ProducerStamp(producer_id, epoch, sequence)
        side.ask(r.produce(topic, r.batch(count, producer=stamp)), version)
    side.ask(r.fetch(topic), 12)


@CORPUS.versions("Produce", only=(3, 8, 13))
def sequences_in_order(side: Side, version: int) -> None:
    stamped(side, side.topic(), (0, 0, 1), (0, 1, 3), (0, 4, 1), version=version)


@CORPUS.case
def duplicates_of_the_last_five_batches(side: Side) -> None:
    rows = [(0, sequence, 1) for sequence in range(7)]
    stamped(side, side.topic(), *rows, *rows[::-1])


@CORPUS.case
def duplicates_of_another_size(side: Side) -> None:
    stamped(side, side.topic(), (0, 0, 3), (0, 0, 2), (0, 1, 2), (0, 0, 4), (0, 3, 1), (0, 2, 2))


@CORPUS.case
def duplicates_with_the_brokers_time(side: Side) -> None:
    topic = side.topic(config={"message.timestamp.type": "LogAppendTime"})
    stamped(side, topic, (0, 0, 1), (0, 0, 1), (0, 1, 1), (0, 0, 1))


@CORPUS.case
def gaps(side: Side) -> None:
    stamped(side, side.topic(), (0, 0, 1), (0, 2, 1), (0, 1, 1), (0, 5, 1), (0, 2, 1))


@CORPUS.case
def first_sequences(side: Side) -> None:
    for name, sequence in (("a", 0), ("b", 1), ("c", 7), ("d", SEQUENCE_MAX)):
        stamped(side, side.topic(name), (0, sequence, 1), (0, sequence + 1 & SEQUENCE_MAX, 1))


@CORPUS.case
def sequences_that_wrap(side: Side) -> None:
    last = SEQUENCE_MAX
    stamped(side, side.topic(), (0, last - 1, 1), (0, last, 1), (0, 0, 1), (0, 1, 1), (0, last, 1))
    stamped(side, side.topic("inside"), (0, last - 1, 4), (0, 2, 1), (0, last - 1, 4))


@CORPUS.case
def epochs_of_producers(side: Side) -> None:
    stamped(side, side.topic(), (0, 0, 1), (1, 1, 1), (1, 0, 1), (0, 1, 1), (0, 0, 1), (1, 1, 1))
    stamped(side, side.topic("later"), (5, 0, 1), (4, 0, 1), (6, 0, 1), (32767, 0, 1), (-1, 0, 1))


@CORPUS.case
def producers_without_sequences(side: Side) -> None:
    topic = side.topic()
    stamped(side, topic, (0, -1, 1), (0, -2, 1), (-1, 0, 1), (-1, -1, 1))
    for producer_id in (-2, -1):
        batch = r.batch(producer=ProducerStamp(producer_id, 0, 0))
        side.ask(r.produce(topic, batch), 9)


@CORPUS.case
def two_producers_and_two_partitions(side: Side) -> None:
    topic = side.topic(partitions=2)
    producers = [new_producer(side) for _ in range(2)]
    for sequence in (0, 1, 1):
        for index in range(2):
            for producer_id in producers:
                stamp = ProducerStamp(producer_id, 0, sequence)
                side.ask(r.produce(topic, r.batch(producer=stamp), index=index))
    for index in range(2):
        side.ask(r.fetch(topic, index=index))


@CORPUS.versions("InitProducerId")
def producer_ids(side: Side, version: int) -> None:
    for producer_id, epoch in ((-1, -1), (-1, -1), (7, -1), (-1, 7), (7, 7)):
        side.ask(
            m.InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=r.SESSION_MS,
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
            version,
        )
