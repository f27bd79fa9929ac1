import pytest
from logfleet.log.replicated import UnexpectedAppendOffset, replicated_batches
from logfleet.records.batch import assign_offsets
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import Record, build_batch


def batch(base_offset, *, epoch=5, count=2):
    made = build_batch([Record(None, bytes(20), 0)] * count, base_offset=base_offset)
    assign_offsets(made, base_offset, epoch)
    return bytes(made)


def taken(records, log_end_offset=0, leader_epoch=5):
    found = replicated_batches(memoryview(records), log_end_offset, leader_epoch)
    return [(position, header.base_offset) for position, header in found]


def test_whole_batches_are_taken_and_one_that_is_cut_off_is_left_out():
    one, two = batch(7), batch(9)
    assert taken(one + two, 7) == [(0, 7), (len(one), 9)]
    for cut in (1, 30, len(two) - 1):
        assert taken(one + two[:cut], 7) == [(0, 7)]
    assert taken(b"", 7) == []
    assert taken(one[:-1], 7) == []


def test_offsets_may_be_missing_where_the_leader_has_compacted():
    assert taken(batch(4) + batch(90), 3) == [(0, 4), (len(batch(4)), 90)]


def test_what_a_later_leader_wrote_is_left_out():
    records = batch(0, epoch=4) + batch(2, epoch=6) + batch(4, epoch=5)
    assert taken(records) == [(0, 0)]


def test_batches_that_do_not_follow_each_other_are_refused():
    for second in (batch(0), batch(1)):
        with pytest.raises(CorruptRecords, match="no valid batch after offset 2"):
            taken(batch(0) + second)


@pytest.mark.parametrize("position", [8, 16, 17, 23, 40, 75, -1])
def test_a_damaged_batch_is_refused(position):
    records = bytearray(batch(0) + batch(2) + batch(4))
    records[len(batch(0)) + position if position >= 0 else position] ^= 0xFF
    with pytest.raises(CorruptRecords):
        taken(records)


def test_batches_below_the_logs_end_are_not_expected():
    with pytest.raises(UnexpectedAppendOffset, match="from 6 to 9 for a log that ends at 7") as why:
        taken(batch(6) + batch(8), 7)
    assert (why.value.first_offset, why.value.last_offset) == (6, 9)
