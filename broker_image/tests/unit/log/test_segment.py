import pytest
from logfleet.log.config import LogConfig
from logfleet.log.segment import ActiveSegment, should_roll

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
