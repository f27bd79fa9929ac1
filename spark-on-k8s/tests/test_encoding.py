"""Columns at once against the builder of single records, `logfleet.records`, as the oracle."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.client.partitioner import murmur2 as murmur2_of_one
from logfleet.client.partitioner import partition_of_key
from logfleet.records.batch import HEADER_SIZE
from logfleet.records.record import Record, batch_of, build_batch
from logfleet_spark.decoding import HEADER_TYPE
from logfleet_spark.encoding import (
    batch_starts,
    buffers_of,
    encoded,
    header_bytes,
    murmur2,
    partitions_of_keys,
    record_sizes,
)

KEYS = st.binary(max_size=20) | st.binary(min_size=125, max_size=131)
CELLS = (
    st.none() | st.binary(max_size=4) | st.sampled_from([b"x" * n for n in (63, 64, 8190, 8200)])
)
HEADERS = st.lists(st.tuples(st.text(max_size=3), CELLS), max_size=3)


def column(cells):
    return pa.array(cells, pa.large_binary())


@given(st.lists(KEYS), st.integers(1, 1000), st.integers(0, 3))
def test_keys_have_the_places_that_they_have_one_by_one(keys, partitions, skipped):
    cells = column(keys)[skipped:]
    keys = keys[skipped:]
    assert murmur2(cells).tolist() == [murmur2_of_one(key) for key in keys]
    want = [partition_of_key(key, partitions) for key in keys]
    assert partitions_of_keys(cells, partitions).tolist() == want


def listed(headers):
    return pa.array(
        [row and [{"key": k, "value": v} for k, v in row] for row in headers], HEADER_TYPE
    )


@given(
    st.lists(st.tuples(CELLS, CELLS, st.none() | HEADERS), min_size=1, max_size=5),
    st.integers(0, 2),
    st.booleans(),
)
def test_records_are_encoded_as_they_are_one_by_one(rows, skipped, with_headers):
    keys, values, headers = zip(*rows, strict=True)
    block = header_bytes(listed(headers)[skipped:]) if with_headers else None
    rows = rows[skipped:]
    if not rows:
        return
    deltas = np.arange(len(rows), dtype=np.int64)
    key, value = column(keys)[skipped:], column(values)[skipped:]
    found = encoded(key, value, block, deltas)
    records = [Record(k, v, 77, tuple((h or ()) if with_headers else ())) for k, v, h in rows]
    want = bytes(build_batch(records))
    offsets, data = buffers_of(found)
    payload = data[offsets[0] : offsets[-1]].tobytes()
    assert payload == want[HEADER_SIZE:]
    assert bytes(batch_of(payload, len(rows), 77, 77)) == want
    assert (record_sizes(key, value, block) >= np.diff(offsets)).all()


def test_headers_of_lists_with_gaps_between_them_are_each_rows_own():
    """Bytes below a null list, and lists that a slice left out."""
    whole = listed([[("a", b"1")], [("b", b"2"), ("c", None)], [("d", b"4")], []])
    masked = pa.ListArray.from_arrays(
        whole.offsets, whole.values, mask=pa.array([False, True, False, False])
    )
    want = header_bytes(listed([[("a", b"1")], None, [("d", b"4")], []])).to_pylist()
    assert header_bytes(masked.cast(HEADER_TYPE)).to_pylist() == want
    assert header_bytes(whole[2:]).to_pylist() == want[2:]


@pytest.mark.parametrize(
    "sizes, starts",
    [
        ([], []),
        ([5], [0]),
        ([5, 5, 5], [0, 2]),
        ([50, 1, 50, 9, 1, 1], [0, 1, 2, 3, 5]),
        ([11], [0]),
    ],
)
def test_batches_hold_as_many_records_as_have_room(sizes, starts):
    assert batch_starts(np.array(sizes, np.int64), 10) == starts
