import random

import pytest
from logfleet.log.compaction.offset_map import ENTRY_BYTES, OffsetMap

SALT = bytes(range(16))


def a_map(slots, load_factor=0.9):
    return OffsetMap(slots * ENTRY_BYTES, load_factor=load_factor, salt=SALT)


def test_it_has_the_newest_offset_of_each_key():
    offsets, expected, dice = a_map(2000), {}, random.Random(1)
    for offset in range(5000):
        key = b"%d" % dice.randrange(1500)
        assert offsets.put(key, offset)
        expected[key] = offset
    assert {key: offsets.get(key) for key in expected} == expected
    assert len(offsets) == len(expected)
    assert offsets.get(b"never") == -1


def test_a_full_map_takes_nothing_more_and_forgets_nothing():
    offsets = a_map(10)
    taken = [n for n in range(100) if offsets.put(b"%d" % n, n)]
    assert taken == list(range(9))
    assert offsets.capacity == len(offsets) == 9
    assert not offsets.put(b"0", 100)
    assert [offsets.get(b"%d" % n) for n in range(12)] == [*range(9), -1, -1, -1]


def test_the_smallest_map_takes_one_key():
    offsets = OffsetMap(0, load_factor=0.9, salt=SALT)
    assert offsets.put(b"", 5)
    assert not offsets.put(b"x", 6)
    assert offsets.get(b"") == 5


def test_keys_that_meet_go_around_the_end_of_the_table():
    offsets = a_map(4, load_factor=0.99)
    for n in range(3):
        assert offsets.put(b"%d" % n, n)
    assert [offsets.get(b"%d" % n) for n in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("load_factor", [1.0, 2.0])
def test_a_search_ends_in_a_full_map_whatever_the_load_factor(load_factor):
    offsets = a_map(4, load_factor=load_factor)
    assert [offsets.put(b"%d" % n, n) for n in range(4)] == [True, True, True, False]
    assert offsets.get(b"absent") == -1
