import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.config import LogConfig
from logfleet.log.segments.roll import NO_ROOM, ActiveSegment, room_in, should_roll

CONFIG = LogConfig(segment_bytes=1000, segment_ms=100, segment_index_bytes=1200)
HALF_FULL = ActiveSegment(
    base_offset=50,
    size=500,
    offset_entries=10,
    time_entries=10,
    first_timestamp=7000,
    created_ms=9000,
)


def rolls(segment=HALF_FULL, *, size=100, last_offset=60, timestamp=7050, now=9050, jitter=0):
    return should_roll(
        segment,
        CONFIG,
        batch_bytes=size,
        last_offset=last_offset,
        max_timestamp=timestamp,
        now_ms=now,
        jitter_ms=jitter,
    )


def changed(**fields):
    return ActiveSegment(
        **{name: getattr(HALF_FULL, name) for name in HALF_FULL.__struct_fields__} | fields
    )


def test_a_batch_that_fits_stays():
    assert not rolls()
    assert not rolls(size=500)
    assert not rolls(timestamp=7100)


def test_a_batch_that_does_not_fit_begins_a_segment():
    assert rolls(size=501)


def test_a_batch_goes_into_an_empty_segment_whatever_its_size():
    assert not rolls(changed(size=0, first_timestamp=-1), size=2000, now=10**6)


def test_time_passes_by_the_records_timestamps_not_by_the_clock():
    assert rolls(timestamp=7101)
    assert not rolls(timestamp=7100, now=10**9)


def test_time_passes_by_the_clock_where_records_have_no_timestamps():
    assert rolls(changed(first_timestamp=-1), timestamp=-1, now=9101)
    assert not rolls(changed(first_timestamp=-1), timestamp=-1, now=9100)


def test_jitter_makes_time_pass_earlier():
    assert rolls(timestamp=7081, jitter=20)


@pytest.mark.parametrize("full", [{"offset_entries": 150}, {"time_entries": 99}])
def test_a_full_index_begins_a_segment(full):
    assert rolls(changed(**full))
    assert not rolls(changed(**{name: count - 1 for name, count in full.items()}))


def test_an_offset_beyond_32_bits_from_the_base_begins_a_segment():
    assert not rolls(last_offset=50 + 2**31 - 1)
    assert rolls(last_offset=50 + 2**31)


@given(
    size=st.integers(1, 1200),
    entries=st.integers(0, 160),
    first=st.integers(-1, 200),
    appended=st.integers(0, 500),
    offset=st.integers(50, 2**33),
    timestamp=st.integers(-1, 400),
    jitter=st.integers(0, 50),
    interval=st.integers(1, 20),
)
def test_what_fits_into_the_room_of_a_segment_never_begins_another(
    size, entries, first, appended, offset, timestamp, jitter, interval
):
    config = msgspec.structs.replace(CONFIG, index_interval_bytes=interval)
    segment = changed(
        size=size, offset_entries=entries, time_entries=entries, first_timestamp=first
    )
    room = room_in(segment, config, jitter_ms=jitter)
    batch = 70
    # batches were appended meanwhile, with as many index entries as that can make
    size += appended
    entries += appended // interval + 1
    later = changed(size=size, offset_entries=entries, time_entries=entries, first_timestamp=first)
    fits = (
        size + batch <= room.size and offset <= room.last_offset and timestamp <= room.max_timestamp
    )
    assert not fits or not should_roll(
        later,
        config,
        batch_bytes=batch,
        last_offset=offset,
        max_timestamp=timestamp,
        now_ms=10**9,
        jitter_ms=jitter,
    )


def test_there_is_room_where_records_have_timestamps():
    room = room_in(HALF_FULL, CONFIG, jitter_ms=20)
    assert (room.size, room.last_offset, room.max_timestamp) == (1000, 50 + 2**31 - 1, 7080)
    assert room_in(changed(first_timestamp=-1), CONFIG) == NO_ROOM


def test_a_compacted_log_closes_its_segment_before_it_would_be_overdue():
    config = LogConfig(
        segment_ms=1000, max_compaction_lag_ms=300, cleanup_policy=frozenset({"compact"})
    )
    assert config.roll_ms == 300
    assert LogConfig(segment_ms=1000, max_compaction_lag_ms=300).roll_ms == 1000
