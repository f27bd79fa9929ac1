from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.segments.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    capacity,
    offset_entries,
    sound_length,
    time_entries,
    unpack_entries,
)
from logfleet.records.batch import parse_header
from logfleet.records.record import Record, build_batch
from logfleet.types import Position

PAIRS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=40)


def test_entries_are_packed_as_kafka_packs_them():
    assert OFFSET_ENTRY.pack(1, 4096) == bytes.fromhex("00000001 00001000")
    assert TIME_ENTRY.pack(1, 2) == bytes.fromhex("0000000000000001 00000002")
    assert list(unpack_entries(OFFSET_ENTRY, OFFSET_ENTRY.pack(1, 2) + b"\0\0\0")) == [(1, 2)]


@given(PAIRS)
def test_the_sound_part_ascends_within_its_bounds(entries):
    length = sound_length(entries, first_max=400, second_min=3, second_max=400)
    sound = entries[:length]
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(sound))
    assert all(first <= 400 and 3 <= second <= 400 for first, second in sound)
    if length < len(entries):
        first, second = entries[length]
        before = sound[-1] if sound else (-1, 2)
        assert first > 400 or second > 400 or first <= before[0] or second <= before[1]


def test_zeros_after_a_power_loss_are_not_sound():
    entries = [(5, 100), (9, 200), (0, 0), (0, 0), (30, 500)]
    assert sound_length(entries, first_max=100, second_min=0, second_max=1000) == 2


def test_a_rebuilt_index_has_an_entry_behind_each_interval():
    batch = parse_header(build_batch([Record(None, bytes(40), 0)] * 2, base_offset=100))
    batches = [(Position(number * batch.size), batch) for number in range(6)]
    entries = list(offset_entries(batches, 90, 2 * batch.size))
    assert entries == [(11, 3 * batch.size)]


def test_a_rebuilt_time_index_has_the_largest_time_behind_each_interval_and_at_the_end():
    times = [5, 9, 7, 7, 20, 3, 30, 1]
    batches = []
    for number, timestamp in enumerate(times):
        data = build_batch([Record(None, bytes(40), timestamp)], base_offset=100 + number)
        batches.append((Position(number * len(data)), parse_header(data)))
    size = batches[1][0]
    assert list(time_entries(batches, 90, 2 * size)) == [(9, 11), (30, 16)]
    assert list(time_entries(batches[:4], 90, 2 * size)) == [(9, 11)]
    assert list(time_entries([], 90, 1)) == []


def test_an_index_holds_what_its_file_may_hold():
    assert capacity(OFFSET_ENTRY, 10 * 1024 * 1024) == 1_310_720
    assert capacity(TIME_ENTRY, 10 * 1024 * 1024) == 873_813
