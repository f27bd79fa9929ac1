import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.records.batch import crc_matches, parse_header
from logfleet.records.control import MARKER_BYTES, Marker, marker_batch, read_marker
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import ProducerStamp, Record, build_batch

BY_KAFKA = bytes.fromhex(
    "0000000000000000 00000042 00000000 02 a35eb1a6 0030 00000000 0000018bcfe56800"
    "0000018bcfe56800 0000000000001389 0007 ffffffff 00000001"
    "20 00 00 00 08 0000 0001 0c 0000 00000003 00"
)
"""`MemoryRecords.withEndTransactionMarker`: commit of producer 5001, epoch 7."""


def control_batch(key: bytes | None, value: bytes | None, *, transactional=True):
    stamp = ProducerStamp(5001, 7, transactional=transactional)
    return build_batch([Record(key, value, 1)], producer=stamp, control=True)


def test_a_marker_has_the_bytes_that_kafka_writes():
    batch = marker_batch(5001, 7, commit=True, coordinator_epoch=3, now_ms=1_700_000_000_000)
    written = bytearray(BY_KAFKA)
    written[12:16] = batch[12:16]  # the leader writes its epoch at the append
    written[17:21] = batch[17:21]  # checked below
    assert bytes(batch) == bytes(written)
    assert crc_matches(batch, parse_header(batch))
    assert len(batch) == MARKER_BYTES == 78


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.booleans(),
    st.integers(-1, 2**31 - 1),
    st.integers(0, 50),
)
def test_a_marker_is_read_as_it_was_written(producer_id, epoch, commit, coordinator_epoch, before):
    batch = marker_batch(
        producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=5
    )
    data = memoryview(bytes(before) + bytes(batch) + b"behind")
    assert read_marker(data, before) == Marker(producer_id, epoch, commit, coordinator_epoch)


def test_batches_that_end_no_transaction_hold_no_marker():
    leader_change = control_batch(struct.pack(">hh", 0, 2), b"")
    plain = build_batch([Record(b"k", b"v", 1)], producer=ProducerStamp(1, 0, 0))
    data = build_batch([Record(b"k", b"v", 1)], producer=ProducerStamp(1, 0, 0, transactional=True))
    not_transactional = control_batch(struct.pack(">hh", 0, 1), bytes(6), transactional=False)
    emptied = marker_batch(1, 0, commit=True, coordinator_epoch=0, now_ms=1)[:61]
    struct.pack_into(">i", emptied, 8, 49)
    struct.pack_into(">i", emptied, 57, 0)
    for batch in (leader_change, plain, data, not_transactional, emptied):
        assert read_marker(batch) is None


def test_a_marker_of_another_layout_is_read_too():
    key, value = struct.pack(">hh", 0, 0), struct.pack(">hi", 1, 9) + b"more"
    assert read_marker(control_batch(key, value)) == Marker(
        5001, 7, is_commit=False, coordinator_epoch=9
    )


def test_a_control_record_of_78_bytes_and_another_type_is_no_marker():
    batch = control_batch(struct.pack(">hh", 0, 2), bytes(6))
    assert len(batch) == MARKER_BYTES
    assert read_marker(batch) is None


@pytest.mark.parametrize(
    "key, value",
    [(b"\0", b""), (None, b""), (struct.pack(">hh", 0, 1), b"\0" * 5), (bytes(4), None)],
)
def test_a_malformed_marker_is_none(key, value):
    assert read_marker(control_batch(key, value)) is None


def test_a_marker_that_is_cut_off_is_none():
    batch = marker_batch(1, 0, commit=True, coordinator_epoch=0, now_ms=1)
    assert read_marker(batch[:-1]) is None
    with pytest.raises(CorruptRecords):
        read_marker(batch[:60])
