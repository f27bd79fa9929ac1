import pytest
from logfleet.log.segments.index_check import offset_entries_match, time_entries_match
from logfleet.records.batch import iterate_headers
from logfleet.records.record import Record, build_batch

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
