"""The job `topic_to_table`: a topic as a table partitioned by day; as a stream, up to now, or a backfill between two bounds.

Each record is one row, with its topic, partition and offset: these tell rows apart. A stream writes each micro-batch once, whatever was
killed when (tables.py; Delta's txnAppId and txnVersion). A backfill adds only rows that the table has not: run again, or over what a stream has
written, it adds nothing twice. Two writers at once would not see each other's rows: stop the stream while a backfill runs.
"""

import argparse
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from logfleet_spark.jobs.expressions import SettingError, expression, quoted
from logfleet_spark.jobs.folders import Folders, beside
from logfleet_spark.jobs.records import (
    DAY,
    ERROR,
    RECORD,
    batch,
    fields_of,
    read_values,
    rejected,
    stream,
)
from logfleet_spark.jobs.running import Job, program
from logfleet_spark.jobs.settings import (
    Parser,
    add_cluster,
    add_stream,
    moment,
    names,
    refuse_same,
)
from logfleet_spark.jobs.tables import BatchTable, query_of

log = logging.getLogger(__name__)

NAME = "topic_to_table"
PLACE = ("topic", "partition", "offset")
"""Columns that tell one row from another."""
DELTA: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # tasks that read a table's log; 50, its default, are for logs of millions of files
    "spark.databricks.delta.snapshotPartitions": "4",
}


def table_rows(events: DataFrame, fields: str, day_of: str) -> DataFrame:
    """Rows of the table: topic, partition, offset, timestamp, key, then the fields, or the value if there are none, and DAY.

    day_of: expression of the time whose day it is; where that is null, the day of the record's own timestamp.
    """
    own = [F.col(f"{RECORD}.{name}").alias(name) for name in (*PLACE, "timestamp")]
    columns = [*own, F.col(f"{RECORD}.key").cast("string").alias("key")]
    columns += [F.col(quoted(field.name)) for field in fields_of(fields)]
    columns += [] if fields else [F.col(f"{RECORD}.value")]
    day, _ = expression(events, "--day-of", day_of)
    when = F.coalesce(day.cast("timestamp"), F.col(f"{RECORD}.timestamp"))
    return events.where(F.col(ERROR).isNull()).select(*columns, F.to_date(when).alias(DAY))


@dataclass
class Table:
    """Where rows go. format: parquet or delta. owner: whose batches they are, None for the micro-batches of a query."""

    root: str
    format: str
    owner: str | None = None
    _parquet: BatchTable | None = None

    def append(self, rows: DataFrame, batch_id: int) -> None:
        """The rows of this batch are in the table once."""
        owner = self.owner or query_of(rows)
        if self.format == "parquet":
            self._parquet = self._parquet or BatchTable(
                Folders(rows.sparkSession), self.root, owner
            )
            self._parquet.write(rows, batch_id)
            return
        writer = rows.write.format("delta").mode("append").partitionBy(DAY)
        writer.option("txnAppId", owner).option("txnVersion", batch_id).save(self.root)

    def lacking(self, rows: DataFrame) -> DataFrame:
        """Those of the rows that are not in the table."""
        spark = rows.sparkSession
        folders = Folders(spark)
        if not folders.matching(f"{self.root.rstrip('/')}/{DAY}=*"):
            return rows
        there = spark.read.format(self.format).load(self.root).select(*PLACE)
        return rows.join(there, list(PLACE), "left_anti").select(*rows.columns)


def write_batch(job: Job, found: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    """Writes micro-batches: rows to the table, what cannot be read to the folder beside it."""
    table = Table(found.output, found.format)
    aside = Table(found.rejected, "parquet") if found.rejected else None

    def write(records: DataFrame, batch_id: int) -> None:
        events = read_values(records, found.fields).persist()
        try:
            table.append(table_rows(events, found.fields, found.day_of), batch_id)
            if found.fields:
                _keep(job, events, aside, batch_id)
        finally:
            events.unpersist()

    return write


def _keep(job: Job, events: DataFrame, aside: Table | None, batch_id: int) -> None:
    wrong = events.where(F.col(ERROR).isNotNull()).count()
    job.metrics.count("dead_letters", wrong)
    if wrong and aside is not None:
        aside.append(rejected(events), batch_id)


def bounds_of(found: argparse.Namespace) -> dict[str, str]:
    """Options of the source that a backfill's bounds mean."""
    bounds = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    if found.since:
        bounds["startingTimestamp"] = str(int(found.since.timestamp() * 1000))
        bounds["startingOffsetsByTimestampStrategy"] = "latest"
    if found.until:
        bounds["endingTimestamp"] = str(int(found.until.timestamp() * 1000))
    if found.from_offsets:
        bounds["startingOffsets"] = found.from_offsets
    if found.to_offsets:
        bounds["endingOffsets"] = found.to_offsets
    return bounds


def backfill(job: Job, found: argparse.Namespace) -> None:
    """Add the records between the bounds that the table has not."""
    spark: SparkSession = job.spark
    bounds = bounds_of(found)
    records = batch(spark, found, ",".join(found.topic), bounds)
    events = read_values(records, found.fields).persist()
    try:
        said = json.dumps([found.topic, bounds], sort_keys=True)
        owner = f"backfill-{sha256(said.encode()).hexdigest()[:12]}"
        table = Table(found.output, found.format, owner)
        fresh = table.lacking(table_rows(events, found.fields, found.day_of)).persist()
        rows = events.count()
        added = fresh.count()
        if added:
            _added(table, fresh)
        wrong = events.where(F.col(ERROR).isNotNull()).count()
        if wrong and found.rejected:
            aside = Table(found.rejected, "parquet", owner)
            _added(aside, aside.lacking(rejected(events)))
        job.metrics.count("rows", rows)
        job.metrics.count("dead_letters", wrong)
        log.info("%d records read, %d rows added, %d could not be read", rows, added, wrong)
    finally:
        events.unpersist()


def _added(table: Table, rows: DataFrame) -> None:
    """Write what a backfill lacks, under a number of its own: what an earlier run of it wrote stays."""
    numbers = _used(table, rows.sparkSession)
    table.append(rows, max(numbers, default=-1) + 1)


def _used(table: Table, spark: SparkSession) -> list[int]:
    if table.format == "delta":
        import time

        return [
            int(time.time()) - 1
        ]  # Delta keeps the greatest version by application; time only grows
    pattern = f"{table.root.rstrip('/')}/{DAY}=*/{table.owner}-*"
    files = (place.rpartition("/")[2] for place in Folders(spark).matching(pattern))
    return [int(name.removeprefix(f"{table.owner}-").partition("-")[0]) for name in files]


def parser() -> Parser:
    parser = Parser(NAME, "Copy topics into a table partitioned by day.")
    add = parser.add_argument
    add_cluster(parser)
    add("--topic", type=names, required=True, help="topic to read, or several: NAME,NAME")
    add(
        "--fields",
        default="",
        help="JSON fields of the value, as DDL; left out, the value is a column",
    )
    add(
        "--day-of",
        default="timestamp",
        help="column whose day partitions the table; default: the record's time",
    )
    add("--output", required=True, help="folder of the table (path or URL)")
    add("--format", choices=["parquet", "delta"], default="parquet")
    add(
        "--rejected",
        help="folder for records that are not JSON of the fields, or `none`; default OUTPUT-rejected",
    )
    add(
        "--backfill",
        action="store_true",
        help="add what the table lacks between the bounds, and end",
    )
    add(
        "--since",
        type=moment,
        help="backfill: records at or after this time (2013-01-31T06:00:00Z)",
    )
    add("--until", type=moment, help="backfill: records before this time")
    add("--from-offsets", metavar="JSON", help='backfill: as startingOffsets, {"topic": {"0": 23}}')
    add("--to-offsets", metavar="JSON", help="backfill: as endingOffsets; ends are exclusive")
    add_stream(parser, needs_checkpoint=False)
    return parser


def settings(argv: Sequence[str] | None = None) -> argparse.Namespace:
    asking = parser()
    found = asking.settings(argv)
    bounds = (found.since, found.until, found.from_offsets, found.to_offsets)
    if not found.backfill and any(bounds):
        asking.error("--since, --until, --from-offsets and --to-offsets are for --backfill")
    if (found.since and found.from_offsets) or (found.until and found.to_offsets):
        asking.error("a bound is a time or offsets: leave one out")
    if found.since and found.until and found.since >= found.until:
        asking.error("--since lies at or after --until; correct one")
    if not found.backfill and not found.checkpoint:
        asking.error("write --checkpoint, or --backfill")
    if found.rejected is None and found.fields:
        found.rejected = beside(found.output, "rejected")
    if found.rejected == "none":
        found.rejected = None
    refuse_same(asking, found, ("--output", "--rejected", "--checkpoint"))
    return found


def start(job: Job, found: argparse.Namespace) -> list[StreamingQuery]:
    job.watch(NAME)
    query = job.start(
        stream(job.spark, found, ",".join(found.topic)).writeStream,
        write_batch(job, found),
        name=NAME,
        checkpoint=found.checkpoint,
        trigger=found.trigger,
    )
    return [query]


def run(job: Job, found: argparse.Namespace) -> None:
    if found.format == "delta" and not _has_delta(job.spark):
        raise SettingError(
            "--format delta: Delta's jars are not there; the image has them, elsewhere give spark-submit "
            "--packages io.delta:delta-spark_4.2_2.13:4.4.0"
        )
    if found.backfill:
        backfill(job, found)
    else:
        job.run(start(job, found))


def _has_delta(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm  # noqa: SLF001  (pyspark has no way to ask for a class)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = loader.getResource(DELTA["spark.sql.extensions"].replace(".", "/") + ".class")
    return found is not None


def main(argv: Sequence[str] | None = None) -> None:
    found = settings(argv)
    more = DELTA if found.format == "delta" else {}
    program(NAME, vars(found), lambda job: run(job, found), more)
