"""The write side of `logfleet`: rows become records, at least once.

A task ends only when all in-sync replicas have acknowledged each of its records, so the brokers
hold every micro-batch that Spark has committed. One attempt writes no record twice, as the producer
is idempotent, but a task that Spark repeats writes its records again. To write a stream in update
mode, use `foreachBatch`: Spark 4.2 does not offer that mode to sinks in Python.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logfleet_spark.kept import kept_cluster
from logfleet_spark.options import SinkOptions
from logfleet_spark.rows import check_columns


@dataclass
class Written(WriterCommitMessage):
    """The number of records that a task wrote."""

    records: int


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    with kept_cluster(options.bootstrap, options.client) as cluster:
        return Written(cluster.write(batches, options.topic))


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns: Mapping[str, str]) -> None:
        check_columns(columns, options.topic)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self.options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns: Mapping[str, str]) -> None:
        check_columns(columns, options.topic)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: records are readable as soon as they are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: a log is append-only, and the repeated batch writes its rows again."""
