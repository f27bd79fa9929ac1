import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.client import assignors
from logfleet.wire.errors import MalformedMessage


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


def test_members_read_each_others_bytes() -> None:
    assert assignors.read_subscription(assignors.write_subscription(["b", "a"])) == ["a", "b"]
    assignment = {"t": [0, 2], "u": [1]}
    assert assignors.read_assignment(assignors.write_assignment(assignment)) == assignment
    assert assignors.read_assignment(b"") == {}


def test_a_newer_member_is_read_as_the_newest_version_known() -> None:
    data = bytearray(assignors.write_subscription(["t"]))
    data[1] = (
        99  # fields of version 3 follow: owned partitions are there, generation and rack are not
    )
    data += b"\xff\xff\xff\xff" + b"\xff\xff" + b"what version 99 added"
    assert assignors.read_subscription(bytes(data)) == ["t"]


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\x09"])
def test_other_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        assignors.read_subscription(data)
