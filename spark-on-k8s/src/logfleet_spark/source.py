"""The Python data source `logfleet`: topics as DataFrames without any jar, for batch and streaming.

Columns and options are those of Spark's Kafka source (see options.py). The checkpoint holds the
offsets. If `kafka.group.id` is set, they are also committed to that group, so that monitoring can
show the query's lag like any consumer's.
"""

import logging
from collections.abc import Iterable, Mapping, MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from logfleet_spark.batch_reader import BatchReader, FilteringReader
from logfleet_spark.client_options import OptionError
from logfleet_spark.options import (
    CHECKPOINT,
    COLUMNS,
    SinkOptions,
    batch_sink_options,
    check_read,
    read_columns,
    source_options,
    stream_sink_options,
)
from logfleet_spark.stream_reader import RefusedStream, StreamReader

log = logging.getLogger(__name__)


class LogfleetSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "logfleet"

    def schema(self) -> str:
        """Return the columns. Raises OptionError, as Spark calls this at `load()`.

        At that time it is not known whether the read is a stream.
        """
        check_read(self._given)
        return _columns(self._given)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self._given, streaming=False)
        _check_schema(schema, self._given)
        _log_unused(options.unused)
        return FilteringReader(options) if options.filter_pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = source_options(self._given, streaming=True)
            _check_schema(schema, self._given)
        except OptionError as problem:
            return RefusedStream(problem)
        _log_unused(options.unused)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 (Spark's signature)
        if overwrite:
            raise OptionError("mode overwrite: a topic can only be appended to; use mode append")
        from logfleet_spark.sink import BatchWriter

        return BatchWriter(_logged(batch_sink_options(self._given)), _types(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001
        if overwrite:
            raise OptionError("output mode complete: a topic can only be appended to")
        from logfleet_spark.sink import StreamWriter

        options = _logged(stream_sink_options(self._given))
        return StreamWriter(options, _types(schema), self._given.get(CHECKPOINT))

    @property
    def _given(self) -> MutableMapping[str, str]:
        return self.options


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _columns(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {COLUMNS[name]}" for name in read_columns(given))


def _check_schema(schema: StructType, given: Mapping[str, str]) -> None:
    """Raise OptionError if the user gave a schema that differs from the topic's.

    Spark passes on the user's schema unchecked, and asks for ours only where the user gave none.
    """
    found = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    wanted = _columns(given)
    if found.replace(" ", "").lower() != wanted.replace(" ", "").lower():
        raise OptionError(
            f"schema: a topic's columns are {wanted}; leave .schema(...) out and select from these"
        )


def _logged(options: SinkOptions) -> SinkOptions:
    _log_unused(options.unused)
    return options


def _log_unused(unused: Iterable[str]) -> None:
    for sentence in unused:
        log.warning("%s", sentence)
