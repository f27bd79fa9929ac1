import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from logfleet.records.batch import HEADER_SIZE
from logfleet.records.columns import encode_values, read_columns
from logfleet.records.errors import RecordsError
from logfleet.records.record import Record, build_batch, read_payload, read_records

NOW = 1_700_000_000_000
DATA = st.binary(max_size=3) | st.binary(min_size=50, max_size=140)
RECORDS = st.lists(
    st.builds(Record, st.none() | DATA, st.none() | DATA, st.integers(NOW - 10**9, NOW + 10**9)),
    min_size=1,
    max_size=100,
)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3)


@given(RECORDS)
def test_columns_are_what_reading_the_records_gives(records: list[Record]) -> None:
    header, payload = read_payload(build_batch(records))
    columns = read_columns(payload, header.record_count)
    assert columns is not None
    assert columns.keys == [record.key for record in records]
    assert columns.values == [record.value for record in records]


@given(RECORDS, st.data())
def test_of_changed_bytes_columns_are_what_reading_gives_or_none(
    records: list[Record], data: st.DataObject
) -> None:
    batch = build_batch(records[:3])
    place = data.draw(st.integers(HEADER_SIZE, min(len(batch), 400) - 1))
    batch[place] = data.draw(st.integers(0, 255))
    columns = read_columns(bytes(batch[HEADER_SIZE:]), len(records[:3]))
    if columns is not None:
        read = list(read_records(batch))  # raises nothing that columns accepted
        assert columns.keys == [record.key for record in read]
        assert columns.values == [record.value for record in read]


@pytest.mark.parametrize("length", range(1, 12))
def test_a_varint_of_any_length_is_read_or_left_to_who_can_refuse_it(length: int) -> None:
    varint = b"\x80" * (length - 1) + b"\0"
    for fields in (varint + b"\0", b"\0" + varint):
        body = b"\0" + fields + b"\1" + b"\2v" + b"\0"
        batch = build_batch([Record(None, b"", 0)])[:HEADER_SIZE] + bytes([2 * len(body)]) + body
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        columns = read_columns(bytes(batch[HEADER_SIZE:]), 1)
        try:
            expected = [record.value for record in read_records(batch)]
        except RecordsError:
            assert columns is None
        else:
            assert columns is not None
            assert columns.values == expected


@pytest.mark.parametrize(
    "payload",
    [
        build_batch([Record(b"k", b"v", 0, (("name", b"x"),))])[HEADER_SIZE:],
        b"\x0c\0\0\0\1\1\0\0",  # a byte too many
        b"\x0c\0\0\0\1\1",  # ends early
        b"\x0b\0\0\0\1\1\0",  # a negative length
        b"\x0c\0\0\0\3\1\0",  # a key of -2 bytes
        b"\x0c\0\0\0\1\3\0",  # a value of -2 bytes
        b"\x0c\0\0\0\1\1\0" * 2,  # more than the header counts
        b"",
    ],
)
def test_what_is_not_usual_is_left_to_reading(payload: bytes) -> None:
    assert read_columns(bytes(payload), 1) is None


@given(
    st.lists(DATA, min_size=1, max_size=100),
    st.none() | DATA,
    HEADERS,
    st.integers(0, 10**6),
    st.integers(0, 100),
)
@example([b"a" * 9000] * 3, b"k" * 9000, [], 0, 8000)
def test_values_are_encoded_byte_for_byte_as_records_are(
    values: list[bytes],
    key: bytes | None,
    headers: list[tuple[str, bytes | None]],
    delta: int,
    first: int,
) -> None:
    before = [Record(None, b"", NOW)] * max(first, 1)
    records = [Record(key, value, NOW + delta, tuple(headers)) for value in values]
    expected = build_batch(before + records)[HEADER_SIZE:]
    found = encode_values(before_values := [b""] * len(before)) + encode_values(
        values, key=key, headers=headers, timestamp_delta=delta, first_delta=len(before_values)
    )
    assert found == bytes(expected)


def test_no_values_are_no_bytes() -> None:
    assert encode_values([], key=b"k") == b""
