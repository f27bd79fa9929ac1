import pytest
from logfleet.log.aborted import ABORTED_ENTRY, AbortedEntry, overlapping, sound_count

ENTRIES = [(0, 1, 3, 4, 2), (0, 2, 2, 6, 7), (0, 1, 8, 20, 15), (0, 3, 15, 21, 22)]


def test_an_entry_has_the_34_bytes_of_kafka():
    packed = AbortedEntry(5001, 2, 6, 7).pack()
    assert len(packed) == 34
    assert packed.hex() == "0000" "0000000000001389" "0000000000000002" "0000000000000006" "0000000000000007"  # fmt: skip
    assert ABORTED_ENTRY.unpack(packed) == (0, 5001, 2, 6, 7)


@pytest.mark.parametrize("end", range(25))
@pytest.mark.parametrize("start", range(25))
def test_no_transaction_with_records_in_the_range_is_left_out(start, end):
    behind = [entry for entry in ENTRIES if entry[3] >= start]
    found, is_all = overlapping(behind, start, end)
    expected = [
        AbortedEntry(producer, first, last, stable)
        for _, producer, first, last, stable in ENTRIES
        if last >= start and first < end
    ]
    assert found == expected
    if is_all:
        assert end <= 22


def test_the_search_ends_where_everything_before_the_end_had_been_decided():
    assert overlapping(ENTRIES, 0, 7) == (
        [AbortedEntry(1, 3, 4, 2), AbortedEntry(2, 2, 6, 7)],
        True,
    )
    assert overlapping(ENTRIES, 0, 23)[1] is False
    assert overlapping([], 0, 5) == ([], False)


@pytest.mark.parametrize(
    "behind",
    [
        (0, 0, 0, 0, 0),
        (1, 9, 30, 40, 41),
        (0, 9, 30, 30, 41),
        (0, 9, -1, 40, 41),
        (0, 9, 30, 40, 42),
        (0, 9, 30, 40, -1),
        (0, 9, 5, 21, 22),
    ],
)
def test_what_follows_an_entry_that_cannot_be_true_does_not_count(behind):
    assert sound_count([*ENTRIES, behind, (0, 9, 50, 60, 61)]) == len(ENTRIES)
    assert sound_count(ENTRIES) == len(ENTRIES)
