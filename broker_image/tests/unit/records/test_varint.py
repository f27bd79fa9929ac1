import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import encode_varint
from logfleet.records.errors import CorruptRecords
from logfleet.records.varint import append_varint, read_varint

INT64 = st.integers(-(2**63), 2**63 - 1)


def encoded(value: int) -> bytes:
    target = bytearray()
    append_varint(target, value)
    return bytes(target)


@given(INT64, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_survives_a_round_trip_anywhere_in_a_buffer(value, before, after):
    buffer = before + encoded(value) + after
    assert read_varint(buffer, len(before)) == (value, len(buffer) - len(after))


@given(INT64)
def test_varints_are_those_of_kafka_python(value):
    theirs = bytearray()
    encode_varint(value, theirs.append)
    assert encoded(value) == bytes(theirs)


@pytest.mark.parametrize(
    "value, size",
    [(0, 1), (-64, 1), (63, 1), (64, 2), (-65, 2), (2**63 - 1, 10), (-(2**63), 10)],
)
def test_small_numbers_of_either_sign_are_short(value, size):
    assert len(encoded(value)) == size


def test_a_varint_cut_short_is_an_index_error():
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)


@pytest.mark.parametrize("hostile", [b"\xff" * 11, b"\xff" * 9 + b"\x7f"])
def test_a_varint_beyond_64_bits_is_corrupt(hostile):
    with pytest.raises(CorruptRecords):
        read_varint(hostile, 0)
