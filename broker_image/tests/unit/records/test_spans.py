import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.records.batch import HEADER_SIZE
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import Record, build_batch, read_records
from logfleet.records.spans import record_spans

NOW = 1_700_000_000_000
RECORDS = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=9000),
        st.integers(NOW - 10**9, NOW + 10**9),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70))).map(tuple),
    ),
    min_size=1,
    max_size=100,
)


@given(RECORDS)
def test_spans_are_what_reading_the_records_gives(records):
    batch = build_batch(records, base_offset=7)
    payload = bytes(batch[HEADER_SIZE:])
    spans = list(record_spans(payload))
    assert spans[0][0] == 0
    assert spans[-1][1] == len(payload)
    assert all(end == following[0] for (_, end, *_), following in itertools.pairwise(spans))
    for record, (_, _, timestamp, offset, key, has_value) in zip(
        read_records(batch), spans, strict=True
    ):
        assert record.key == key
        assert (record.value is not None) == has_value
        assert record.offset == 7 + offset
        assert record.timestamp == records[0].timestamp + timestamp


@given(RECORDS, st.data())
def test_damaged_records_are_refused_or_read_within_their_bounds(records, data):
    payload = bytearray(build_batch(records)[HEADER_SIZE:])
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    payload = payload[: data.draw(st.integers(0, len(payload)))]
    try:
        spans = list(record_spans(bytes(payload)))
    except CorruptRecords:
        return
    assert all(0 <= start < end <= len(payload) for start, end, *_ in spans)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",  # no fields at all
        b"\x01",  # of length -1
        b"\x10\x00\x00\x00\x01\x01",  # longer than what there is
        b"\x08\x00\x00\x00\x01\x01\x00\x00",  # no room for the count of headers
        b"\x0e\x00\x00\x00\x01\x14a\x00",  # a value beyond the record
    ],
)
def test_a_record_that_does_not_hold_its_fields_is_corrupt(payload):
    with pytest.raises(CorruptRecords):
        list(record_spans(payload))
