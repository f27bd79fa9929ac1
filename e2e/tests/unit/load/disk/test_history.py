"""The checks of the soak find what they are there for."""

import pytest

from e2e.load.disk.history import (
    Found,
    History,
    Value,
    check_acknowledged,
    check_in_order,
    check_latest,
    check_not_less,
)

GOOD = [Found(offset, Value("ab"[offset % 2], offset // 2)) for offset in range(6)]


def test_a_whole_log_has_no_fault():
    assert check_in_order(GOOD, 0) == []
    assert check_in_order(GOOD[3:], 3) == []
    assert check_acknowledged(GOOD, {each.offset: each.value for each in GOOD}, 0) == []


@pytest.mark.parametrize(
    "found",
    [
        GOOD[:2] + GOOD[3:],  # a hole
        [*GOOD, Found(6, Value("a", 2))],  # twice
        [*GOOD, Found(6, Value("a", 4))],  # one is missing
        GOOD[1:],  # the first is gone
        [GOOD[0], GOOD[0]],
    ],
)
def test_a_hole_a_repetition_and_a_jump_are_found(found):
    assert check_in_order(found, 0)


def test_a_confirmed_record_that_is_gone_or_another_is_found():
    assert check_acknowledged(GOOD[:3], {3: Value("b", 1)}, 0)
    assert check_acknowledged(GOOD, {3: Value("b", 2)}, 0)
    assert check_acknowledged(GOOD[3:], {0: Value("a", 0)}, 3) == []


def keyed(*numbers):
    return [Found(offset, Value("a", number), "k") for offset, number in enumerate(numbers)]


NAME = ("a", "k")


@pytest.mark.parametrize(
    "numbers,confirmed,attempted",
    [((1, 2, 3), 3, 3), ((1, 3), 2, 3), ((), 7, 7), ((), 1, 21)],
)
def test_the_latest_value_of_a_key_is_there_unless_a_tombstone_took_it(
    numbers, confirmed, attempted
):
    assert check_latest(keyed(*numbers), {NAME: confirmed}, {NAME: attempted}) == []


@pytest.mark.parametrize(
    "numbers,confirmed,attempted",
    [((1, 2), 3, 3), ((2, 1), 1, 2), ((1, 1), 1, 1), ((), 3, 6), ((), 6, 8)],
)
def test_an_older_value_and_a_vanished_one_are_found(numbers, confirmed, attempted):
    assert check_latest(keyed(*numbers), {NAME: confirmed}, {NAME: attempted})


def test_what_goes_back_is_found():
    partition = ("t", 0)
    assert check_not_less("it", {partition: 3}, {partition: 3}) == []
    assert check_not_less("it", {partition: 2}, {partition: 3})
    assert check_not_less("it", {}, {partition: 3})
    history = History()
    history.raise_start(partition, 5)
    assert history.failures == []
    history.raise_start(partition, 4)
    assert len(history.failures) == 1
