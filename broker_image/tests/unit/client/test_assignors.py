from hypothesis import given
from hypothesis import strategies as st
from logfleet.client import assignors


def test_ranges_are_those_of_kafkas_range_assignor() -> None:
    subscriptions = {"c1": ["t", "u"], "c2": ["t"], "c3": ["t", "gone"]}
    assert assignors.assign_ranges(subscriptions, {"t": 7, "u": 2, "v": 3}) == {
        "c1": {"t": [0, 1, 2], "u": [0, 1]},
        "c2": {"t": [3, 4]},
        "c3": {"t": [5, 6]},
    }


@given(st.integers(1, 5), st.integers(0, 20))
def test_every_partition_has_one_reader_and_shares_are_even(members: int, partitions: int) -> None:
    subscriptions = {str(number): ["t"] for number in range(members)}
    assigned = assignors.assign_ranges(subscriptions, {"t": partitions})
    shares = [assignment.get("t", []) for assignment in assigned.values()]
    assert sorted(index for share in shares for index in share) == list(range(partitions))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
