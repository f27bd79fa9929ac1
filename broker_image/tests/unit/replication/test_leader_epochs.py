from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.replication.leader_epochs import EpochStart, LeaderEpochs
from logfleet.types import LeaderEpoch

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["assign", "end", "start"]), st.integers(0, 12), st.integers(0, 60)),
    max_size=25,
)


def epochs(*entries):
    return LeaderEpochs(tuple(EpochStart(epoch, start) for epoch, start in entries))


def pairs(cache):
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


@given(OPERATIONS)
def test_epochs_and_their_starts_always_ascend(operations):
    cache = LeaderEpochs()
    for operation, epoch, offset in operations:
        if operation == "assign":
            cache.assign(epoch, offset)
            assert cache.latest == epoch
        elif operation == "end":
            cache.truncate_end(offset)
            assert all(start < offset for _, start in pairs(cache))
        else:
            before = cache.epoch_of(offset)
            cache.truncate_start(offset)
            assert cache.epoch_of(offset) == before
            assert all(start >= offset for _, start in pairs(cache)[:1] if before >= 0)
        for one, next_one in pairwise(cache.entries):
            assert one.epoch < next_one.epoch
            assert one.start_offset < next_one.start_offset


@pytest.mark.parametrize(
    "asked, answer",
    [
        (-1, (-1, -1)),  # the asker does not know its epoch
        (1, (1, 10)),  # before the first: it ended where the first begins
        (2, (2, 20)),
        (3, (2, 20)),  # never existed: the one below it
        (5, (5, 30)),
        (6, (6, 99)),  # the present leader's: the log's end
        (7, (-1, -1)),  # not heard of yet
    ],
)
def test_the_end_of_an_epoch_is_what_offset_for_leader_epoch_answers(asked, answer):
    assert epochs((2, 10), (5, 20), (6, 30)).end_offset(asked, 99) == answer


@pytest.mark.parametrize(
    "asked, answer", [(1, (1, 10)), (3, (2, 20)), (6, (6, 99)), (7, (6, 99)), (2**31 - 1, (6, 99))]
)
def test_the_last_end_is_that_of_the_last_epoch_up_to_the_one_asked_for(asked, answer):
    assert epochs((2, 10), (5, 20), (6, 30)).last_end(asked, 99) == answer


def test_the_last_end_of_a_log_without_epochs_is_where_it_ends():
    assert LeaderEpochs().last_end(LeaderEpoch(2**31 - 1), 0) == (-1, 0)


def test_an_empty_cache_has_no_end():
    assert LeaderEpochs().end_offset(LeaderEpoch(3), 10) == (-1, -1)
    assert LeaderEpochs().latest == -1


def test_an_epoch_is_found_by_its_offsets():
    cache = epochs((2, 10), (5, 20))
    assert [cache.epoch_of(offset) for offset in (9, 10, 19, 20, 1000)] == [-1, 2, 2, 5, 5]


def test_a_new_leader_takes_the_place_of_epochs_that_contradict_it():
    cache = epochs((1, 0), (2, 10), (3, 20))
    cache.assign(4, 15)
    assert pairs(cache) == [(1, 0), (2, 10), (4, 15)]
    cache.assign(3, 12)
    assert pairs(cache) == [(1, 0), (2, 10), (3, 12)]


def test_a_batch_of_a_cached_epoch_changes_nothing():
    cache = epochs((1, 0), (2, 10), (3, 20))
    cache.observe(2, 15)
    assert pairs(cache) == [(1, 0), (2, 10), (3, 20)]
    cache.observe(4, 25)
    assert pairs(cache) == [(1, 0), (2, 10), (3, 20), (4, 25)]
    cache.observe(3, 26)
    assert pairs(cache) == [(1, 0), (2, 10), (3, 20)]


def test_a_repeated_epoch_changes_nothing():
    cache = epochs((1, 0), (2, 10))
    cache.assign(2, 15)
    cache.assign(-1, 20)
    cache.truncate_end(11)
    cache.truncate_start(0)
    assert pairs(cache) == [(1, 0), (2, 10)]


def test_truncation_at_both_ends():
    cache = epochs((1, 0), (2, 10), (3, 20), (4, 30))
    cache.truncate_end(30)
    assert pairs(cache) == [(1, 0), (2, 10), (3, 20)]
    cache.truncate_start(15)
    assert pairs(cache) == [(2, 15), (3, 20)]
    cache.truncate_start(500)
    assert pairs(cache) == [(3, 500)]
    cache.truncate_end(0)
    assert pairs(cache) == []
