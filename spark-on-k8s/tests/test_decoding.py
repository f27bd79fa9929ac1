"""Columns at once against the decoder of single records, `logfleet.records`, as the oracle."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from logfleet.records.aborted import AbortedTransaction
from logfleet.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    iterate_headers,
    replace_payload,
    set_log_append_time,
    write_crc,
)
from logfleet.records.compression import Codec, compress
from logfleet.records.control import marker_batch
from logfleet.records.errors import CorruptRecords, RecordsError
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet_spark import decoding
from logfleet_spark.decoding import HEADER_TYPE, TIMESTAMP_MS_MAX, Part, decode
from logfleet_spark.options import COLUMNS, DEFAULT_COLUMNS

END = 2**62
Row = tuple[
    bytes | None, bytes | None, str, int, int, int, int, list[tuple[str, bytes | None]] | None
]


def one_by_one(part: Part) -> Iterator[Row]:
    """What a part holds by the decoder of single records."""
    for position, header in iterate_headers(part.batches):
        if header.is_control:
            continue
        for record in read_records(part.batches, position):
            if part.start <= record.offset < part.end:
                yield (
                    record.key,
                    record.value,
                    part.topic,
                    part.partition,
                    record.offset,
                    record.timestamp,
                    int(header.timestamp_type),
                    list(record.headers) or None,
                )


def at_once(parts: list[Part]) -> list[Row]:
    found: list[Row] = []
    for batch in decode(parts, columns=tuple(COLUMNS)):
        batch.validate(full=True)
        assert batch.schema.field("headers").type == HEADER_TYPE
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        headers = batch.column("headers").to_pylist()
        plain = [batch.column(name).to_pylist() for name in batch.schema.names[:5]]
        assert all(time % 1000 == 0 for time in times)
        found += zip(
            *plain,
            [time // 1000 for time in times],
            batch.column("timestampType").to_pylist(),
            [some and [(h["key"], h["value"]) for h in some] for some in headers],
            strict=True,
        )
    return found


TEXTS = st.binary(max_size=3) | st.sampled_from([b"", b"x" * 63, b"y" * 64, b"z" * 9_000])
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | TEXTS), max_size=3).map(tuple)
TIMES = st.integers(-1, 2**41) | st.sampled_from([0, 10**12, 10**12 + 64, TIMESTAMP_MS_MAX])
RECORDS = st.builds(Record, st.none() | TEXTS, st.none() | TEXTS, TIMES, HEADERS)
BATCHES = st.tuples(
    st.lists(RECORDS, min_size=1, max_size=4),
    st.sampled_from(Codec),
    st.sampled_from(["records", "appended", "control", "emptied"]),
    st.integers(0, 3),
)


def made(batches: list[tuple[list[Record], Codec, str, int]], offset: int = 0) -> bytes:
    """One batch after another, with gaps. An emptied one has lost its records to compaction, but not its header."""
    whole = bytearray()
    for records, codec, kind, gap in batches:
        offset += gap
        batch = build_batch(records, codec=codec, base_offset=offset, control=kind == "control")
        if kind == "appended":
            set_log_append_time(batch, 1_700_000_000_000)
        elif kind == "emptied":
            batch = counted(replace_payload(batch, Codec.NONE, b""), 0)
        whole += batch
        offset += len(records)
    return bytes(whole)


def counted(batch: bytearray, count: int) -> bytearray:
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    write_crc(batch)
    return batch


@given(
    st.lists(st.lists(BATCHES, max_size=4), min_size=1, max_size=3), st.integers(0, 8), st.data()
)
def test_all_rows_are_those_that_are_read_one_by_one(partitions, start, data):
    parts = []
    for index, batches in enumerate(partitions):
        end = data.draw(st.integers(start, 20) | st.just(END))
        topic = f"t{index // 2}"
        parts.append(Part(topic, index, memoryview(made(batches)), start, end))
    assert at_once(parts) == [row for part in parts for row in one_by_one(part)]


def test_a_batch_may_hold_the_first_and_the_last_time_that_spark_can_hold():
    times = [-TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX, -1]
    batch = build_batch([Record(None, b"v", time) for time in times])
    part = Part("t", 0, batch, 0, END)
    assert [row[5] for row in at_once([part])] == times


def test_groups_of_batches_are_decoded_apart_where_they_are_large(monkeypatch):
    monkeypatch.setattr(decoding, "GROUP_BYTES", 100)
    batch = [Record(b"k", b"v" * 40, 5)] * 2
    part = Part("t", 0, made([(batch, Codec.NONE, "records", 0)] * 5), 1, 9)
    decoded = list(decode([part], columns=DEFAULT_COLUMNS))
    assert [b.num_rows for b in decoded] == [3, 4, 1]
    assert [o for b in decoded for o in b.column("offset").to_pylist()] == list(range(1, 9))
    assert "headers" not in decoded[0].schema.names


def test_batches_of_aborted_transactions_are_left_out_up_to_their_marker():
    aborted, other = ProducerStamp(1, 0, 0, transactional=True), ProducerStamp(2, 0, 0)
    log = bytearray()
    for stamp, value in [(aborted, b"a"), (other, b"b"), (None, b""), (aborted, b"c")]:
        base = len(list(iterate_headers(log)))
        if stamp is None:
            batch = marker_batch(1, 0, commit=False, coordinator_epoch=0, now_ms=5)
            batch[:8] = base.to_bytes(8)
        else:
            batch = build_batch([Record(None, value, 5)], base_offset=base, producer=stamp)
        log += batch
    gone = (AbortedTransaction(1, 0),)
    assert [row[1] for row in at_once([Part("t", 0, log, 0, END)])] == [b"a", b"b", b"c"]
    assert [row[1] for row in at_once([Part("t", 0, log, 0, END, gone)])] == [b"b", b"c"]


@given(
    st.lists(BATCHES, min_size=1, max_size=20),
    st.lists(st.sampled_from(tuple(COLUMNS)), unique=True, min_size=1),
)
def test_columns_that_are_wanted_are_those_of_all_columns_also_out_of_one_buffer(batches, wanted):
    frame = bytearray()
    parts = []
    for index, batch in enumerate(batches):
        frame += b"between"
        data = made([batch])
        parts.append((index, len(frame), len(frame) + len(data)))
        frame += data
    whole = memoryview(frame)
    cut = [Part("t", index, whole[start:end], 0, END) for index, start, end in parts]
    apart = [Part("t", index, bytes(whole[start:end]), 0, END) for index, start, end in parts]
    expected = [batch.select(wanted) for batch in decode(apart, columns=tuple(COLUMNS))]
    assert list(decode(cut, columns=wanted)) == expected


def test_a_name_of_a_header_that_is_no_utf_8_is_read_as_java_reads_it():
    batch = build_batch([Record(None, b"v", 0, (("abc", b"\xff"),))])
    at = batch.index(b"abc")
    batch[at : at + 3] = b"\xed\xa0\x80"
    write_crc(batch)
    part = Part("t", 0, batch, 0, END)
    (row,) = at_once([part])
    assert [row] == list(one_by_one(part))
    assert row[-1] == [("�", b"\xff")]


BODY = made(
    [([Record(b"key", b"value", 7, (("h", b"1"), ("i", None)))] * 3, *(Codec.NONE, "records", 0))]
)
EXTREMES = [0, 1, 2, 3, 12, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(EXTREMES)), min_size=1, max_size=3),
    st.sampled_from(["", "cut", "longer", "fewer", "more"]),
    st.sampled_from(Codec),
)
@example([(BODY[HEADER_SIZE:].index(b"key") - 2, 0x01)], "", Codec.NONE)
def test_what_is_refused_one_by_one_is_refused_at_once_and_nothing_else_is(changes, how, codec):
    """Bodies of correct checksum that some producer made wrong. Refused besides: offsets out of order or out of their batch."""
    body = bytearray(BODY[HEADER_SIZE:])
    for at, byte in changes:
        body[at % len(body)] = byte
    if how == "cut":
        del body[changes[0][0] % len(body) :]
    elif how == "longer":
        body += bytes([changes[0][1]]) * (changes[0][0] % 20)
    batch = replace_payload(BODY, codec, compress(codec, body))
    counted(batch, {"fewer": 2, "more": 4}.get(how, 3))
    # between whole ones: what belongs to them must not be taken for its own
    whole = made([([Record(b"a", b"b", 1)] * 2, Codec.NONE, "records", 0)])
    part = Part(
        "topic",
        5,
        bytes(whole) + batch + made([([Record(b"c", b"d", 1)], Codec.NONE, "records", 0)], 9),
        0,
        END,
    )
    try:
        want = list(one_by_one(part))
    except RecordsError:
        with pytest.raises(CorruptRecords, match="topic-5: batch at offset 0: "):
            at_once([part])
        return
    # of the batch itself: `want` has left out an offset below zero
    offsets = [record.offset for record in read_records(batch)]
    if offsets == sorted(set(offsets)) and offsets[0] >= 0 and offsets[-1] < 3:
        assert at_once([part]) == want
    else:
        with pytest.raises(CorruptRecords, match=r"topic-5: batch at offset 0: .*offset"):
            at_once([part])


@given(st.binary(max_size=60), st.integers(-1, 5), st.sampled_from(Codec))
def test_bytes_that_are_no_records_are_refused(body, count, codec):
    batch = counted(replace_payload(BODY, codec, body), count)
    part = Part("topic", 5, batch, 0, END)
    try:
        want = list(one_by_one(part))
    except RecordsError:
        with pytest.raises(CorruptRecords, match="topic-5: batch at offset 0: "):
            at_once([part])
    else:
        assert at_once([part]) == want


def header_changed(**changes: int) -> bytearray:
    names = (
        "base_offset",
        "length",
        "epoch",
        "magic",
        "crc",
        "attributes",
        "last_delta",
        "base_time",
        "max_time",
    )
    batch = bytearray(BODY)
    fields = list(HEADER.unpack_from(batch))
    for name, value in changes.items():
        fields[names.index(name)] = value
    HEADER.pack_into(batch, 0, *fields)
    write_crc(batch)
    return batch


@pytest.mark.parametrize(
    "batch, why",
    [
        (header_changed(magic=1), "no batch at 0: magic 1"),
        (header_changed(length=3), "no batch at 0: magic 2, length 3"),
        (header_changed(attributes=6 & CODEC_MASK), "batch at offset 0: undefined codec 6"),
        (header_changed(last_delta=1), "batch at offset 0: its offset is not one of the batch's"),
        (
            header_changed(base_time=TIMESTAMP_MS_MAX + 1),
            "batch at offset 0: a time beyond what Spark can hold",
        ),
        (
            header_changed(attributes=8, max_time=2**62),
            "batch at offset 0: a time beyond what Spark can hold",
        ),
        (BODY[:-1] + b"!", "batch at offset 0: its checksum is wrong"),
        (header_changed(attributes=4), "batch at offset 0: .*"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_with_the_partition_and_the_reason(batch, why):
    with pytest.raises(CorruptRecords, match=f"^topic-5: {why}"):
        at_once([Part("topic", 5, batch, 0, END)])


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch():
    part = Part("t", 0, BODY + BODY[:-1], 0, END)
    assert len(at_once([part])) == 3


def test_many_headers_in_one_record_keep_their_order():
    generator = random.Random(1)
    records = [
        Record(
            None,
            b"v",
            0,
            tuple((f"h{n}", bytes([n % 256])) for n in range(generator.choice([0, 1, 7, 300]))),
        )
        for _ in range(50)
    ]
    part = Part("t", 0, build_batch(records), 0, END)
    assert at_once([part]) == list(one_by_one(part))
