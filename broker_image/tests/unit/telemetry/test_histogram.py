import pytest
from logfleet.telemetry.histogram import Histogram


def test_a_value_on_a_bound_belongs_below_it():
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.count == 5
    assert histogram.total == pytest.approx(6.6)


def test_sums_leave_what_they_are_made_of():
    one, other = Histogram((1.0,)), Histogram((1.0,))
    one.observe(0.5)
    other.observe(3)
    both = one.plus(other).with_zeros(2)
    assert (both.counts, both.total) == ([3, 1], 3.5)
    assert (one.count, other.count) == (1, 1)


def test_a_quantile_is_the_bound_that_so_much_does_not_exceed_and_since_then_counts_alone() -> None:
    values = Histogram((1.0, 2.0, 4.0))
    for value in (0.5,) * 98 + (3.0, 9.0):
        values.observe(value)
    assert [values.quantile(share) for share in (0.5, 0.98, 0.99, 1.0)] == [1.0, 1.0, 4.0, 4.0]
    earlier = Histogram((1.0, 2.0, 4.0)).plus(values)
    values.observe(1.5)
    assert (values.minus(earlier).count, values.minus(earlier).quantile(0.5)) == (1, 2.0)
