import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from logfleet.records.batch import (
    HEADER_SIZE,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TimestampType,
    assign_offsets,
    crc_matches,
    increment_sequence,
    iterate_headers,
    parse_header,
    read_codec,
    set_log_append_time,
    write_crc,
)
from logfleet.records.compression import Codec
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.types import LeaderEpoch

RECORDS = [
    Record(b"k1", b"v1" * 100, 1_700_000_000_000),
    Record(None, b"v2", 1_700_000_000_500, (("h", b"x"), ("n", None))),
    Record(b"k3", None, 1_699_999_999_000),
]


def theirs(codec=Codec.NONE, stamp=None):
    builder = MemoryRecordsBuilder(2, int(codec), 1 << 20)
    if stamp:
        builder.set_producer_state(
            stamp.producer_id, stamp.epoch, stamp.base_sequence, stamp.transactional
        )
    for record in RECORDS:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    return bytearray(builder.buffer())


def test_the_header_of_a_batch_made_by_kafka_python_is_understood():
    stamp = ProducerStamp(4711, 3, SEQUENCE_MAX - 1, True)
    batch = theirs(Codec.GZIP, stamp)
    header = parse_header(batch)
    assert (header.size, header.magic, header.leader_epoch) == (len(batch), 2, 0)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (
        RECORDS[0].timestamp,
        RECORDS[1].timestamp,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 2**31 - 2)
    assert header.last_sequence == 0  # it wrapped
    assert (header.record_count, read_codec(header)) == (3, Codec.GZIP)
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.has_producer_id
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert crc_matches(batch, header)


def test_a_batch_is_byte_for_byte_that_of_kafka_python():
    stamp = ProducerStamp(4711, 3, 12, True)
    assert build_batch(RECORDS, leader_epoch=LeaderEpoch(0), producer=stamp) == theirs(stamp=stamp)


def test_a_batch_without_a_producer_has_no_sequence():
    header = parse_header(build_batch(RECORDS))
    assert not header.has_producer_id
    assert header.last_sequence == NO_SEQUENCE


def test_the_leader_writes_offsets_and_epoch_without_touching_the_checksum():
    batch = bytearray(b"prefix") + build_batch(RECORDS)
    before = parse_header(batch, 6)
    assign_offsets(memoryview(batch), 2**40, LeaderEpoch(77), 6)
    header = parse_header(batch, 6)
    assert (header.base_offset, header.leader_epoch, header.crc) == (2**40, 77, before.crc)
    assert crc_matches(batch, header, 6)
    assert [record.offset for record in read_records(batch, 6)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_log_append_time_is_every_records_time_and_has_a_right_checksum():
    batch = build_batch(RECORDS)
    set_log_append_time(memoryview(batch), 1_800_000_000_000)
    header = parse_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.base_timestamp == RECORDS[0].timestamp
    assert crc_matches(batch, header)
    assert {record.timestamp for record in read_records(batch)} == {1_800_000_000_000}
    oracle = MemoryRecords(bytes(batch)).next_batch()
    assert {record.timestamp for record in oracle} == {1_800_000_000_000}


@given(st.data())
def test_any_damaged_byte_behind_the_checksum_is_noticed(data):
    batch = build_batch(RECORDS, codec=Codec.ZSTD)
    batch[data.draw(st.integers(17, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    assert not crc_matches(batch, parse_header(batch))


def test_sequences_wrap_to_zero():
    assert increment_sequence(5, 2) == 7
    assert increment_sequence(SEQUENCE_MAX, 1) == 0
    assert increment_sequence(SEQUENCE_MAX - 2, 5) == 2


def test_headers_of_several_batches_are_iterated_and_a_cut_one_left_out():
    one, two, three = (build_batch(RECORDS, base_offset=base) for base in (0, 3, 6))
    buffer = one + two + three
    positions = [0, len(one), len(one) + len(two)]
    assert [at for at, _ in iterate_headers(buffer)] == positions
    assert [header.base_offset for _, header in iterate_headers(buffer)] == [0, 3, 6]
    assert [at for at, _ in iterate_headers(buffer, len(one))] == positions[1:]
    for cut in (1, HEADER_SIZE, len(three) - 1):
        shorter = memoryview(buffer)[: positions[2] + cut]
        assert [at for at, _ in iterate_headers(shorter)] == positions[:2]
    assert list(iterate_headers(b"")) == []


@pytest.mark.parametrize(
    "position, value",
    [(16, b"\x01"), (8, b"\0\0\0\0"), (8, b"\xff\xff\xff\xff"), (8, b"\0\0\0\x30")],
)
def test_bytes_that_are_no_batch_cannot_be_iterated(position, value):
    batch = build_batch(RECORDS)
    batch[position : position + len(value)] = value
    with pytest.raises(CorruptRecords):
        list(iterate_headers(batch))


def test_a_header_needs_its_61_bytes():
    with pytest.raises(CorruptRecords):
        parse_header(build_batch(RECORDS)[: HEADER_SIZE - 1])
    with pytest.raises(CorruptRecords):
        parse_header(bytes(100), 40)


def test_an_undefined_codec_is_corrupt():
    batch = build_batch(RECORDS)
    batch[22] |= 6
    write_crc(batch)
    with pytest.raises(CorruptRecords):
        read_codec(parse_header(batch))
