import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.client.offsets import TopicPartition
from logfleet_spark.offsets import (
    DataLossError,
    OffsetRange,
    from_json,
    limited,
    reachable,
    split,
    to_json,
)

sizes = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9)),
    st.integers(0, 10_000),
    min_size=1,
)


@given(sizes)
def test_json_form_is_reversible(offsets):
    assert from_json(to_json(offsets)) == offsets


@given(sizes, st.integers(1, 5_000))
def test_a_limited_batch_always_moves_and_never_beyond_the_end(end, limit):
    start = dict.fromkeys(end, 0)
    reached = limited(start, end, limit)
    waiting = [tp for tp in end if end[tp] > 0]
    assert all(start[tp] <= reached[tp] <= end[tp] for tp in end)
    assert all(reached[tp] > start[tp] for tp in waiting)
    assert sum(reached.values()) <= max(limit + len(waiting), 0)


def test_what_fits_the_limit_is_read_whole():
    assert limited({TopicPartition("t", 0): 5}, {TopicPartition("t", 0): 9}, 4) == {
        TopicPartition("t", 0): 9
    }


@given(sizes, st.one_of(st.none(), st.integers(1, 40)))
def test_splitting_keeps_every_offset_once(end, min_partitions):
    ranges = [OffsetRange(tp, 0, size) for tp, size in end.items()]
    pieces = split(ranges, min_partitions)
    assert all(piece.size > 0 for piece in pieces)
    for r in ranges:
        own = sorted((x.start, x.end) for x in pieces if x.where == r.where)
        covered = 0
        for low, high in own:
            assert low == covered
            covered = high
        assert covered == r.size


def test_one_big_partition_is_cut_for_more_tasks():
    assert [r.size for r in split([OffsetRange(TopicPartition("t", 0), 0, 100)], 4)] == [
        25,
        25,
        25,
        25,
    ]


def test_deleted_records_fail_the_query_by_name():
    with pytest.raises(
        DataLossError, match=r"t-0 from 3 \(first kept: 7\), t-1 \(partition gone\)"
    ):
        reachable(
            {TopicPartition("t", 0): 3, TopicPartition("t", 1): 0},
            {TopicPartition("t", 0): 7},
            fail_on_data_loss=True,
        )


def test_a_query_that_accepts_loss_goes_on_with_what_is_kept():
    kept = reachable(
        {TopicPartition("t", 0): 3, TopicPartition("t", 1): 0},
        {TopicPartition("t", 0): 7},
        fail_on_data_loss=False,
    )
    assert kept == {TopicPartition("t", 0): 7}
