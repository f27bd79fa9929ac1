import pyarrow as pa
import pytest
from logfleet_spark.decoding import HEADER_TYPE
from logfleet_spark.rows import RowError, columns_of

BYTES = [b"\xff", "é".encode(), None, b""]
SMALL, LARGE = pa.array(BYTES, pa.binary()), pa.array(BYTES, pa.large_binary())


@pytest.mark.parametrize(
    "column",
    [SMALL, LARGE, SMALL.view(pa.string()), LARGE.view(pa.large_string())],
    ids=lambda column: str(column.type),
)
def test_keys_and_values_are_the_bytes_of_their_columns(column):
    """Also of a string that is no UTF-8, which Spark does not look at."""
    batch = pa.record_batch([column, column], names=["key", "value"])
    ((topic, columns),) = columns_of(batch, "t")
    assert topic == "t"
    assert columns.key.to_pylist() == columns.value.to_pylist() == BYTES


@pytest.mark.parametrize(
    "header, why",
    [
        (None, "an element of the array is null"),
        ({"key": None, "value": b"v"}, "a header whose key is null"),
    ],
)
def test_a_header_that_is_null_or_has_no_key_is_refused_by_name(header, why):
    headers = pa.array([[{"key": "h", "value": b"v"}, header]], HEADER_TYPE)
    batch = pa.record_batch([pa.array([b"v"]), headers], names=["value", "headers"])
    with pytest.raises(RowError, match=f"column headers: {why}"):
        list(columns_of(batch, "t"))


def test_rows_are_told_apart_by_the_topics_that_they_name():
    batch = pa.record_batch([pa.array([*"abab"]), pa.array([*"1234"])], names=["topic", "value"])
    found = {topic: columns.value.to_pylist() for topic, columns in columns_of(batch, None)}
    assert found == {"a": [b"1", b"3"], "b": [b"2", b"4"]}
