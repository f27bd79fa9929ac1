import random
import tracemalloc

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from logfleet.records.batch import (
    HEADER_SIZE,
    iterate_headers,
    parse_header,
    replace_payload,
    write_crc,
)
from logfleet.records.compression import PIECE_BYTES, Codec, compress
from logfleet.records.errors import CorruptRecords, DecompressedTooLarge, RecordsError
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records, stamp_batch

BYTES = st.none() | st.binary(max_size=300)
RECORD = st.builds(
    Record,
    BYTES,
    BYTES,
    st.integers(0, 2**45),
    st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=3).map(tuple),
)
RECORD_LISTS = st.lists(RECORD, min_size=1, max_size=20)


def fields(record):
    headers = [(str(name), value) for name, value in record.headers]
    return record.offset, record.timestamp, record.key, record.value, headers


@given(RECORD_LISTS, st.sampled_from(Codec), st.integers(0, 2**60))
def test_records_survive_a_round_trip(records, codec, base_offset):
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    expected = [(base_offset + index, *fields(r)[1:]) for index, r in enumerate(records)]
    assert [fields(record) for record in read_records(batch)] == expected


@given(RECORD_LISTS, st.sampled_from(Codec), st.booleans())
def test_a_stamped_batch_is_the_one_that_its_producer_builds(records, codec, transactional):
    producer = ProducerStamp(7, 3, 5, transactional=transactional)
    batch = build_batch(records, codec=codec)
    stamp_batch(batch, producer)
    assert batch == build_batch(records, codec=codec, producer=producer)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@given(records=RECORD_LISTS)
def test_kafka_python_reads_our_batches(codec, records):
    batch = MemoryRecords(bytes(build_batch(records, codec=codec, base_offset=5))).next_batch()
    assert batch.validate_crc()
    assert [fields(r) for r in batch] == [(5 + i, *fields(r)[1:]) for i, r in enumerate(records)]


@pytest.mark.parametrize("codec", list(Codec))
@given(records=RECORD_LISTS)
def test_aiokafka_reads_our_batches(codec, records):
    batch = AiokafkaRecords(bytes(build_batch(records, codec=codec, base_offset=5))).next_batch()
    assert batch.validate_crc()
    assert [fields(r) for r in batch] == [(5 + i, *fields(r)[1:]) for i, r in enumerate(records)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@given(records=RECORD_LISTS)
def test_batches_of_kafka_python_are_read(codec, records):
    builder = MemoryRecordsBuilder(2, int(codec), 1 << 20, offset=3)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    batch = bytes(builder.buffer())
    assert [fields(r) for r in read_records(batch)] == [
        (3 + i, *fields(r)[1:]) for i, r in enumerate(records)
    ]


def test_records_of_the_batch_at_a_position_are_read():
    buffer = build_batch([Record(b"a", b"1", 1)]) + build_batch(
        [Record(b"b", b"2", 2)], base_offset=1
    )
    positions = [position for position, _ in iterate_headers(buffer)]
    keys = [[record.key for record in read_records(buffer, position)] for position in positions]
    assert keys == [[b"a"], [b"b"]]


def test_a_batch_beyond_the_budget_is_refused():
    batch = build_batch([Record(None, bytes(10_000), 0)], codec=Codec.ZSTD)
    assert len(batch) < 200
    assert len(next(read_records(batch, budget_bytes=10_100)).value or b"") == 10_000
    with pytest.raises(DecompressedTooLarge):
        next(read_records(batch, budget_bytes=10_000))


def test_a_batch_cut_short_is_corrupt():
    batch = build_batch([Record(b"key", b"value", 0)])
    with pytest.raises(CorruptRecords):
        next(read_records(batch[:-1]))


def with_payload(payload, count=1, codec=Codec.NONE):
    batch = build_batch([Record(None, None, 0)], codec=codec)[:HEADER_SIZE]
    batch += compress(codec, payload)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    write_crc(batch)
    return batch


GOOD = bytes(build_batch([Record(b"k", b"v", 0, (("h", b"x"),))])[HEADER_SIZE:])


def test_the_record_that_the_hostile_ones_are_made_from_is_good():
    assert [r.key for r in read_records(with_payload(GOOD * 2, 2))] == [b"k", b"k"]


@pytest.mark.parametrize(
    "payload, count",
    [
        (b"", 1),
        (GOOD, 2),
        (GOOD * 2, 1),
        (GOOD + b"\0", 1),
        (GOOD[:-1], 1),
        (b"\x01" + GOOD[1:], 1),  # a record length of -1
        (b"\xff\xff\xff\xff\x0f" + GOOD[1:], 1),  # 2 GiB of record
        (b"\xff" * 30, 1),
        (bytes([GOOD[0] + 2]) + GOOD[1:] + b"x", 1),  # a byte that belongs to no field
        (GOOD[:4] + b"\xfe\x01" + GOOD[6:], 1),  # a key longer than the record
        (b"\x0c\0\0\0\x01\x01\xfe", 1),  # a header count that goes on beyond the record
        (b"\x0c\0\0\0\x01\x01\x01", 1),  # -1 headers
        (b"\x0e\0\0\0\x01\x01\x7e\0", 1),  # 63 headers in a few bytes
        (b"\x0e\0\0\0\x01\x01\x02\x01", 1),  # a header without a name
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_hostile_records_are_corrupt(payload, count, codec):
    with pytest.raises(CorruptRecords):
        list(read_records(with_payload(payload, count, codec)))


@pytest.mark.parametrize("codec", list(Codec))
def test_no_more_records_are_read_than_the_header_counts(codec):
    records = read_records(with_payload(GOOD * 1000, 2, codec))
    assert [next(records).key, next(records).key] == [b"k", b"k"]
    with pytest.raises(CorruptRecords, match="more records than the 2 in the header"):
        next(records)


def test_a_zstd_stream_cut_short_is_noticed_by_its_missing_records():
    text = b"".join(b"%d" % number for number in range(20_000))
    batch = build_batch(
        [Record(None, text[i : i + 50], 0) for i in range(0, 90_000, 50)], codec=Codec.ZSTD
    )
    header = parse_header(batch)
    del batch[-200:]
    batch[8:12] = (header.batch_length - 200).to_bytes(4, "big")
    with pytest.raises(CorruptRecords):
        list(read_records(batch))


@given(RECORD_LISTS, st.sampled_from(Codec), st.data())
def test_damaged_batches_raise_nothing_but_the_typed_errors(records, codec, data):
    batch = build_batch(records, codec=codec)
    batch[data.draw(st.integers(0, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        list(read_records(batch, budget_bytes=1 << 20))
    except RecordsError:
        return


@pytest.mark.parametrize("name", [b"\xff", b"\xed\xa0\x80"])
def test_a_header_name_that_is_no_utf_8_is_read_as_java_reads_it(name):
    longer = 2 * (len(name) - 1)  # lengths are zigzag
    assert GOOD.count(b"\x02h") == 1
    payload = bytes([GOOD[0] + longer]) + GOOD[1:].replace(b"\x02h", bytes([2 + longer]) + name)
    assert next(read_records(with_payload(payload))).headers == (("\ufffd", b"x"),)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_come_in_several_pieces_are_whole(codec):
    sizes = [1, PIECE_BYTES - 20, 10, 3 * PIECE_BYTES, 0, PIECE_BYTES, 7]
    dice = random.Random(1)
    wanted = [dice.randbytes(size) for size in sizes]
    batch = build_batch([Record(b"k", value, 1) for value in wanted], codec=codec)
    assert [record.value for record in read_records(batch)] == wanted


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_expanded_only_up_to_the_first_record_that_is_none(codec):
    """Its header may count as many records as it likes."""
    small = build_batch([Record(b"k", b"v", 1)], codec=codec)
    bomb = replace_payload(small, codec, compress(codec, bytes(64 << 20)))
    list(read_records(small))  # what a codec allocates once
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecords):
            list(read_records(bomb))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * PIECE_BYTES
