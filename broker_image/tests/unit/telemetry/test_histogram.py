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
