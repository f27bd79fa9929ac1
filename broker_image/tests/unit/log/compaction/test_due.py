from functools import partial

import pytest
from logfleet.log.compaction.due import (
    RETRY_S_MAX,
    RETRY_S_MIN,
    SEGMENTS_PER_GROUP_MAX,
    CleanableSegment,
    SegmentFiles,
    cleanable,
    group_segments,
    retry_pause_s,
)
from logfleet.log.config import LogConfig

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))
NOW = 100_000


def segments(*rows):
    """(base offset, size, first timestamp, largest timestamp) each; the last is the active one."""
    return [
        CleanableSegment(base, size, partial(int, first), partial(int, largest))
        for base, size, first, largest in rows
    ]


LOG = segments((0, 100, 1000, 2000), (10, 200, 3000, 4000), (20, 400, 5000, 6000), (30, 50, 0, 0))


def look(log=LOG, config=COMPACT, **changed):
    values = {
        "first_dirty": 0,
        "stable_end": 35,
        "log_start_offset": 0,
        "log_end_offset": 35,
        "now_ms": NOW,
        **changed,
    }
    return cleanable(log, config, **values)


def test_everything_below_the_active_segment_is_dirty_at_first():
    found = look()
    assert (found.first_dirty, found.first_uncleanable) == (0, 30)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (0, 700, 1.0)
    assert found.is_due(COMPACT)


def test_a_round_makes_the_mapped_part_clean():
    found = look(first_dirty=20)
    assert (found.clean_bytes, found.dirty_bytes) == (300, 400)
    assert found.dirty_ratio == pytest.approx(4 / 7)


def test_a_round_that_ended_within_a_segment_leaves_it_dirty():
    found = look(first_dirty=15)
    assert (found.first_dirty, found.clean_bytes, found.dirty_bytes) == (15, 300, 600)


@pytest.mark.parametrize("ratio, due", [(0.57, True), (0.58, False)])
def test_a_log_is_due_when_its_share_of_dirty_bytes_is_large_enough(ratio, due):
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=ratio)
    assert look(first_dirty=20).is_due(config) is due


@pytest.mark.parametrize("stable_end, first_uncleanable", [(30, 30), (29, 20), (20, 20), (5, 0)])
def test_a_segment_that_is_not_wholly_stable_is_left(stable_end, first_uncleanable):
    found = look(stable_end=stable_end)
    assert found.first_uncleanable == first_uncleanable
    assert found.is_due(COMPACT) is (first_uncleanable > 0)


@pytest.mark.parametrize("first_dirty", [4, 36])
def test_a_first_dirty_offset_outside_the_log_counts_as_its_start(first_dirty):
    assert look(first_dirty=first_dirty, log_start_offset=5).first_dirty == 5


def test_nothing_is_due_in_a_log_without_closed_segments():
    found = look(segments((0, 50, 1, 1)))
    assert (found.first_uncleanable, found.dirty_ratio, found.is_due(COMPACT)) == (0, 0.0, False)


@pytest.mark.parametrize(
    "lag, first_uncleanable", [(0, 30), (94_000, 30), (94_001, 20), (99_000, 0)]
)
def test_segments_with_a_young_record_and_all_behind_them_wait(lag, first_uncleanable):
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_compaction_lag_ms=lag)
    assert look(config=config).first_uncleanable == first_uncleanable


def test_a_clean_log_does_not_ask_for_timestamps():
    never = partial(pytest.fail, "asked")
    log = [CleanableSegment(0, 10, never, never), CleanableSegment(10, 10, never, never)]
    look(log, first_dirty=10)


@pytest.mark.parametrize("lag, overdue", [(100_000, 0), (99_000, 0), (98_999, 1), (95_000, 4000)])
def test_an_old_record_makes_a_log_due_whatever_the_ratio(lag, overdue):
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        max_compaction_lag_ms=lag,
        min_cleanable_dirty_ratio=1,
    )
    found = look(config=config)
    assert found.overdue_ms == overdue
    assert found.is_due(config) is (overdue > 0)
    assert look(config=config, first_dirty=30).overdue_ms == 0


def test_segments_without_timestamps_are_never_overdue():
    config = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1)
    assert look(segments((0, 9, -1, -1), (10, 0, 0, 0)), config).overdue_ms == 0


def group(*files, end_offset=10_000, segment_bytes=100, index_bytes=80):
    grouped = group_segments(
        [SegmentFiles(*each) for each in files],
        end_offset=end_offset,
        segment_bytes=segment_bytes,
        segment_index_bytes=index_bytes,
    )
    return [[segment.base_offset for segment in each] for each in grouped]


def test_neighbours_are_merged_up_to_the_size_of_a_segment():
    assert group((0, 60), (10, 40), (20, 1), (30, 200), (40, 5)) == [[0, 10], [20], [30], [40]]


def test_and_up_to_the_size_of_its_indexes():
    assert group((0, 1, 40), (10, 1, 40), (20, 1, 8)) == [[0, 10], [20]]
    assert group((0, 1, 0, 36), (10, 1, 0, 36), (20, 1, 0, 12)) == [[0, 10], [20]]


def test_and_as_far_as_an_index_entry_reaches():
    far = 2**31
    assert group((0, 1), (far - 1, 1), (far, 1), end_offset=far + 1) == [[0, far - 1], [far]]
    assert group((0, 1), (far - 1, 1), end_offset=far + 1) == [[0], [far - 1]]


def test_an_empty_segment_is_merged_however_far_it_reaches():
    assert group((0, 1), (10, 0), end_offset=2**40) == [[0, 10]]


def test_a_group_stays_small_enough_for_one_step():
    tiny = [(n, 0) for n in range(SEGMENTS_PER_GROUP_MAX + 1)]
    assert [len(each) for each in group(*tiny)] == [SEGMENTS_PER_GROUP_MAX, 1]


def test_no_segments_no_groups():
    assert group() == []


@pytest.mark.parametrize(
    "failures, backoff_s, pause_s",
    [
        (1, 15, 15),
        (2, 15, 30),
        (3, 15, 60),
        (7, 15, RETRY_S_MAX),
        (10**6, 15, RETRY_S_MAX),
        (2, 3600, 3600),
        (2, 0, 2 * RETRY_S_MIN),
        (10**6, 0, RETRY_S_MAX),
    ],
)
def test_a_log_that_could_not_be_compacted_is_tried_again_after_pauses_that_grow(
    failures, backoff_s, pause_s
):
    assert retry_pause_s(failures, backoff_s) == pause_s
