"""Checks the rows of a write and cuts them into columns by topic. PURE."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logfleet_spark.encoding import header_bytes

KEY, VALUE, TOPIC, PARTITION, HEADERS = "key", "value", "topic", "partition", "headers"
# Columns of a write with the types that Spark's Kafka sink accepts; only `value` is required
COLUMN_TYPES = {
    KEY: ("string", "binary"),
    VALUE: ("string", "binary"),
    TOPIC: ("string",),
    PARTITION: ("int",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
}


class RowError(ValueError):
    """A row cannot become a record; the text names the column and what to do."""


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Refuse a schema before any row is written. Raises RowError.

    types: column -> Spark's name of its type. Columns that a record does not have are ignored.
    """
    if VALUE not in types:
        raise RowError("column value: missing; rename or build the column that is to be the record")
    for name, found in types.items():
        if name in COLUMN_TYPES and found not in COLUMN_TYPES[name]:
            raise RowError(f"column {name}: {found}; cast it to {' or '.join(COLUMN_TYPES[name])}")
    if topic is None and TOPIC not in types:
        raise RowError("column topic: missing; add it or set the option topic")


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the rows that go to one topic.

    key, value: large_binary. partition: int, or None if the rows name none. headers: encoded as in
    a record, or None.
    """

    key: pa.Array
    value: pa.Array
    partition: pa.Array | None
    headers: pa.Array | None

    def slice(self, start: int, count: int | None = None) -> "Columns":
        return self._each(lambda column: column.slice(start, count))

    def take(self, rows: npt.NDArray[np.int64]) -> "Columns":
        wanted = pa.array(rows)
        return self._each(lambda column: column.take(wanted))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> "Columns":
        partition = None if self.partition is None else change(self.partition)
        headers = None if self.headers is None else change(self.headers)
        return Columns(change(self.key), change(self.value), partition, headers)


def columns_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Columns]]:
    """Yield (topic, its rows in their order). The option `topic` wins over the column.

    Keys and values are the bytes of their columns, whether or not they are valid UTF-8. Raises
    RowError.
    """
    if not batch.num_rows:
        return
    if topic is not None:
        yield topic, _columns(batch)
        return
    names = batch.column(TOPIC).dictionary_encode()
    if names.null_count or "" in names.dictionary.to_pylist():
        raise RowError("column topic: null; name a topic in every row, or set the option topic")
    if len(names.dictionary) == 1:
        yield names.dictionary[0].as_py(), _columns(batch)
        return
    for number, name in enumerate(names.dictionary.to_pylist()):
        yield name, _columns(batch.filter(pc.equal(names.indices, number)))


def _columns(batch: pa.RecordBatch) -> Columns:
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    nothing = pa.nulls(batch.num_rows, pa.large_binary())
    headers = given.get(HEADERS)
    return Columns(
        given.get(KEY, nothing).cast(pa.large_binary()),
        given[VALUE].cast(pa.large_binary()),
        given.get(PARTITION),
        None if headers is None else _header_bytes(headers),
    )


def _header_bytes(headers: pa.Array) -> pa.Array:
    each = headers.flatten()
    if each.null_count:
        raise RowError("column headers: an element of the array is null; leave it out")
    if each.field("key").null_count:
        raise RowError("column headers: a header whose key is null; name it or leave it out")
    return header_bytes(headers)
