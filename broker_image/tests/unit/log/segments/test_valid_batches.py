import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.segments.valid_batches import (
    HEADERS_CHUNK_BYTES,
    VERIFY_CHUNK_BYTES,
    holds_old_messages,
    is_plausible,
    read_batches,
    scan_batches,
    scan_markers,
)
from logfleet.records.batch import assign_offsets, parse_header
from logfleet.records.control import Marker, marker_batch
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch, Position

from broker_image.tests.unit.log.old_messages import old_message


def batches(*sizes):
    log, base = bytearray(), 0
    for size in sizes:
        log += build_batch([Record(None, bytes(size), 0)] * 2, base_offset=base)
        base += 2
    return log


def scan(log, *, verify=True, start=0, end=None, next_offset=0):
    def read(length, position):
        return bytes(log[position : position + length])

    found = scan_batches(
        read, start, len(log) if end is None else end, next_offset=next_offset, verify=verify
    )
    return [(position, header.base_offset) for position, header in found]


SIZES = st.lists(
    st.integers(0, 300) | st.sampled_from([HEADERS_CHUNK_BYTES - 40, VERIFY_CHUNK_BYTES]),
    max_size=6,
)


def expected(log):
    found, position = [], 0
    while position < len(log):
        header = parse_header(log, position)
        found.append((position, header.base_offset))
        position += header.size
    return found


@given(SIZES, st.booleans())
def test_all_batches_of_a_sound_log_are_found(sizes, verify):
    log = batches(*sizes)
    assert scan(log, verify=verify) == expected(log)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.data())
def test_a_log_cut_anywhere_gives_its_whole_batches(sizes, data):
    log = batches(*sizes)
    cut = data.draw(st.integers(0, len(log)))
    whole = [(p, base) for p, base in expected(log) if p + parse_header(log, p).size <= cut]
    for verify in (False, True):
        assert scan(log[:cut], verify=verify) == whole
        assert scan(log, verify=verify, end=cut) == whole
    assert scan(log[:cut], end=len(log)) == whole  # a file that is shorter than it was


@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.data())
def test_a_damaged_batch_ends_what_is_verified(sizes, data):
    log = batches(*sizes)
    at = data.draw(st.integers(0, len(log) - 1))
    sound = [(p, base) for p, base in expected(log) if p + parse_header(log, p).size <= at]
    log[at] ^= data.draw(st.integers(1, 255))
    found = scan(log)
    # base offset and leader epoch are outside the checksum
    assert found[: len(sound)] == sound
    if at - (sound[-1][0] + parse_header(log, sound[-1][0]).size if sound else 0) not in range(16):
        assert found == sound


def test_scanning_begins_in_the_middle():
    log = batches(10, 20, 30)
    positions = expected(log)
    assert scan(log, start=positions[1][0]) == positions[1:]


def test_offsets_must_ascend():
    log = batches(10, 20)
    assert scan(log, next_offset=1) == []
    assert scan(log + batches(5)) == expected(log)[:2]


def test_zeros_are_no_batch():
    assert scan(bytearray(1000)) == []
    assert not is_plausible(parse_header(bytes(61)), 0)


def holds_old(log):
    return holds_old_messages(lambda length, at: bytes(log[at : at + length]), len(log))


@given(SIZES, st.sampled_from([0, 1]), st.integers(0, 100))
def test_a_message_of_an_old_format_is_found_behind_any_batches(sizes, magic, length):
    log = batches(*sizes)
    assert not holds_old(log)
    assert holds_old(log + old_message(2 * len(sizes), magic, bytes(length)))
    assert holds_old(log + old_message(2 * len(sizes), magic, bytes(length)) + batches(1))


@given(SIZES, st.integers(1, 200))
def test_what_a_crash_leaves_is_no_message_of_an_old_format(sizes, length):
    log = batches(*sizes)
    assert not holds_old(log + bytes(length)), "room that was allocated and not written"
    assert not holds_old(log + batches(5)[:length][:-1])


def marker(log, base_offset):
    batch = marker_batch(7, 1, commit=False, coordinator_epoch=3, now_ms=5)
    assign_offsets(batch, base_offset, LeaderEpoch(0))
    return log + batch


@pytest.mark.parametrize("size", [0, HEADERS_CHUNK_BYTES - 250, HEADERS_CHUNK_BYTES - 170])
def test_markers_are_read_with_the_headers_also_where_a_chunk_ends_within_one(size):
    log = marker(marker(batches(size), 2), 3)
    found = scan_markers(
        lambda length, position: bytes(log[position : position + length]),
        Position(0),
        len(log),
        next_offset=0,
    )
    aborted = Marker(7, 1, is_commit=False, coordinator_epoch=3)
    assert [(header.base_offset, each) for header, each in found] == [
        (0, None),
        (2, aborted),
        (3, aborted),
    ]


def test_batches_are_read_whole_and_a_torn_one_is_an_error():
    log = batches(0, VERIFY_CHUNK_BYTES, 9)

    def read(length, position):
        return bytes(log[position : position + length])

    found = [batch for _, batch in read_batches(read, Position(0), len(log), next_offset=0)]
    assert b"".join(found) == bytes(log)
    with pytest.raises(CorruptRecords, match="no whole valid batch"):
        list(read_batches(read, Position(0), len(log) - 1, next_offset=0))
