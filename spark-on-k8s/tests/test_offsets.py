import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.client.offsets import TopicPartition
from logfleet_spark.losses import Losses
from logfleet_spark.offsets import (
    DataLossError,
    OffsetRange,
    clamped,
    from_json,
    id_text,
    ids_from_json,
    limited,
    planned,
    split,
    to_json,
    without_latest,
)

sizes = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9)),
    st.integers(0, 10_000),
    min_size=1,
)


@given(sizes)
def test_json_form_is_reversible(offsets):
    assert from_json(to_json(offsets)) == offsets


@given(
    sizes, st.dictionaries(st.sampled_from(["a", "b", "c"]), st.binary(min_size=16, max_size=16))
)
def test_ids_stand_beside_the_offsets_that_they_leave_as_they_are(offsets, ids):
    shaped = to_json(offsets, ids)
    assert from_json(shaped) == offsets
    topics = {tp.topic for tp in offsets}
    assert ids_from_json(shaped) == {name: ids[name] for name in ids.keys() & topics}
    assert ids_from_json(to_json(offsets)) == {}


def test_an_id_is_written_as_kafkas_tools_write_it():
    """Uuid.METADATA_TOPIC_ID of Apache Kafka, as its Uuid.toString writes it."""
    assert id_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert list(to_json({A: 3}, {"t": bytes(range(16))})) == ["t", "t@AAECAwQFBgcICQoLDA0ODw"]


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


def test_latest_is_the_own_end_of_the_batch_that_starts_there():
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert without_latest({a: -1, b: 9}, {a: 7, b: 8}) == {a: 7, b: 9}


def test_a_start_that_was_asked_for_late_is_clamped_to_the_batch():
    a, b, new = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1)
    assert clamped({a: -1, b: 9, new: 0}, {a: 7, b: 8}) == {a: 7, b: 8}
    assert clamped({a: 3}, {a: 7, b: 8}) == {a: 3}  # b has appeared since: its batch reads it whole


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


A, B, C = (TopicPartition("t", number) for number in range(3))


@pytest.mark.parametrize(
    "begin, until, earliest, named",
    [
        ({A: 3}, {A: 9}, {A: 7}, r"t-0 from 3 to 7 \(first kept: 7\)"),
        ({A: 3, B: 0}, {A: 3}, {A: 0}, r"t-1 \(partition not visible\)"),
        ({A: 3}, {A: 9}, {}, r"t-0 from 3 to 9 \(partition gone\)"),
        ({A: 9}, {A: 3}, {A: 0}, r"t-0 \(offset 9 wanted, ends at 3 now"),
        ({}, {A: 9}, {A: 2}, r"t-0 from 0 to 2 \(first kept: 2\)"),
    ],
    ids=["retention", "gone", "gone-since", "made-anew", "new-and-short"],
)
def test_records_that_are_gone_fail_the_query_by_name(begin, until, earliest, named):
    _, lost = planned(begin, until, earliest)
    with pytest.raises(DataLossError, match=f"{named}.*; set failOnDataLoss=false"):
        Losses(accepted=False).take(lost)


def test_a_query_that_accepts_loss_reads_what_is_left_and_tells_of_the_rest(caplog):
    begin = {A: 3, B: 9, TopicPartition("u", 0): 4}
    until = {A: 9, B: 3, C: 5, TopicPartition("v", 0): 5}
    earliest = {A: 7, B: 0, C: 2}
    ranges, lost = planned(begin, until, earliest)
    assert ranges == [OffsetRange(A, 7, 9), OffsetRange(C, 2, 5)]
    losses = Losses(accepted=True)
    losses.take(lost)
    assert losses.count == 4 + 2 + 5
    (warning,) = caplog.messages
    for part in ("t-0 from 3 to 7", "t-1 (offset 9 wanted", "t-2 from 0 to 2", "lost: 11"):
        assert part in warning


def test_what_was_deleted_after_it_was_read_is_no_loss():
    want = [OffsetRange(B, 1, 2)]
    assert planned({A: 5, B: 1}, {A: 5, B: 2}, {A: 8, B: 0}) == (want, [])


def test_a_range_that_is_gone_as_a_whole_leaves_nothing_to_read():
    ranges, (lost,) = planned({A: 3}, {A: 5}, {A: 8})
    assert (ranges, lost.offsets) == ([], 2)
