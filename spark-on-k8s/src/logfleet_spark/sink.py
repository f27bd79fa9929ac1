"""The write side of `logfleet`: rows become records, at least once, or exactly once if asked.

At least once: a task ends only when all in-sync replicas have acknowledged each of its records, so the brokers
hold every micro-batch that Spark has committed. One attempt writes no record twice, as the producer
is idempotent, but a task that Spark repeats writes its records again. Exactly once: a task hands its rows to the driver, which
writes those of all tasks when Spark commits the batch (exactly_once.py), so nothing of a task that
Spark repeats is in the topic. To write a stream in update
mode, use `foreachBatch`: Spark 4.2 does not offer that mode to sinks in Python.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logfleet_spark.exactly_once import VersionedBatch, app_id_of_checkpoint
from logfleet_spark.kept import kept_cluster
from logfleet_spark.options import SinkOptions
from logfleet_spark.rows import check_columns


@dataclass
class Written(WriterCommitMessage):
    """The number of records that a task wrote."""

    records: int


@dataclass
class Rows(WriterCommitMessage):
    """The rows of a task. data: a stream of Arrow's IPC format; empty without rows."""

    data: bytes
    count: int


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    """Write a task's rows, or only return them if the driver is to write them."""
    if options.exactly_once:
        return packed(batches)
    with kept_cluster(options.bootstrap, options.client) as cluster:
        return Written(cluster.write(batches, options.topic))


def packed(batches: Iterator[pa.RecordBatch]) -> Rows:
    """Return the rows in a compressed form."""
    out, count = pa.BufferOutputStream(), 0
    compressed = pa.ipc.IpcWriteOptions(compression="lz4")
    with contextlib.ExitStack() as stack:
        writer = None
        for batch in batches:
            if writer is None:
                new = pa.ipc.new_stream(out, batch.schema, options=compressed)
                writer = stack.enter_context(new)
            writer.write_batch(batch)
            count += batch.num_rows
    return Rows(out.getvalue().to_pybytes() if count else b"", count)


def commit_rows(
    options: SinkOptions,
    app_id: str | None,
    version: int | None,
    messages: Sequence[WriterCommitMessage | None],
) -> None:
    """Write the rows that tasks have returned, once. Raises VersionError."""
    rows = [each for each in messages if isinstance(each, Rows) and each.count]
    if not rows:
        return  # of a batch without rows nothing can be written twice
    assert app_id is not None, "the options of a write have it"
    assert version is not None, "so is the version of a batch"
    batch = VersionedBatch(app_id, version, sum(each.count for each in rows))
    with kept_cluster(options.bootstrap, options.client) as cluster:
        cluster.write_once(_unpacked(rows), options.topic, batch)


def _unpacked(rows: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    for each in rows:
        with pa.ipc.open_stream(each.data) as reader:
            yield from reader


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns: Mapping[str, str]) -> None:
        check_columns(columns, options.topic)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_rows(self.options, self.options.app_id, self.options.version, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """checkpoint: the folder whose query's id is the application's, unless the options have one."""

    def __init__(
        self, options: SinkOptions, columns: Mapping[str, str], checkpoint: str | None = None
    ) -> None:
        check_columns(columns, options.topic)
        self.options = options
        self.app_id = options.app_id
        if options.exactly_once and self.app_id is None:
            self.app_id = app_id_of_checkpoint(checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write the rows that tasks have returned; others are readable since they were acknowledged."""
        commit_rows(self.options, self.app_id, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo.

        A log is append-only, and the repeated batch writes its rows again. A transaction whose
        commit has failed ends with the next one of the application, or after its timeout.
        """
