"""The job `window_counts`: the events of a topic per window and group, to a console, a folder, a topic or a database.

Events are rows of the record's own columns and the JSON fields (see records.py). Rows without an event time are not counted: Spark
would put them all into one window named NULL. What cannot be read is counted as dead letters, and kept where `--rejected` says.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name that Spark's documentation uses)
from pyspark.sql.streaming.query import StreamingQuery

from logfleet_spark.jobs import tables
from logfleet_spark.jobs.jdbc import Database, add_jdbc, check_jdbc, database_of
from logfleet_spark.jobs.records import (
    DAY,
    ERROR,
    read_values,
    rejected,
    send,
    stream,
)
from logfleet_spark.jobs.running import Job, WriteBatch, program
from logfleet_spark.jobs.settings import Parser, add_cluster, add_sink, add_stream, refuse_same
from logfleet_spark.jobs.tables import LatestTable, beside

NAME = "window_counts"
QUERY = "window_counts"
NOWHERE = "none"


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """What to count.

    fields: DDL of the JSON fields to read, "" for none. group_by: a column to count by, None for one count per window.
    event_time: a TIMESTAMP column. window, slide, watermark: Spark intervals ("1 hour"); slide None means tumbling.
    where: a SQL condition over the columns, None for all rows.
    """

    fields: str
    event_time: str
    window: str
    watermark: str
    group_by: str | None = None
    slide: str | None = None
    where: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that tell one count from another."""
        return ("window_start", "window_end", *([self.group_by] if self.group_by else []))


def counted(events: DataFrame, job: WindowCounts) -> DataFrame:
    """One row per window and group: window_start, window_end, the group's column, count. Rows with an ERROR are passed over."""
    rows = events.where(F.col(ERROR).isNull())
    rows = rows.where(job.where) if job.where else rows
    timed = rows.where(F.col(job.event_time).isNotNull()).withWatermark(
        job.event_time, job.watermark
    )
    groups: list[Column] = [F.window(job.event_time, job.window, job.slide).alias("window")]
    if job.group_by:
        groups.append(F.col(job.group_by))
    named = [F.col(job.group_by)] if job.group_by else []
    return (
        timed.groupBy(*groups)
        .count()
        .select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            *named,
            F.col("count"),
        )
    )


def as_records(counts: DataFrame, group_by: str | None) -> DataFrame:
    """Counts as records for a topic: key = window start and group, value = the row as JSON."""
    parts = [F.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss")]
    if group_by:
        parts.append(F.col(group_by).cast("string"))
    return counts.select(
        F.concat_ws("/", *parts).alias("key"),
        F.to_json(F.struct(*counts.columns)).alias("value"),
    )


def write_records(found: argparse.Namespace, counts: DataFrame, _batch_id: int) -> None:
    """Write one micro-batch to a topic; a batch that Spark repeats is written again.

    Batch by batch: Spark gives update mode to no streaming sink that is written in Python.
    """
    send(as_records(counts, found.group_by), found, found.output)


def write_table(
    table: LatestTable | tables.ParquetExport, counts: DataFrame, batch_id: int
) -> None:
    """Write one micro-batch to a table by day."""
    table.write(counts.withColumn(DAY, F.to_date("window_start")), batch_id)


def show(counts: DataFrame, batch_id: int) -> None:
    """Write one micro-batch to the console."""
    sys.stdout.write(f"batch {batch_id}\n")
    counts.show(truncate=False)


def write_upsert(database: Database, keys: Sequence[str], counts: DataFrame, batch_id: int) -> None:
    database.upsert(counts, keys, batch_id)


def parser() -> Parser:
    parser = Parser(NAME, "Count the events of a topic per window.")
    add = parser.add_argument
    add_cluster(parser)
    add("--topic", required=True, help="topic to read")
    add(
        "--fields",
        default="",
        help="JSON fields of the value, as DDL; left out, values are not read",
    )
    add(
        "--event-time",
        required=True,
        help="TIMESTAMP field, or `timestamp`: the time of the record itself",
    )
    add("--group-by", help="field or `key` to count by")
    add("--where", help="SQL condition that rows must meet")
    add("--window", default="1 hour")
    add("--slide", help="default: the window's length")
    add("--watermark", default="24 hours", help="how late a row may come")
    add("--output-mode", choices=["append", "update"], default="update")
    add("--sink", choices=["console", "delta", "parquet", "topic", "jdbc"], default="console")
    add("--output", help="folder of the table (path or URL), topic or database table")
    add(
        "--rejected",
        help="folder of a table of the records that are not JSON of these fields, or `none`; default: with the delta and parquet "
        "sinks OUTPUT-rejected, else none. They are counted either way",
    )
    add_sink(parser)
    add_stream(parser)
    add_jdbc(parser)
    return parser


def settings(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The settings of an invocation, `rejected` a folder or None. Ends the process with a sentence if one is wrong."""
    asking = parser()
    found = asking.settings(argv)
    if found.sink != "console" and not found.output:
        asking.error(f"--sink {found.sink} needs --output")
    if found.sink == "parquet" and found.output_mode == "update":
        asking.error(
            "--sink parquet is append-only: write --sink delta, or --output-mode append for closed windows"
        )
    check_jdbc(asking, found)
    if found.rejected is None and found.sink in tables.FORMATS and found.fields:
        found.rejected = beside(found.output, "rejected")
    if found.rejected == NOWHERE:
        found.rejected = None
    if found.rejected and not found.fields:
        asking.error("--rejected needs --fields: without fields values are not read")
    refuse_same(asking, found, ("--output", "--rejected", "--checkpoint"))
    return found


def sink_of(found: argparse.Namespace, job: WindowCounts) -> WriteBatch:
    match found.sink:
        case "console":
            return show
        case "topic":
            return partial(write_records, found)
        case "jdbc":
            return partial(write_upsert, database_of(found), job.keys)
        case "parquet":
            return partial(write_table, tables.ParquetExport(found.output, found.checkpoint))
        case _:
            return partial(write_table, LatestTable(found.output, job.keys, found.checkpoint))


def format_of(found: argparse.Namespace) -> str | None:
    """Format of the tables that the job writes; None if it writes none."""
    if found.sink in tables.FORMATS:
        return str(found.sink)
    return "delta" if found.rejected else None


def start(job: Job, found: argparse.Namespace) -> list[StreamingQuery]:
    """Start the queries that the settings describe: the counts and, if they are to be kept, the records that could not be read."""
    what = WindowCounts(
        fields=found.fields,
        event_time=found.event_time,
        window=found.window,
        watermark=found.watermark,
        group_by=found.group_by,
        slide=found.slide,
        where=found.where,
    )
    if format_of(found) == "delta":
        tables.check_delta(job.spark, found.output or found.rejected)
    events = read_values(stream(job.spark, found, found.topic), found.fields)
    seen = events.observe("values", F.count(ERROR).alias("dead_letters"))
    job.watch(QUERY)
    counts = counted(seen, what).writeStream.outputMode(found.output_mode)
    queries = [
        job.start(
            counts,
            sink_of(found, what),
            name=QUERY,
            checkpoint=found.checkpoint,
            trigger=found.trigger,
        )
    ]
    if found.rejected:
        queries.append(
            job.start(
                rejected(events).writeStream,
                tables.table(
                    format_of(found) or "", found.rejected, beside(found.checkpoint, "rejected")
                ).write,
                name="rejected",
                checkpoint=beside(found.checkpoint, "rejected"),
                trigger=found.trigger,
            )
        )
    return queries


def main(argv: Sequence[str] | None = None) -> None:
    found = settings(argv)
    more = tables.session_settings(format_of(found))
    program(NAME, vars(found), lambda job: job.run(start(job, found)), more)
