"""The job `table_to_topic`: sends the rows of a table to a topic as records, each row once.

Each record has the id of its row in a header. The job reads the ids in the topic and sends only the
rows whose id is missing there, so a run that was killed can simply be repeated. A row's id is the
given expression, or else a hash of all its columns, with a number that tells identical rows apart.
Do not run two jobs over one table at the same time.
"""

import argparse
import logging
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from logfleet_spark.jobs import tables
from logfleet_spark.jobs.expressions import SettingError, reason
from logfleet_spark.jobs.records import batch, send
from logfleet_spark.jobs.running import Job, program
from logfleet_spark.jobs.settings import Parser, add_cluster, add_sink, moment

log = logging.getLogger(__name__)

NAME = "table_to_topic"
ID = "__table.row"
"""Header with the id of the row from which a record was made."""


def as_records(
    rows: DataFrame, key: str | None, value: str | None, id_of: str | None = None
) -> DataFrame:
    """Make records of rows, with the row's id in the column `_id` and in a header.

    The arguments are SQL expressions. None means: no key; as the value the whole row as JSON; as
    the id a hash of the columns, with a number that tells identical rows apart.
    """
    whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    made = rows.select(
        _expression("--key", rows, key, F.lit(None)).cast("binary").alias("key"),
        _expression("--value", rows, value, F.to_json(F.struct("*"))).cast("binary").alias("value"),
        _expression("--id", rows, id_of, F.sha2(whole, 256)).alias("_id"),
    )
    if not id_of:
        same = F.row_number().over(Window.partitionBy("_id").orderBy(F.lit(0)))
        made = made.withColumn("_id", F.concat_ws("-", "_id", same))
    row = F.struct(F.lit(ID).alias("key"), F.col("_id").cast("binary").alias("value"))
    return made.select("key", "value", F.array(row).alias("headers"), "_id")


def _expression(flag: str, rows: DataFrame, given: str | None, otherwise: Column) -> Column:
    """Compile the expression as text; None means `otherwise`.

    Raises SettingError, which names the option, if the rows do not allow the expression.
    """
    if given is None:
        return otherwise.cast("string")
    try:
        rows.select(F.expr(given))
    except AnalysisException as problem:
        raise SettingError(f"{flag} {given}: {reason(problem)}") from None
    return F.expr(given).cast("string")


def ids_in(records: DataFrame) -> DataFrame:
    """Return the row ids in the headers of records, each once, in the column `_id`."""
    of_rows = F.filter("headers", lambda each: each["key"] == ID)
    ids = records.select(F.try_element_at(of_rows, F.lit(1))["value"].cast("string").alias("_id"))
    return ids.where("_id IS NOT NULL").distinct()


def read_table(job: Job, settings: argparse.Namespace) -> DataFrame:
    if settings.format == "delta":
        tables.check_delta(job.spark, settings.input)
    try:
        rows = job.spark.read.format(settings.format).load(settings.input)
    except AnalysisException as problem:
        raise SettingError(
            f"--input {settings.input}: no {settings.format} table is there ({reason(problem)}); "
            "write its path, and --format parquet if it is plain Parquet"
        ) from None
    if not settings.where:
        return rows
    return rows.where(_expression("--where", rows, settings.where, F.lit(True)).cast("boolean"))


def run(job: Job, settings: argparse.Namespace) -> None:
    """Send the rows whose id is missing in the topic."""
    settings.option = [*settings.option, ("includeHeaders", "true")]
    bounds = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    if settings.sent_since:
        bounds["startingTimestamp"] = str(int(settings.sent_since.timestamp() * 1000))
        bounds["startingOffsetsByTimestampStrategy"] = "latest"
    there = ids_in(batch(job.spark, settings, settings.topic, bounds))
    records = as_records(read_table(job, settings), settings.key, settings.value, settings.id)
    missing = records.join(there, "_id", "left_anti").persist()
    try:
        count = missing.count()
        send(missing.drop("_id"), settings, settings.topic)
        job.metrics.count("rows", count)
        log.info("%d records sent to %s", count, settings.topic)
    finally:
        missing.unpersist()


def make_parser() -> Parser:
    parser = Parser(NAME, "Send the rows of a table to a topic, each once.")
    add = parser.add_argument
    add_cluster(parser)
    add("--input", required=True, help="folder of the table (path or URL)")
    add("--format", choices=tables.FORMATS, default="delta", help="format of the table")
    add("--where", help="SQL condition that rows must meet")
    add("--topic", required=True, help="topic to write")
    add("--key", help="SQL expression of the record's key; if left out, records have no key")
    add("--value", help="SQL expression of its value; default: the row as JSON")
    add("--id", help="SQL expression that differs in every row; default: a hash of its columns")
    add(
        "--sent-since",
        type=moment,
        help="search the topic for rows already sent only from this time on",
    )
    add_sink(parser)
    return parser


def parse_settings(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = make_parser()
    settings = parser.settings(argv)
    if settings.sink_bootstrap_servers not in {None, settings.bootstrap_servers}:
        parser.error(
            "--sink-bootstrap-servers: this job also reads the topic that it writes; leave it out"
        )
    return settings


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse_settings(argv)
    more = tables.session_settings(settings.format)
    program(NAME, vars(settings), lambda job: run(job, settings), more)
