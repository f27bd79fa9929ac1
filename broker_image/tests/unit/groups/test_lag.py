import pytest
from logfleet.groups.lag import lag


@pytest.mark.parametrize(
    "end_offset,committed,expected",
    [(10, 4, 6), (10, 10, 0), (10, 12, -2), (None, 4, None), (10, None, None), (None, None, None)],
)
def test_lag_is_what_is_between_the_commit_and_the_end(end_offset, committed, expected):
    assert lag(end_offset, committed) == expected
