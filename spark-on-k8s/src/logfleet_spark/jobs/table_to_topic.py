"""The job `table_to_topic`: the rows of a table as records of a topic, each once, however often the job is run.

Each record carries the id of its row in a header, and rows whose id the topic has already are not sent: that is looked up in the topic itself,
so a run that was killed is simply run again. A row's id is the given expression, else a hash of all its columns and, of rows that are the
same, a number. Not for two runs over one table at once.
"""

import argparse
import logging
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from logfleet_spark.jobs.records import batch, send
from logfleet_spark.jobs.running import Job, program
from logfleet_spark.jobs.settings import Parser, add_cluster, add_sink, moment
from logfleet_spark.jobs.topic_to_table import DELTA

log = logging.getLogger(__name__)

NAME = "table_to_topic"
ID = "__table.row"
"""Header with the id of the row that a record was made of."""


def with_ids(rows: DataFrame, id_of: str | None) -> DataFrame:
    """Rows with the column `_id`, text. id_of: a SQL expression that is another for every row."""
    if id_of:
        return rows.withColumn("_id", F.expr(id_of).cast("string"))
    content = F.sha2(F.to_json(F.struct(*rows.columns), {"ignoreNullFields": "false"}), 256)
    same = Window.partitionBy("_hash").orderBy(F.lit(0))
    hashed = rows.withColumn("_hash", content).withColumn("_same", F.row_number().over(same))
    return hashed.withColumn("_id", F.concat_ws("-", "_hash", "_same")).drop("_hash", "_same")


def as_records(rows: DataFrame, key: str | None, value: str | None) -> DataFrame:
    """Records of rows with ids: key and value by SQL expressions; a value of None is the whole row as JSON, a key of None is none."""
    columns = [column for column in rows.columns if column != "_id"]
    made: Column = F.expr(value) if value else F.to_json(F.struct(*columns))
    named: Column = F.expr(key) if key else F.lit(None)
    row = F.struct(F.lit(ID).alias("key"), F.col("_id").cast("binary").alias("value"))
    return rows.select(
        named.cast("string").cast("binary").alias("key"),
        made.cast("string").cast("binary").alias("value"),
        F.array(row).alias("headers"),
        "_id",
    )


def ids_in(records: DataFrame) -> DataFrame:
    """The ids of the rows that records were made of, in the column `_id`."""
    of_rows = F.filter("headers", lambda each: each["key"] == ID)
    ids = records.select(F.try_element_at(of_rows, F.lit(1))["value"].cast("string").alias("_id"))
    return ids.where("_id IS NOT NULL").distinct()


def read_table(spark: SparkSession, found: argparse.Namespace) -> DataFrame:
    rows = spark.read.format(found.format).load(found.input)
    return rows.where(found.where) if found.where else rows


def run(job: Job, found: argparse.Namespace) -> None:
    """Send the rows that the topic has not."""
    found.option = [*found.option, ("includeHeaders", "true")]
    bounds = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    if found.sent_since:
        bounds["startingTimestamp"] = str(int(found.sent_since.timestamp() * 1000))
        bounds["startingOffsetsByTimestampStrategy"] = "latest"
    rows = with_ids(read_table(job.spark, found), found.id)
    there = ids_in(batch(job.spark, found, found.topic, bounds))
    missing = as_records(rows, found.key, found.value).join(there, "_id", "left_anti").persist()
    try:
        count = missing.count()
        send(missing.drop("_id"), found, found.topic)
        job.metrics.count("rows", count)
        log.info("%d records sent to %s", count, found.topic)
    finally:
        missing.unpersist()


def parser() -> Parser:
    parser = Parser(NAME, "Send the rows of a table to a topic, each once.")
    add = parser.add_argument
    add_cluster(parser)
    add("--input", required=True, help="folder of the table (path or URL)")
    add("--format", choices=["parquet", "delta"], default="parquet")
    add("--where", help="SQL condition that rows must meet")
    add("--topic", required=True, help="topic to write")
    add("--key", help="SQL expression of the record's key; left out: none")
    add("--value", help="SQL expression of its value; default: the row as JSON")
    add("--id", help="SQL expression that is another for every row; default: a hash of its columns")
    add("--sent-since", type=moment, help="look for rows that were sent from this time on only")
    add_sink(parser)
    return parser


def settings(argv: Sequence[str] | None = None) -> argparse.Namespace:
    asking = parser()
    found = asking.settings(argv)
    if found.sink_bootstrap_servers not in {None, found.bootstrap_servers}:
        asking.error(
            "--sink-bootstrap-servers: this job looks into the topic that it writes; leave it out"
        )
    return found


def main(argv: Sequence[str] | None = None) -> None:
    found = settings(argv)
    more = DELTA if found.format == "delta" else {}
    program(NAME, vars(found), lambda job: run(job, found), more)
