"""The job `topic_to_table`: copies a topic into a table partitioned by day.

It runs as a stream, up to now, or as a backfill between two bounds.

Each record becomes one row. Topic, partition, offset and timestamp identify the row. A stream
writes each micro-batch exactly once, even if the job is killed (see tables.py). A backfill adds
only rows that the table lacks. Two writers at the same time would not see each other's rows: stop
the stream during a backfill.
"""

import argparse
import logging
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from logfleet_spark.jobs import tables
from logfleet_spark.jobs.expressions import SettingError, quoted, reason
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
from logfleet_spark.jobs.running import Job, WriteBatch, program
from logfleet_spark.jobs.settings import (
    Parser,
    add_cluster,
    add_stream,
    moment,
    names,
    refuse_same,
)
from logfleet_spark.jobs.tables import PLACE, sibling_folder

log = logging.getLogger(__name__)

NAME = "topic_to_table"


def columns_of(fields: str, form: str) -> dict[str, str]:
    """Return the column of each field: its name, or `value_NAME` if the table needs NAME itself.

    Raises SettingError if `value_NAME` is also a field.
    """
    named = [column.name for column in fields_of(fields)] if fields else []
    own = {*PLACE, "key", DAY, *([tables.BATCH] if form == "parquet" else [])}
    columns = {name: f"value_{name}" if name.lower() in own else name for name in named}
    for name, column in columns.items():
        if column != name and column.lower() in {each.lower() for each in named}:
            raise SettingError(
                f"--fields: {name} would be the column {column}, which is a field as well; leave one out"
            )
        if column != name:
            log.info("the field %s is the column %s: the table has one of that name", name, column)
    return columns


def table_rows(events: DataFrame, columns: dict[str, str], day_of: str | None) -> DataFrame:
    """Return the table's rows: topic, partition, offset, timestamp, key, fields or value, DAY.

    columns: as returned by columns_of. day_of: a field or a SQL expression whose day the row has.
    If it is None, null, or beyond the years 1 to 9999, it is the day of the record's timestamp.
    """
    own = [F.col(f"{RECORD}.{name}").alias(name) for name in PLACE]
    key = F.col(f"{RECORD}.key").cast("string").alias("key")
    values = [F.col(quoted(name)).alias(column) for name, column in columns.items()]
    values = values or [F.col(f"{RECORD}.value")]
    sound = events.where(F.col(ERROR).isNull())
    try:
        return sound.select(*own, key, *values, _day(columns, day_of).alias(DAY))
    except AnalysisException as problem:
        raise SettingError(f"--day-of {day_of}: {reason(problem)}") from None


def _day(columns: dict[str, str], day_of: str | None) -> Column:
    records_own = F.to_date(f"{RECORD}.timestamp")
    if day_of is None:
        return records_own
    meant = F.col(quoted(day_of)) if day_of in columns else F.expr(day_of)
    day = F.to_date(meant.try_cast("timestamp"))
    return F.coalesce(F.when(day.between("0001-01-01", "9999-12-31"), day), records_own)


def write_batch(job: Job, settings: argparse.Namespace) -> WriteBatch:
    """Writes micro-batches: rows to the table, rejected records to a table beside it."""
    table = tables.table(settings.format, settings.output, settings.checkpoint)
    aside = settings.rejected and tables.table(
        settings.format, settings.rejected, settings.checkpoint
    )
    columns = columns_of(settings.fields, settings.format)

    def write(records: DataFrame, batch_id: int) -> None:
        events = read_values(records, settings.fields).persist()
        try:
            table.write(table_rows(events, columns, settings.day_of), batch_id)
            # even without --fields a record is rejected if no table can hold its time
            wrong = events.where(F.col(ERROR).isNotNull()).count()
            job.metrics.count("dead_letters", wrong)
            if wrong and aside:
                aside.write(rejected(events), batch_id)
        finally:
            events.unpersist()

    return write


def bounds_of(settings: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source for a backfill's bounds."""
    bounds = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    if settings.since:
        bounds["startingTimestamp"] = str(int(settings.since.timestamp() * 1000))
        bounds["startingOffsetsByTimestampStrategy"] = "latest"
    if settings.until:
        bounds["endingTimestamp"] = str(int(settings.until.timestamp() * 1000))
    if settings.from_offsets:
        bounds["startingOffsets"] = settings.from_offsets
    if settings.to_offsets:
        bounds["endingOffsets"] = settings.to_offsets
    return bounds


def backfill(job: Job, settings: argparse.Namespace) -> None:
    """Add the records between the bounds that the table lacks."""
    records = batch(job.spark, settings, ",".join(settings.topic), bounds_of(settings))
    events = read_values(records, settings.fields).persist()
    try:
        rows = events.count()
        wrong = events.where(F.col(ERROR).isNotNull()).count()
        columns = columns_of(settings.fields, settings.format)
        added = tables.backfill(table_rows(events, columns, settings.day_of), settings.output)
        if wrong and settings.rejected:
            tables.backfill(rejected(events), settings.rejected)
        job.metrics.count("rows", rows)
        job.metrics.count("dead_letters", wrong)
        log.info("%d records read, %d rows added, %d could not be read", rows, added, wrong)
    finally:
        events.unpersist()


def make_parser() -> Parser:
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
        help="field or SQL expression whose day partitions the table; default: the record's time",
    )
    add("--output", required=True, help="folder of the table (path or URL)")
    add(
        "--format",
        choices=tables.FORMATS,
        default="delta",
        help="delta, or parquet: plain files that one query appends",
    )
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


def parse_settings(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = make_parser()
    settings = parser.settings(argv)
    bounds = (settings.since, settings.until, settings.from_offsets, settings.to_offsets)
    if not settings.backfill and any(bounds):
        parser.error("--since, --until, --from-offsets and --to-offsets are for --backfill")
    if (settings.since and settings.from_offsets) or (settings.until and settings.to_offsets):
        parser.error("a bound is a time or offsets: leave one out")
    if settings.since and settings.until and settings.since >= settings.until:
        parser.error("--since lies at or after --until; correct one")
    if settings.backfill and settings.format != "delta":
        parser.error("--backfill adds rows to Delta tables only: leave out --format parquet")
    if not settings.backfill and not settings.checkpoint:
        parser.error("write --checkpoint, or --backfill")
    if settings.rejected is None:
        settings.rejected = sibling_folder(settings.output, "rejected")
    if settings.rejected == "none":
        settings.rejected = None
    refuse_same(parser, settings, ("--output", "--rejected", "--checkpoint"))
    return settings


def start(job: Job, settings: argparse.Namespace) -> list[StreamingQuery]:
    job.watch(NAME)
    query = job.start(
        stream(job.spark, settings, ",".join(settings.topic)).writeStream,
        write_batch(job, settings),
        name=NAME,
        checkpoint=settings.checkpoint,
        trigger=settings.trigger,
    )
    return [query]


def run(job: Job, settings: argparse.Namespace) -> None:
    if settings.format == "delta":
        tables.check_delta(job.spark, settings.output)
    if settings.backfill:
        backfill(job, settings)
    else:
        job.run(start(job, settings))


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse_settings(argv)
    more = tables.session_settings(settings.format)
    program(NAME, vars(settings), lambda job: run(job, settings), more)
