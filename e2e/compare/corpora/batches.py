"""Talks over Produce with one broker, Kafka's or ours.

Each yields the outcome of every request, and at its end the contents of the log. They are equal for
two brokers with the same behaviour.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from logfleet.records.batch import HEADER, BatchHeader, iterate_headers, parse_header, write_crc
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.compare.talks.talker import Talker
from e2e.harness.wire_connection import Disconnected

Outcomes = Iterator[object]
NEWEST = 13
BY_ID_SINCE = 13
HOUR_MS = 3_600_000
_TIME = re.compile(r"-?\b\d{13,19}\b")
_OBJECT = re.compile(r"@[0-9a-f]+")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def records(*values: bytes, key: bytes | None = b"key", at: int | None = None) -> list[Record]:
    """Make a record for each value, with the current time or `at`."""
    when = now_ms() if at is None else at
    return [Record(key, value, when) for value in values]


def batch(*values: bytes, fields: dict[str, Any] | None = None, **built: Any) -> bytes:
    """Make a batch of such records. fields: of its header, set afterwards.

    The checksum is corrected.
    """
    made = build_batch(records(*values or (b"a",)), **built)
    return changed(made, **fields) if fields else bytes(made)


def changed(made: bytes | bytearray, *, checksum: bool = True, **fields: Any) -> bytes:
    """Return the batch with these fields of its header changed."""
    buffer = bytearray(made)
    header = parse_header(buffer)
    values = [fields.get(name, getattr(header, name)) for name in BatchHeader.__struct_fields__]
    HEADER.pack_into(buffer, 0, *values)
    if checksum:
        write_crc(buffer)
    return bytes(buffer)


class Target:
    """A topic of the talk's own, and how to write to it."""

    def __init__(
        self,
        talker: Talker,
        name: str,
        *,
        version: int = NEWEST,
        partitions: int = 1,
        **configs: Any,
    ) -> None:
        self.name = name
        self._talker = talker
        self._version = version
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.id = talker.make_topic(name, partitions, named)

    def send(self, *batches: bytes | None, acks: int = -1, version: int | None = None) -> object:
        """Return the outcome of one request with a batch for each partition."""
        return self.send_rows(list(enumerate(batches)), acks=acks, version=version)

    def send_rows(
        self,
        rows: list[tuple[int, bytes | None]],
        *,
        acks: int = -1,
        version: int | None = None,
        **topic: Any,
    ) -> object:
        """Return the outcome of one request.

        rows: partition and batch. topic: name or id of another topic.
        """
        version = self._version if version is None else version
        named: dict[str, Any] = (
            {"topic_id": self.id} if version >= BY_ID_SINCE else {"name": self.name}
        )
        data = [
            m.ProduceRequest.PartitionProduceData(index=index, records=given)
            for index, given in rows
        ]
        sent = m.ProduceRequest.TopicProduceData(**{**named, **topic}, partition_data=data)
        request = m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[sent])
        try:
            if acks == 0:
                return self._without_answer(request, version)
            answer = self._talker.connection.call(request, version)
        except Disconnected:
            self._talker.reconnect()
            return "closed"
        return [_seen(row) for each in answer.responses for row in each.partition_responses]

    def _without_answer(self, request: m.ProduceRequest, version: int) -> object:
        """Return whether the connection is still open, by the response to a further request."""
        self._talker.connection.send_unanswered(request, version)
        self._talker.connection.call(m.MetadataRequest(topics=[]), 12)
        return "not answered"

    def log(self, partition: int = 0) -> list[object]:
        """Return the batches of a partition: headers without times and checksums, and records."""
        row = m.FetchRequest.FetchPartition(partition=partition, partition_max_bytes=1 << 26)
        topic = m.FetchRequest.FetchTopic(topic_id=self.id, partitions=[row])
        request = m.FetchRequest(max_bytes=1 << 26, session_epoch=-1, topics=[topic])
        answer = self._talker.call(request, 18)
        data = bytes(answer.responses[0].partitions[0].records or b"")
        return [_stored(data, position, header) for position, header in iterate_headers(data)]


class Seen(NamedTuple):
    """A row of a response, without the parts that differ between runs."""

    error: str
    base_offset: int
    has_append_time: bool
    log_start_offset: int
    records: list[tuple[int, str | None]]
    message: str | None


def _seen(row: Any) -> Seen:
    return Seen(
        ErrorCode(row.error_code).name,
        row.base_offset,
        row.log_append_time_ms > 0,
        row.log_start_offset,
        [(each.batch_index, _worded(each.batch_index_error_message)) for each in row.record_errors],
        _worded(row.error_message),
    )


def _worded(message: str | None) -> str | None:
    """Return a message without the parts that differ between runs."""
    return message and _OBJECT.sub("@", _TIME.sub("TIME", message))


def _stored(data: bytes, position: int, header: BatchHeader) -> object:
    kept = {
        name: getattr(header, name)
        for name in BatchHeader.__struct_fields__
        if name not in {"crc", "batch_length", "base_timestamp", "max_timestamp"}
    }
    found = list(read_records(data, position))
    first = found[0].timestamp
    return (
        kept,
        header.max_timestamp >= header.base_timestamp,
        [
            (each.key, each.value, each.headers, each.offset, each.timestamp - first)
            for each in found
        ],
    )


def is_same(theirs: Any, own: Any) -> bool:
    """Return whether our outcome equals Kafka's.

    Where Kafka gives an error without a message, ours may have one.
    """
    if isinstance(theirs, Seen) and isinstance(own, Seen):
        told = own if theirs.message else own._replace(message=None)
        return theirs == told
    if isinstance(theirs, list | tuple) and type(theirs) is type(own):
        return len(theirs) == len(own) and all(map(is_same, theirs, own))
    return bool(theirs == own)


def what_a_batch_must_be(talker: Talker, version: int) -> Outcomes:
    target = Target(talker, f"batch-{version}", version=version)
    good = batch(b"a", b"b", b"c")
    yield "good", target.send(good)
    yield "nothing", target.send(b"")  # null records: Kafka never answers, we answer INVALID_RECORD
    yield "two", target.send(good + good)
    for length in (1, 11, 12, 16, 17, 60, 61, len(good) - 1):
        yield "cut", length, target.send(good[:length])
    for magic in (-1, 0, 1, 3):
        yield "magic", magic, target.send(changed(good, magic=magic))
    for length in (-1, 0, 13, 48, 49, len(good) - 11, 1 << 30):
        yield "length", length, target.send(changed(good, batch_length=length, checksum=False))
    yield "more behind it", target.send(good + b"\0"), target.send(good + bytes(61))
    yield "checksum", target.send(changed(good, crc=1, checksum=False))
    for count, delta in ((0, 2), (-1, 2), (2, 2), (3, 1), (3, -1), (3, 3), (0, -1), (1, 0)):
        fields: dict[str, Any] = {"record_count": count, "last_offset_delta": delta}
        if (count, delta) != (1, 0):  # records are not counted here
            yield "count", count, delta, target.send(changed(good, **fields))
    yield "log", target.log()


def what_a_header_may_say(talker: Talker, version: int) -> Outcomes:
    target = Target(talker, f"header-{version}", version=version)
    # codecs 5 to 7 are not there: Kafka answers UNKNOWN_SERVER_ERROR, we INVALID_RECORD
    for attributes in (0x20, 0x40, 0x80, 0x4000):
        yield "attributes", attributes, target.send(batch(fields={"attributes": attributes}))
    yield "base offset", target.send(batch(b"a", b"b", fields={"base_offset": 7}))
    yield "leader epoch", target.send(batch(fields={"leader_epoch": 9}))
    for sequence in (-1, -2):
        fields = {"producer_id": 5000, "producer_epoch": 0, "base_sequence": sequence}
        yield "sequence", sequence, target.send(batch(fields=fields))
    yield (
        "epoch",
        target.send(batch(fields={"producer_id": 5000, "producer_epoch": -1, "base_sequence": 0})),
    )
    yield (
        "no producer",
        target.send(batch(fields={"producer_id": -2, "producer_epoch": 3, "base_sequence": 4})),
    )
    yield "control, wrong count", target.send(batch(fields={"attributes": 0x20, "record_count": 2}))
    yield (
        "control, no sequence",
        target.send(batch(fields={"attributes": 0x20, "producer_id": 1, "base_sequence": -1})),
    )
    yield "log", target.log()


def where_it_goes(talker: Talker, version: int) -> Outcomes:
    """Missing topics and partitions, internal topics, and values of acks."""
    target = Target(talker, f"where-{version}", version=version)
    good = batch()
    for acks in (2, -2, 127):
        yield "acks", acks, target.send(good, acks=acks)
    yield "acks, nothing", target.send(b"", acks=2)
    yield "acks, bad", target.send(changed(good, magic=1), acks=2)
    yield "one", target.send(good, acks=1)
    # a partition that stands twice: Kafka appends the last of its batches, we all of them
    yield "partitions", target.send_rows([(0, good), (1, good), (-1, good)])
    named = {"topic_id": bytes(15) + b"\1"} if version >= BY_ID_SINCE else {"name": "not.there!"}
    yield "topic", target.send_rows([(0, good)], **named)
    yield "topic, bad", target.send_rows([(0, changed(good, magic=1))], **named)
    yield "topic, acks", target.send_rows([(0, good)], acks=2, **named)
    if version < BY_ID_SINCE:
        yield "no name", target.send_rows([(0, good)], name="")
        yield "unknown", target.send_rows([(0, good)], name="not-there")
    yield "no rows", target.send_rows([])
    yield "acks=0", target.send(good, acks=0)
    yield "log", target.log()


def without_acknowledgement(talker: Talker, version: int) -> Outcomes:
    target = Target(talker, f"unacknowledged-{version}", version=version, max_message_bytes="1000")
    good = batch()
    yield target.send(good, acks=0)
    yield "large", target.send(batch(bytes(2000)), acks=0)
    yield "bad", target.send(changed(good, crc=1, checksum=False), acks=0)
    yield "invalid", target.send(changed(good, magic=1), acks=0)
    yield "nothing", target.send(b"", acks=0)
    yield "partition", target.send_rows([(3, good)], acks=0)
    yield "good and bad", target.send_rows([(0, good), (3, good)], acks=0)
    yield "log", target.log()


def how_large_it_is(talker: Talker, version: int) -> Outcomes:
    empty = len(batch(b""))
    target = Target(
        talker, f"large-{version}", version=version, max_message_bytes=str(empty + 1000)
    )
    for size in (990, 999, 1000, 1001, 2000):
        yield size, target.send(batch(bytes(size)))
    yield "compressed", target.send(batch(bytes(100_000), codec=Codec.GZIP))
    yield "corrupt too", target.send(changed(batch(bytes(2000)), crc=1, checksum=False))
    yield "log", len(target.log())
    target = Target(
        talker,
        f"segment-{version}",
        version=version,
        segment_bytes=str(1 << 20),
        max_message_bytes=str(1 << 22),
    )
    for size in ((1 << 20) - 100, 1 << 20, 1 << 21, 1 << 22):
        yield "segment", size, target.send(batch(bytes(size)))
    packed = batch(bytes(1 << 21), codec=Codec.GZIP)
    yield "segment, compressed", target.send(packed), len(target.log())
    target = Target(
        talker,
        f"unpacked-{version}",
        version=version,
        compression_type="uncompressed",
        max_message_bytes="100000",
    )
    yield "unpacked", target.send(batch(bytes(200_000), codec=Codec.ZSTD), batch())
    yield "unpacked", target.send(batch(bytes(90_000), codec=Codec.ZSTD)), len(target.log())


def how_large_its_records_are(talker: Talker, version: int) -> Outcomes:
    """max.decompressed.message.bytes bounds each record of what comes compressed."""
    limited: dict[str, Any] = {"version": version, "max_decompressed_message_bytes": "1000"}
    overhead = 10  # overhead of a record of this size with the key of these talks
    target = Target(talker, f"record-{version}", **limited)
    for codec in Codec:
        for size in (1000 - overhead, 1001 - overhead, 5000):
            yield codec.name, size, target.send(batch(bytes(size), codec=codec))
        for sizes in ((900, 900, 900), (1, 5000, 1)):
            yield codec.name, sizes, target.send(batch(*map(bytes, sizes), codec=codec))
    for name, key, value in (
        ("anew", "compression_type", "zstd"),
        ("compacted", "cleanup_policy", "compact"),
        ("unpacked", "compression_type", "uncompressed"),
    ):
        target = Target(talker, f"record-{name}-{version}", **{**limited, key: value})
        for codec in (Codec.NONE, Codec.GZIP):
            yield name, codec.name, target.send(batch(bytes(5000), codec=codec))
            yield name, codec.name, target.send(batch(bytes(500), codec=codec))
        yield name, target.log()


def keys_on_a_compacted_topic(talker: Talker, version: int) -> Outcomes:
    target = Target(talker, f"keys-{version}", version=version, cleanup_policy="compact,delete")
    mixed = [*records(b"0"), *records(b"1", key=None), *records(b"2"), *records(b"3", key=None)]
    for codec in Codec:
        if codec is not Codec.ZSTD or version >= 7:
            yield codec.name, target.send(bytes(build_batch(mixed, codec=codec)))
            yield codec.name, target.send(batch(b"0", b"1", codec=codec))
    # of more than 100 invalid records Kafka names all, we name the first
    yield "many", target.send(bytes(build_batch(records(*[b"v"] * 100, key=None))))
    late = records(b"0", key=None, at=now_ms() + 9 * HOUR_MS)
    yield "and late", target.send(bytes(build_batch([*late, *records(b"1", at=late[0].timestamp)])))
    yield "empty key", target.send(bytes(build_batch(records(b"0", key=b""))))
    yield "log", target.log()


def when_it_was_made(talker: Talker, version: int) -> Outcomes:
    target = Target(talker, f"when-{version}", version=version)
    now = now_ms()
    for codec in (Codec.NONE, Codec.LZ4):
        for early in (0, 1, -1, -2, -(1 << 62)):
            made = bytes(build_batch(records(b"a", b"b", at=early), codec=codec))
            yield "early", early, codec.name, target.send(made)
        mixed = records(b"0") + records(b"1", at=now + 2 * HOUR_MS) + records(b"2")
        yield "late", codec.name, target.send(bytes(build_batch(mixed, codec=codec)))
    target = Target(
        talker,
        f"window-{version}",
        version=version,
        message_timestamp_before_max_ms=str(2 * HOUR_MS),
        message_timestamp_after_max_ms=str(3 * HOUR_MS),
    )
    for codec in (Codec.NONE, Codec.GZIP):
        times = (-3 * HOUR_MS, -HOUR_MS, 0, 2 * HOUR_MS, 4 * HOUR_MS)
        mixed = [Record(b"k", b"v", now + each) for each in times]
        yield "window", codec.name, target.send(bytes(build_batch(mixed, codec=codec)))
        for each in times:
            yield each, target.send(bytes(build_batch(records(b"v", at=now + each), codec=codec)))
        yield "none", target.send(bytes(build_batch(records(b"v", at=-1), codec=codec)))
    yield "log", target.log()


def the_brokers_own_time(talker: Talker, version: int) -> Outcomes:
    plain = Target(talker, f"create-time-{version}", version=version)
    target = Target(
        talker, f"append-time-{version}", version=version, message_timestamp_type="LogAppendTime"
    )
    claimed: dict[str, Any] = {"attributes": 8}
    for name, each in (("CreateTime", plain), ("LogAppendTime", target)):
        yield name, "claimed", each.send(batch(b"a", b"b", fields=claimed))
        packed = bytes(build_batch(records(b"a", b"b"), codec=Codec.LZ4))
        yield name, "claimed, packed", each.send(changed(packed, attributes=8 | Codec.LZ4))
        yield (
            name,
            "claimed, no time",
            each.send(changed(build_batch(records(b"a", b"b", at=-1)), **claimed)),
        )
        yield name, "packed", each.send(packed)
        for at in (-1, 0, now_ms() + 9 * HOUR_MS):
            yield name, at > 0, each.send(bytes(build_batch(records(b"a", b"b", at=at))))
        yield name, "log", each.log()


def what_is_packed_anew(talker: Talker, version: int) -> Outcomes:
    """compression.type and levels: the log must hold the same records in the topic's codec."""
    kinds = {
        "gzip": {"compression_gzip_level": "1"},
        "snappy": {},
        "lz4": {"compression_lz4_level": "17"},
        "zstd": {"compression_zstd_level": "-5"},
        "uncompressed": {},
        "producer": {},
    }
    now = now_ms()
    made = [Record(b"k", b"v%d" % n, now + n, (("h", b"x"), ("n", None))) for n in range(4)]
    made += [Record(None, None, now - 5)]
    for kind, levels in kinds.items():
        configs: dict[str, Any] = {"compression_type": kind, **levels}
        target = Target(talker, f"packed-{kind}-{version}", version=version, **configs)
        for codec in Codec:
            if codec is not Codec.ZSTD or version >= 7:
                stamp = ProducerStamp(7000 + codec, 0, 0)
                sent = bytes(build_batch(made, codec=codec, producer=stamp))
                yield kind, codec.name, target.send(sent), target.send(sent)
        yield kind, "log", target.log()
    for kind in ("gzip", "uncompressed"):
        target = Target(
            talker,
            f"packed-time-{kind}-{version}",
            version=version,
            compression_type=kind,
            message_timestamp_type="LogAppendTime",
        )
        for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
            yield kind, codec.name, target.send(bytes(build_batch(made, codec=codec)))
        yield kind, "log", target.log()


def zstd_in_old_versions(talker: Talker, version: int) -> Outcomes:
    for kind in ("producer", "zstd", "gzip"):
        target = Target(talker, f"zstd-{kind}-{version}", version=version, compression_type=kind)
        yield kind, target.send(batch(codec=Codec.ZSTD)), target.send(batch(codec=Codec.GZIP))
        yield kind, target.send(batch(codec=Codec.ZSTD), acks=5)
        yield kind, target.send(changed(batch(codec=Codec.ZSTD), crc=1, checksum=False))
        yield kind, "log", target.log()


def sequences(talker: Talker, version: int) -> Outcomes:
    """Sequences of an idempotent producer, in the order in which the broker checks them."""
    target = Target(talker, f"sequences-{version}", version=version, partitions=2)

    def send(pid: int, epoch: int, sequence: int, *values: bytes, **fields: Any) -> object:
        stamp = ProducerStamp(pid, epoch, sequence)
        made = build_batch(records(*values or (b"v",)), producer=stamp)
        return pid, epoch, sequence, fields, target.send(changed(made, **fields))

    yield send(1000, 0, 0), send(1000, 0, 0), send(1000, 0, 1, b"a", b"b"), send(1000, 0, 3)
    yield "again", send(1000, 0, 1, b"a", b"b"), send(1000, 0, 1), send(1000, 0, 0)
    yield "order", send(1000, 0, 5), send(1000, 0, 2), send(1000, 0, 4), send(1000, 0, 4)
    yield "six more", [send(1000, 0, n) for n in range(5, 11)]
    yield "forgotten", send(1000, 0, 4), send(1000, 0, 5), send(1000, 0, 6), send(1000, 0, 10)
    yield "epoch", send(1000, 1, 11), send(1000, 1, 1), send(1000, 1, 0), send(1000, 0, 11)
    yield "epoch again", send(1000, 0, 10), send(1000, 1, 0), send(1000, 1, 1), send(1000, 3, 0)
    yield "new at 5", send(2000, 0, 5), send(2000, 0, 6), send(2000, 0, 0)
    yield "new, epoch 4", send(3000, 4, 0), send(3000, 4, 1)
    last = 2**31 - 1
    yield "around", send(4000, 0, last - 1, b"a", b"b"), send(4000, 0, 0), send(4000, 0, last)
    yield (
        "through",
        send(5000, 0, last, b"a", b"b"),
        send(5000, 0, 1),
        send(5000, 0, last, b"a", b"b"),
    )
    yield "refused", send(6000, 0, 0, attributes=0x20), send(6000, 0, 3, record_count=7)
    yield "still new", send(6000, 0, 2)
    yield "log", target.log(), target.log(1)


TALKS: dict[str, tuple[Callable[[Talker, int], Outcomes], tuple[int, ...]]] = {
    "what a batch must be": (what_a_batch_must_be, (3, 8, 13)),
    "what a header may say": (what_a_header_may_say, (8, 13)),
    "where it goes": (where_it_goes, (3, 8, 12, 13)),
    "without acknowledgement": (without_acknowledgement, (8, 13)),
    "how large it is": (how_large_it_is, (13,)),
    "how large its records are": (how_large_its_records_are, (13,)),
    "keys on a compacted topic": (keys_on_a_compacted_topic, (6, 8, 13)),
    "when it was made": (when_it_was_made, (13,)),
    "the broker's own time": (the_brokers_own_time, (13,)),
    "what is packed anew": (what_is_packed_anew, (6, 13)),
    "zstd in old versions": (zstd_in_old_versions, (3, 6, 7)),
    "sequences": (sequences, (8, 13)),
}
"""Name -> the talk, and the versions of Produce in which it is held."""
