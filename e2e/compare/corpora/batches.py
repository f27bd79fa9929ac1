"""Produce with what clients seldom send, and what the log holds in the end. Texts are compared word by word."""

from collections.abc import Iterable
from typing import Any, Final

from logfleet.records.batch import HEADER, BatchHeader, parse_header, write_crc
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("batches", exact_texts=True)
HOUR_MS: Final = 3_600_000
NOW: Final = r.T0 + HOUR_MS
BY_ID_SINCE: Final = 13
ZSTD_SINCE: Final = 7
UNKNOWN_ID: Final = bytes(15) + b"\1"


def records(*values: bytes, key: bytes | None = b"key", at: int = NOW) -> list[Record]:
    return [Record(key, value, at) for value in values]


def batch(*values: bytes, fields: dict[str, Any] | None = None, **built: Any) -> bytes:
    """A batch of such records. fields: of its header, set afterwards; the checksum is right."""
    made = build_batch(records(*values or (b"a",)), **built)
    return changed(made, **fields) if fields else bytes(made)


def batch_at(*times: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch of a record of each time."""
    return bytes(build_batch([Record(b"k", b"v", time) for time in times], codec=codec))


def changed(made: bytes | bytearray, *, checksum: bool = True, **fields: Any) -> bytes:
    """The batch with these fields of its header changed."""
    buffer = bytearray(made)
    header = parse_header(buffer)
    values = [fields.get(name, getattr(header, name)) for name in BatchHeader.__struct_fields__]
    HEADER.pack_into(buffer, 0, *values)
    if checksum:
        write_crc(buffer)
    return bytes(buffer)


def send(
    side: Side, topic: MadeTopic, version: int, batches: Iterable[bytes], acks: int = -1
) -> None:
    """Each in a request of its own, to partition 0."""
    for each in batches:
        send_rows(side, topic, version, [(0, each)], acks)


def send_rows(
    side: Side, topic: MadeTopic, version: int, rows: list[tuple[int, bytes]], acks: int = -1
) -> None:
    """All in one request; with acks=0 only whether the connection goes on is compared."""
    request = r.produce_rows(topic, rows, acks=acks)
    if acks == 0:
        side.tell(request, version)
    else:
        side.ask(request, version)


def read_log(side: Side, topic: MadeTopic, index: int = 0) -> None:
    row = r.fetch_row(index=index, partition_max_bytes=1 << 26)
    side.ask(r.fetch_rows(topic, [row], max_bytes=1 << 26, session_epoch=-1))


@CORPUS.versions("Produce", only=(3, 8, 13))
def what_a_batch_must_be(side: Side, version: int) -> None:
    topic = side.topic()
    good = batch(b"a", b"b", b"c")
    lengths = (-1, 0, 13, 48, 49, len(good) - 11, 1 << 30)
    counts = ((0, 2), (-1, 2), (2, 2), (3, 1), (3, -1), (3, 3), (0, -1))
    sent = [
        good,
        b"",  # null records: Kafka never answers, we answer INVALID_RECORD
        good + good,
        *(good[:length] for length in (1, 11, 12, 16, 17, 60, 61, len(good) - 1)),
        *(changed(good, magic=magic) for magic in (-1, 0, 1, 3)),
        *(changed(good, batch_length=length, checksum=False) for length in lengths),
        good + b"\0",
        good + bytes(61),
        changed(good, crc=1, checksum=False),
        *(changed(good, record_count=count, last_offset_delta=delta) for count, delta in counts),
    ]
    send(side, topic, version, sent)
    read_log(side, topic)


@CORPUS.versions("Produce", only=(8, 13))
def what_a_header_may_say(side: Side, version: int) -> None:
    """Codecs 5 to 7 are not there: Kafka answers UNKNOWN_SERVER_ERROR, we INVALID_RECORD."""
    topic = side.topic()
    producer = {"producer_id": 5000, "producer_epoch": 0}
    fields: list[dict[str, Any]] = [
        *({"attributes": attributes} for attributes in (0x20, 0x40, 0x80, 0x4000)),
        {"leader_epoch": 9},
        *(producer | {"base_sequence": sequence} for sequence in (-1, -2)),
        producer | {"producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -2, "producer_epoch": 3, "base_sequence": 4},
        {"attributes": 0x20, "record_count": 2},
        {"attributes": 0x20, "producer_id": 1, "base_sequence": -1},
    ]
    send(side, topic, version, [batch(b"a", b"b", fields={"base_offset": 7})])
    send(side, topic, version, (batch(fields=each) for each in fields))
    read_log(side, topic)


@CORPUS.versions("Produce", only=(3, 8, 12, 13))
def where_it_goes(side: Side, version: int) -> None:
    """Missing topics and partitions, and values of acks. Of a partition that stands twice Kafka appends the last batch, we all."""
    topic, unknown = side.topic(), MadeTopic("not.there!", UNKNOWN_ID)
    good, bad = batch(), changed(batch(), magic=1)
    for acks in (2, -2, 127):
        send(side, topic, version, [good], acks)
    send(side, topic, version, [b"", bad], acks=2)
    send(side, topic, version, [good], acks=1)
    send_rows(side, topic, version, [(0, good), (1, good), (-1, good)])
    send(side, unknown, version, [good, bad])
    send(side, unknown, version, [good], acks=2)
    if version < BY_ID_SINCE:
        for name in ("", "not-there"):
            send(side, MadeTopic(name, topic.id), version, [good])
    send_rows(side, topic, version, [])
    send(side, topic, version, [good], acks=0)
    read_log(side, topic)


@CORPUS.versions("Produce", only=(8, 13))
def without_acknowledgement(side: Side, version: int) -> None:
    topic = side.topic(config={"max.message.bytes": "1000"})
    good = batch()
    bad = changed(good, crc=1, checksum=False)
    sent = [good, batch(bytes(2000)), bad, changed(good, magic=1), b""]
    send(side, topic, version, sent, acks=0)
    send_rows(side, topic, version, [(3, good)], acks=0)
    send_rows(side, topic, version, [(0, good), (3, good)], acks=0)
    read_log(side, topic)


@CORPUS.versions("Produce", only=(13,))
def how_large_it_is(side: Side, version: int) -> None:
    limit = len(batch(b"")) + 1000
    topic = side.topic("large", config={"max.message.bytes": str(limit)})
    send(side, topic, version, (batch(bytes(size)) for size in (990, 999, 1000, 1001, 2000)))
    packed = batch(bytes(100_000), codec=Codec.GZIP)
    send(side, topic, version, [packed, changed(batch(bytes(2000)), crc=1, checksum=False)])
    side.ask(r.list_offsets(topic, -1))
    segment = side.topic(
        "segment", config={"segment.bytes": str(1 << 20), "max.message.bytes": str(1 << 22)}
    )
    sizes = ((1 << 20) - 100, 1 << 20, 1 << 21, 1 << 22)
    send(side, segment, version, (batch(bytes(size)) for size in sizes))
    send(side, segment, version, [batch(bytes(1 << 21), codec=Codec.GZIP)])
    side.ask(r.list_offsets(segment, -1))
    config = {"compression.type": "uncompressed", "max.message.bytes": "100000"}
    unpacked = side.topic("unpacked", config=config)
    rows = [(0, batch(bytes(200_000), codec=Codec.ZSTD)), (1, batch())]
    send_rows(side, unpacked, version, rows)
    send(side, unpacked, version, [batch(bytes(90_000), codec=Codec.ZSTD)])
    side.ask(r.list_offsets(unpacked, -1))


@CORPUS.versions("Produce", only=(13,))
def how_large_its_records_are(side: Side, version: int) -> None:
    """max.decompressed.message.bytes bounds each record of what comes compressed."""
    limited = {"max.decompressed.message.bytes": "1000"}
    topic = side.topic("record", config=limited)
    overhead = 10  # of a record of this size with the key of these batches
    for codec in Codec:
        for sizes in (
            (1000 - overhead,),
            (1001 - overhead,),
            (5000,),
            (900, 900, 900),
            (1, 5000, 1),
        ):
            send(side, topic, version, [batch(*map(bytes, sizes), codec=codec)])
    for key, value in (
        ("compression.type", "zstd"),
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
    ):
        other = side.topic(value, config={**limited, key: value})
        for codec in (Codec.NONE, Codec.GZIP):
            send(side, other, version, (batch(bytes(size), codec=codec) for size in (5000, 500)))
        read_log(side, other)


@CORPUS.versions("Produce", only=(6, 8, 13))
def keys_on_a_compacted_topic(side: Side, version: int) -> None:
    """Of more than 100 invalid records Kafka names all, we name the first."""
    topic = side.topic(config={"cleanup.policy": "compact,delete"})
    mixed = [*records(b"0"), *records(b"1", key=None), *records(b"2"), *records(b"3", key=None)]
    for codec in Codec:
        if codec is not Codec.ZSTD or version >= ZSTD_SINCE:
            packed = bytes(build_batch(mixed, codec=codec))
            send(side, topic, version, [packed, batch(b"0", b"1", codec=codec)])
    late = NOW + 9 * HOUR_MS
    odd = (
        records(*[b"v"] * 100, key=None),
        [*records(b"0", key=None, at=late), *records(b"1", at=late)],
        records(b"0", key=b""),
    )
    send(side, topic, version, (bytes(build_batch(each)) for each in odd))
    read_log(side, topic)


@CORPUS.versions("Produce", only=(13,))
def when_it_was_made(side: Side, version: int) -> None:
    topic = side.topic("when")
    for codec in (Codec.NONE, Codec.LZ4):
        for early in (0, 1, -1, -2, -(1 << 62)):
            send(side, topic, version, [batch_at(early, early, codec=codec)])
        send(side, topic, version, [batch_at(NOW, NOW + 2 * HOUR_MS, NOW, codec=codec)])
    window = {
        "message.timestamp.before.max.ms": str(2 * HOUR_MS),
        "message.timestamp.after.max.ms": str(3 * HOUR_MS),
    }
    topic = side.topic("window", config=window)
    times = [NOW + hours * HOUR_MS for hours in (-3, -1, 0, 2, 4)]
    for codec in (Codec.NONE, Codec.GZIP):
        send(side, topic, version, [batch_at(*times, codec=codec)])
        send(side, topic, version, (batch_at(each, codec=codec) for each in (*times, -1)))
    read_log(side, topic)


@CORPUS.versions("Produce", only=(13,))
def the_brokers_own_time(side: Side, version: int) -> None:
    for name in ("CreateTime", "LogAppendTime"):
        topic = side.topic(name, config={"message.timestamp.type": name})
        packed = batch(b"a", b"b", codec=Codec.LZ4)
        sent = [
            batch(b"a", b"b", fields={"attributes": 8}),
            changed(packed, attributes=8 | Codec.LZ4),
            changed(batch_at(-1, -1), attributes=8),
            packed,
            *(batch_at(at, at) for at in (-1, 0, NOW + 9 * HOUR_MS)),
        ]
        send(side, topic, version, sent)
        read_log(side, topic)


@CORPUS.versions("Produce", only=(6, 13))
def what_is_packed_again(side: Side, version: int) -> None:
    """compression.type and levels: the log holds the same records in the topic's codec."""
    kinds = {
        "gzip": {"compression.gzip.level": "1"},
        "snappy": {},
        "lz4": {"compression.lz4.level": "17"},
        "zstd": {"compression.zstd.level": "-5"},
        "uncompressed": {},
        "producer": {},
    }
    made = [Record(b"k", b"v%d" % n, NOW + n, (("h", b"x"), ("n", None))) for n in range(4)]
    made += [Record(None, None, NOW - 5)]
    for kind, levels in kinds.items():
        topic = side.topic(kind, config={"compression.type": kind, **levels})
        for codec in Codec:
            if codec is not Codec.ZSTD or version >= ZSTD_SINCE:
                stamp = ProducerStamp(7000 + codec, 0, 0)
                sent = bytes(build_batch(made, codec=codec, producer=stamp))
                send(side, topic, version, [sent, sent])
        read_log(side, topic)
    for kind in ("gzip", "uncompressed"):
        config = {"compression.type": kind, "message.timestamp.type": "LogAppendTime"}
        topic = side.topic(f"{kind}-time", config=config)
        codecs = (Codec.NONE, Codec.GZIP, Codec.LZ4)
        send(side, topic, version, (bytes(build_batch(made, codec=codec)) for codec in codecs))
        read_log(side, topic)


@CORPUS.versions("Produce", only=(3, 6, 7))
def zstd_in_old_versions(side: Side, version: int) -> None:
    for kind in ("producer", "zstd", "gzip"):
        topic = side.topic(kind, config={"compression.type": kind})
        zstd = batch(codec=Codec.ZSTD)
        send(side, topic, version, [zstd, batch(codec=Codec.GZIP)])
        send(side, topic, version, [zstd], acks=5)
        send(side, topic, version, [changed(zstd, crc=1, checksum=False)])
        read_log(side, topic)


LAST: Final = 2**31 - 1
SEQUENCES: Final[list[tuple[int, int, int, int]]] = [
    # in order, and again
    *((1000, 0, sequence, count) for sequence, count in ((0, 1), (0, 1), (1, 2), (3, 1))),
    *((1000, 0, sequence, count) for sequence, count in ((1, 2), (1, 1), (0, 1))),
    # out of order, then six more, so that older ones are forgotten
    *((1000, 0, sequence, 1) for sequence in (5, 2, 4, 4, 5, 6, 7, 8, 9, 10, 4, 5, 6, 10)),
    # epochs
    *((1000, 1, sequence, 1) for sequence in (11, 1, 0)),
    *((1000, 0, 11, 1), (1000, 0, 10, 1), (1000, 1, 0, 1), (1000, 1, 1, 1), (1000, 3, 0, 1)),
    # new producers that do not begin at the beginning
    *((2000, 0, sequence, 1) for sequence in (5, 6, 0)),
    *((3000, 4, 0, 1), (3000, 4, 1, 1)),
    # around the largest, and through it
    *((4000, 0, LAST - 1, 2), (4000, 0, 0, 1), (4000, 0, LAST, 1)),
    *((5000, 0, LAST, 2), (5000, 0, 1, 1), (5000, 0, LAST, 2)),
]
"""Producer id, its epoch, first sequence, records."""


@CORPUS.versions("Produce", only=(8, 13))
def sequences(side: Side, version: int) -> None:
    """Of idempotent producers, in the order in which the broker checks them."""
    topic = side.topic(partitions=2)
    for producer_id, epoch, sequence, count in SEQUENCES:
        stamp = ProducerStamp(producer_id, epoch, sequence)
        send(side, topic, version, [batch(*[b"v"] * count, producer=stamp)])
    for sequence, fields in ((0, {"attributes": 0x20}), (3, {"record_count": 7}), (2, {})):
        refused = batch(producer=ProducerStamp(6000, 0, sequence), fields=fields)
        send(side, topic, version, [refused])
    for index in range(2):
        read_log(side, topic, index)
