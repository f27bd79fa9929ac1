import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.coordinators.partition import java_string_hash, partition_for


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer", -648_006_740),
        ("polygenelubricants", -(2**31)),
        ("grüppe", -1_233_264_812),
        ("\U0001f600", 1_772_899),
    ],
)
def test_the_hash_is_javas(text, expected):
    assert java_string_hash(text) == expected


def test_the_one_hash_without_a_positive_twin_goes_to_partition_0():
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_partition_in_range(group_id, partitions):
    assert 0 <= partition_for(group_id, partitions) < partitions
