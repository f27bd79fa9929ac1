import pytest
from logfleet.log.segments.index_check import (
    aborted_entries_match,
    offset_entries_match,
    time_entries_match,
)
from logfleet.records.batch import assign_offsets, iterate_headers
from logfleet.records.control import marker_batch
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch

T = 1_700_000_000_000
ONE = build_batch([Record(None, b"a", T), Record(None, b"b", T + 5)], base_offset=10)
TWO = build_batch([Record(None, b"c", T + 2)], base_offset=12)
LOG = bytes(ONE + TWO)
SECOND = len(ONE)


@pytest.mark.parametrize(
    "entries, hold",
    [
        ([], []),
        ([(11, 0), (12, SECOND)], [True, True]),
        ([(12, SECOND)], [True]),
        ([(10, 0)], [False]),
        ([(12, 0)], [False]),
        ([(12, SECOND - 1), (12, SECOND)], [False, True]),
        ([(13, len(LOG))], [False]),
        ([(12, SECOND), (11, 0)], [True, False]),
    ],
)
def test_an_offset_leads_to_the_batch_that_it_ends(entries, hold):
    assert list(offset_entries_match(entries, iterate_headers(LOG))) == hold


@pytest.mark.parametrize(
    "entries, hold",
    [
        ([(T + 5, 11)], [True]),
        ([(T + 5, 10), (T + 2, 12)], [True, True]),
        ([(T + 4, 11)], [False]),
        ([(T + 5, 12)], [False]),
        ([(T + 5, 9)], [False]),
        ([(T + 5, 13)], [False]),
    ],
)
def test_a_time_is_that_of_the_batch_with_its_offset(entries, hold):
    assert list(time_entries_match(entries, iterate_headers(LOG))) == hold


@pytest.mark.parametrize(
    "entries, hold",
    [
        ([], []),
        ([(7, 13)], [True]),
        ([(8, 13)], [False]),
        ([(7, 12), (7, 13), (7, 14)], [False, True, False]),
    ],
)
def test_an_aborted_transaction_ends_with_a_marker_of_its_producer(entries, hold):
    marker = marker_batch(7, 0, commit=False, coordinator_epoch=0, now_ms=T)
    assign_offsets(marker, 13, LeaderEpoch(0))
    batches = iterate_headers(LOG + bytes(marker))
    assert list(aborted_entries_match(entries, batches)) == hold
