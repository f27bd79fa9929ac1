"""Rows of a write as records."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from logfleet.records.record import Header

KEY, VALUE, TOPIC, PARTITION, HEADERS = "key", "value", "topic", "partition", "headers"
# Columns of a write with the types that Spark's Kafka sink takes; only `value` must be there
COLUMN_TYPES = {
    KEY: ("string", "binary"),
    VALUE: ("string", "binary"),
    TOPIC: ("string",),
    PARTITION: ("int",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
}


class RowError(ValueError):
    """A row that cannot become a record; the text names the column and what to do."""


Row = tuple[str, int | None, bytes | None, bytes | None, tuple[Header, ...]]


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Refuse a schema before any row is written. types: column -> Spark's name of its type."""
    unknown = [name for name in types if name not in COLUMN_TYPES]
    if VALUE not in types:
        raise RowError("column value: missing; rename or build the column that is to be the record")
    if unknown:
        raise RowError(f"columns {unknown}: not part of a record; select only {list(COLUMN_TYPES)}")
    for name, found in types.items():
        if found not in COLUMN_TYPES[name]:
            raise RowError(f"column {name}: {found}; cast it to {' or '.join(COLUMN_TYPES[name])}")
    if topic is None and TOPIC not in types:
        raise RowError("column topic: missing; add it or set the option topic")


def rows(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[Row]:
    """(topic, partition or None, key, value, headers) per row; the option `topic` wins over the column."""
    for batch in batches:
        columns = {
            name: _values(name, batch.column(index))
            for index, name in enumerate(batch.schema.names)
        }
        nothing = [None] * batch.num_rows
        for name, partition, key, value, headers in zip(
            columns.get(TOPIC, nothing),
            columns.get(PARTITION, nothing),
            columns.get(KEY, nothing),
            columns[VALUE],
            columns.get(HEADERS, nothing),
            strict=True,
        ):
            target = topic or name
            if not target:
                raise RowError(
                    "column topic: null; every row needs a topic without the option topic"
                )
            yield target, partition, key, value, tuple(map(_pair, headers or ()))


def _values(name: str, column: pa.Array) -> list[Any]:
    """The column in Python's types; keys and values as bytes, as they are: Spark's strings may hold what is no UTF-8."""
    return list((column.cast(pa.large_binary()) if name in {KEY, VALUE} else column).to_pylist())


def _pair(header: Mapping[str, Any] | None) -> Header:
    if header is None:
        raise RowError("column headers: null in the array; leave it out of it")
    if header["key"] is None:
        raise RowError("column headers: a header whose key is null; name it or leave it out")
    return header["key"], header["value"]
