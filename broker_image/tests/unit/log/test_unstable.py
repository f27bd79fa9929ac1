from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.unstable import Unstable


def test_without_transactions_nothing_is_unstable():
    unstable = Unstable()
    assert not unstable
    assert unstable.first(100) is None


def test_an_open_transaction_is_unstable_however_far_the_log_is_replicated():
    unstable = Unstable([(7, 1)])
    assert unstable
    assert unstable.first(1_000) == 7


def test_a_transaction_is_unstable_until_its_marker_is_replicated():
    unstable = Unstable()
    unstable.begun(3, 1)
    assert unstable.ended(3, 5) == 6
    assert unstable.first(5) == 3
    assert unstable.first(6) is None
    assert not unstable


def test_the_lso_at_a_marker_is_the_first_offset_of_another_open_transaction():
    unstable = Unstable([(1, 1), (9, 3), (4, 2)])
    assert unstable.ended(4, 12) == 1
    assert unstable.ended(1, 13) == 9
    assert unstable.first(13) == 1
    assert unstable.first(14) == 9
    assert unstable.ended(9, 20) == 21


def test_transactions_that_end_behind_an_open_one_are_forgotten():
    unstable = Unstable([(0, 1)])
    for number in range(10_000):
        unstable.begun(2 * number + 1, 2)
        assert unstable.ended(2 * number + 1, 2 * number + 2) == 0
        assert unstable.first(2 * number + 3) == 0
    assert len(unstable.queue) < 200
    assert len(unstable._open) < 200
    assert unstable.ended(0, 20_001) == 20_002
    assert unstable.first(20_002) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 9)), max_size=300))
def test_it_is_the_minimum_of_all_that_are_unstable(steps):
    unstable = Unstable()
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for offset, (begins, producer, lag) in enumerate(steps):
        if begins and producer not in opened:
            unstable.begun(offset, producer)
            opened[producer] = offset
        elif not begins and producer in opened:
            first = opened.pop(producer)
            assert unstable.ended(first, offset) == min(opened.values(), default=offset + 1)
            ended.append((first, offset))
        high_watermark = max(high_watermark, offset + 1 - lag)
        expected = [*opened.values(), *(f for f, marker in ended if marker >= high_watermark)]
        assert unstable.first(high_watermark) == min(expected, default=None)
        assert bool(unstable) == bool(expected)
        assert unstable.oldest == min(opened, key=opened.__getitem__, default=None)
