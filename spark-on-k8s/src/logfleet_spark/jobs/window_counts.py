"""The job `window_counts`: aggregates the events of a topic per window and group.

The results go to the console, a table, a topic or a database.

Events are rows of the JSON fields and the record's own columns (see records.py). Rows without an
event time are not counted, as Spark would put them all into one window named NULL. Records that
cannot be read are counted as dead letters, and kept where `--rejected` says.
"""

import argparse
import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name that Spark's documentation uses)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from logfleet_spark.jobs import tables
from logfleet_spark.jobs.database import Database, add_database, check_database, database_of
from logfleet_spark.jobs.expressions import (
    SettingError,
    condition,
    expression,
    expressions,
    naming,
    quoted,
    refuse_names,
)
from logfleet_spark.jobs.records import (
    DAY,
    ERROR,
    EVENT_TIME,
    RECORD,
    RECORD_COLUMNS,
    expressible,
    options_of,
    read_values,
    rejected,
    send,
    stream,
)
from logfleet_spark.jobs.rejected import Offsets, Rejected, text_of
from logfleet_spark.jobs.running import Job, WriteBatch, program
from logfleet_spark.jobs.settings import (
    AVAILABLE_NOW,
    Parser,
    add_cluster,
    add_exactly_once,
    add_sink,
    add_stream,
    check_exactly_once,
    delay,
    interval,
    interval_ms,
    refuse_same,
)
from logfleet_spark.jobs.tables import LatestTable, sibling_folder
from logfleet_spark.jobs.windows import END, START, Windows

log = logging.getLogger(__name__)

NAME = "window_counts"
QUERY = "window_counts"
NOWHERE = "none"
COUNT = "count(*) AS count"
MEANING = "meaning"
"""Folder in the checkpoint with the settings that its state depends on, as JSON."""
FIRST_TIME = "1970-01-01"
"""Events before this time are rejected: Spark's watermark begins here, so they would be dropped as
late.
"""
HOURLY = Windows()


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """What to count.

    event_time: SQL expression of a TIMESTAMP. group_by, aggregate: lists of SQL expressions, each
    with a name; group_by "" means one row per window. watermark: how late an event may come.
    future: how far ahead of the clock it may be. Both are Spark intervals. where: a SQL condition,
    None for all rows.
    """

    event_time: str
    watermark: str
    windows: Windows = HOURLY
    group_by: str = ""
    aggregate: str = COUNT
    where: str | None = None
    future: str = "1 day"


def with_event_time(rows: DataFrame, job: WindowCounts) -> DataFrame:
    """Return the rows that meet `where`, with EVENT_TIME, null where it cannot be computed.

    Rows whose time is out of range have an ERROR. Raises SettingError if Spark cannot use
    `event_time` or `where`.
    """
    if job.where:
        # a rejected record has no fields to evaluate the condition on, so it is kept
        rows = rows.where(F.col(ERROR).isNotNull() | condition(rows, "--where", job.where))
    made, field = expression(rows, "--event-time", job.event_time)
    if not isinstance(field.dataType, TimestampType | TimestampNTZType | DateType):
        kind = field.dataType.simpleString().upper()
        raise SettingError(
            f"--event-time {job.event_time!r} is {kind}; write a TIMESTAMP, such as timestamp_millis(at) "
            "of milliseconds since 1970"
        )
    # try_add gives NULL for any failure within it, such as timestamp_millis of a number that is too
    # large
    time = F.try_add(made.cast("timestamp"), F.expr("INTERVAL '0' SECOND"))
    ahead = F.make_dt_interval(secs=F.lit(interval_ms(job.future) / 1000))
    latest = F.current_timestamp() + ahead
    is_strange = (F.col(EVENT_TIME) < F.lit(f"{FIRST_TIME} 00:00:00Z").cast("timestamp")) | (
        F.col(EVENT_TIME) > latest
    )
    wrong = F.lit(
        f"the event time is before {FIRST_TIME} or more than {job.future} ahead of the clock"
    )
    timed = rows.withColumn(EVENT_TIME, time)
    return timed.withColumn(ERROR, F.coalesce(ERROR, F.when(is_strange, wrong)))


@dataclass(frozen=True, slots=True)
class Counts:
    """rows: one per window and group, with the columns START, END, the groups, the aggregates.

    groups: names of the columns.
    """

    rows: DataFrame
    groups: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that together identify a row."""
        return (START, END, *self.groups)


def counted(events: DataFrame, job: WindowCounts) -> Counts:
    """Aggregate the events; those with an ERROR or without an event time are skipped.

    events: as returned by `with_event_time`. Raises SettingError if Spark cannot use `group_by` or
    `aggregate`.
    """
    groups, group_fields = expressions(events, "--group-by", job.group_by)
    aggregates, fields = expressions(events, "--aggregate", job.aggregate, aggregates=True)
    refuse_names("--group-by", group_fields.names, (START, END, DAY))
    refuse_names("--aggregate", fields.names, (START, END, DAY, *group_fields.names))
    if job.windows.session and not job.group_by:
        raise SettingError(
            "--session needs --group-by: Spark makes no sessions of all events at once"
        )
    rows = events.where(F.col(ERROR).isNull() & F.col(EVENT_TIME).isNotNull())
    timed = job.windows.timed(rows, EVENT_TIME, job.watermark)
    # internal names for the groups, as a user's name may be `window`, which Spark uses
    named = {f"_group{number}": field for number, field in enumerate(group_fields)}
    keys = [expressible(groups[each.name], each.dataType).alias(own) for own, each in named.items()]
    with naming("--group-by, --aggregate"):
        added = timed.groupBy(job.windows.of(EVENT_TIME), *keys).agg(aggregates.alias("_added"))
    columns = [F.col(own).alias(each.name) for own, each in named.items()]
    columns += [
        expressible(F.col("_added")[each.name], each.dataType).alias(each.name) for each in fields
    ]
    return Counts(added.select(*job.windows.bounds(), *columns), tuple(group_fields.names))


def as_records(counts: DataFrame, groups: Sequence[str], windows: Windows) -> DataFrame:
    """Make records of counts for a topic: key = window start and group, value = the row as JSON.

    If there are several groups, the key ends with a JSON list of them, so that no two rows have the
    same key.
    """
    form = "yyyy-MM-dd'T'HH:mm:ss" + ("" if windows.are_whole_seconds else ".SSSSSS")
    # with the offset to UTC, as two windows start at the same local time when clocks go back
    form += "" if windows.zone == "UTC" else "XXX"
    texts = [F.col(quoted(name)).cast("string") for name in groups]
    parts = [
        F.date_format(START, form),
        *(texts if len(texts) < 2 else [F.to_json(F.array(*texts))]),
    ]
    return counts.select(
        F.concat_ws("/", *parts).alias("key"),
        F.to_json(F.struct(*map(quoted, counts.columns))).alias("value"),
    )


def write_records(
    settings: argparse.Namespace, made: Counts, windows: Windows, counts: DataFrame, batch_id: int
) -> None:
    """Write one micro-batch to a topic, again if Spark repeats it, or once with `exactly_once`.

    It is used with foreachBatch, as Spark gives update mode to no streaming sink in Python.
    """
    send(as_records(counts, made.groups, windows), settings, settings.output, batch_id)


def write_table(
    table: LatestTable | tables.ParquetExport, counts: DataFrame, batch_id: int
) -> None:
    """Write one micro-batch to a table partitioned by day."""
    table.write(counts.withColumn(DAY, F.to_date(START)), batch_id)


def show(counts: DataFrame, batch_id: int) -> None:
    """Write one micro-batch to the console."""
    counts = counts.persist()
    try:
        # count() computes all rows, because each task commits its part of the state; show() computes
        # only the first rows
        counts.count()
        sys.stdout.write(f"batch {batch_id}\n")
        counts.show(truncate=False)
    finally:
        counts.unpersist()


def write_upsert(
    database: Database, keys: Sequence[str], counts: DataFrame, _batch_id: int
) -> None:
    database.upsert(counts, keys)


def make_parser() -> Parser:
    parser = Parser(NAME, "Add up the events of a topic per window and group.")
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
        help="SQL expression of a TIMESTAMP: a field, timestamp_millis(at), or `timestamp`, the time of the record itself",
    )
    add("--aggregate", default=COUNT, help='what to add up: "sum(price) AS sum, max(price) AS max"')
    add(
        "--group-by",
        default="",
        help='fields, `key` or SQL expressions: "origin, upper(kind) AS kind"',
    )
    add("--where", help="SQL condition that rows must meet")
    add("--window", type=interval, help="length of a window; default: 1 hour")
    add(
        "--slide",
        type=interval,
        help="from the start of one window to the next; default: the window's length",
    )
    add(
        "--session",
        type=interval,
        help="windows that end when a group has had no event for this long, instead of --window",
    )
    add("--watermark", type=delay, default="24 hours", help="how late a row may come")
    add(
        "--future",
        type=delay,
        default="1 day",
        help="how far ahead of the clock an event may be; others are rejected, as they would close all windows before them",
    )
    add(
        "--output-mode",
        choices=["append", "update"],
        help="append: each window once it is closed; update: each change; default: update, with --session append",
    )
    add("--sink", choices=["console", *tables.FORMATS, "topic", "database"], default="console")
    add("--output", help="folder of the table (path or URL), topic or database table")
    add(
        "--rejected",
        help="folder of a table for rejected records, or `none`; default: with the sinks "
        "delta and parquet OUTPUT-rejected, else none. They are counted either way",
    )
    add_sink(parser)
    add_exactly_once(parser)
    add_stream(parser)
    add_database(parser)
    return parser


def parse_settings(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the settings of an invocation; `rejected` is a folder or None.

    Ends the process with a sentence if a setting is wrong.
    """
    parser = make_parser()
    settings = parser.settings(argv)
    if settings.session and (settings.window or settings.slide):
        parser.error("--session takes the place of --window and --slide: leave these out")
    if settings.session and not settings.group_by:
        parser.error("--session needs --group-by: Spark has no sessions of all events at once")
    if settings.session and settings.output_mode == "update":
        parser.error("--session: Spark writes sessions once they are closed: --output-mode append")
    if not settings.aggregate.strip():
        parser.error(f'--aggregate names nothing; write "{COUNT}" or leave it out')
    settings.window = settings.window or "1 hour"
    if settings.slide and interval_ms(settings.slide) > interval_ms(settings.window):
        parser.error("--slide is longer than --window: rows between two windows would be lost")
    settings.output_mode = settings.output_mode or ("append" if settings.session else "update")
    if settings.sink != "console" and not settings.output:
        parser.error(f"--sink {settings.sink} needs --output")
    if settings.sink == "parquet" and settings.output_mode == "update":
        parser.error(
            "--sink parquet is append-only: write --sink delta, or --output-mode append for closed "
            "windows"
        )
    check_exactly_once(parser, settings)
    check_database(parser, settings)
    if settings.rejected is None and settings.sink in tables.FORMATS:
        settings.rejected = sibling_folder(settings.output, "rejected")
    if settings.rejected == NOWHERE:
        settings.rejected = None
    refuse_same(parser, settings, ("--output", "--rejected", "--checkpoint"))
    return settings


def sink_of(settings: argparse.Namespace, made: Counts, windows: Windows) -> WriteBatch:
    match settings.sink:
        case "console":
            return show
        case "topic":
            return partial(write_records, settings, made, windows)
        case "database":
            return partial(write_upsert, database_of(settings), made.keys)
        case "parquet":
            return partial(write_table, tables.ParquetExport(settings.output, settings.checkpoint))
        case _:
            return partial(
                write_table, LatestTable(settings.output, made.keys, settings.checkpoint)
            )


def format_of(settings: argparse.Namespace) -> str | None:
    """Return the format of the tables that the job writes; None if it writes none."""
    if settings.sink in tables.FORMATS:
        return str(settings.sink)
    return "delta" if settings.rejected else None


def window_counts_of(settings: argparse.Namespace, zone: str) -> WindowCounts:
    """Return the settings of the aggregation. zone: the time zone of the session."""
    return WindowCounts(
        event_time=settings.event_time,
        watermark=settings.watermark,
        windows=Windows(settings.window, settings.slide, settings.session, zone),
        group_by=settings.group_by,
        aggregate=settings.aggregate,
        where=settings.where,
        future=settings.future,
    )


def columns_read(fields: str, wanted: WindowCounts) -> tuple[str, ...] | None:
    """Return the columns of the source that counting needs; None for all.

    They are the time, the value if it has fields, and each column that the SQL of a setting names.
    SQL that uses the whole record, or `*` other than in count(*), may need all.
    """
    texts = (wanted.event_time, wanted.where or "", wanted.group_by, wanted.aggregate)
    sql = re.sub(r"count\s*\(\s*\*\s*\)", "", " ".join(texts).lower())
    words = set(re.findall(r"\w+", sql))
    if RECORD in words or "*" in sql:
        return None
    needed = {"timestamp", *(["value"] if fields else [])} | words
    return tuple(name for name in ("value", *RECORD_COLUMNS) if name in needed)


def keeper_of_rejected(job: Job, settings: argparse.Namespace, wanted: WindowCounts) -> Rejected:
    """Return the object that starts the query for rejected records once there are some."""

    def count(begin: Offsets, end: Offsets) -> int:
        # read only the batch's partitions, as others may have appeared since; records that were
        # deleted since cannot be kept
        start = {
            topic: {part: min(begin.get(topic, {}).get(part, 0), at) for part, at in parts.items()}
            for topic, parts in end.items()
        }
        options = {
            **options_of(settings),
            "failOnDataLoss": "false",
            "assign": json.dumps({topic: sorted(map(int, parts)) for topic, parts in end.items()}),
            "startingOffsets": json.dumps(start),
            "endingOffsets": json.dumps(end),
        }
        records = job.spark.read.format(settings.source).options(**options).load()
        return (
            with_event_time(read_values(records, settings.fields), wanted)
            .where(F.col(ERROR).isNotNull())
            .count()
        )

    def begin(offsets: str | None) -> StreamingQuery:
        given = argparse.Namespace(**vars(settings))
        given.starting_offsets = offsets or settings.starting_offsets
        records = stream(job.spark, given, settings.topic)
        return job.start(
            rejected(with_event_time(read_values(records, settings.fields), wanted)).writeStream,
            tables.table(format_of(settings) or "", settings.rejected, place).write,
            name="rejected",
            checkpoint=place,
            trigger=settings.trigger,
        )

    place = sibling_folder(settings.checkpoint, "rejected")
    return Rejected(
        job.spark,
        settings.checkpoint,
        place,
        count=count,
        start=begin,
        is_last=settings.trigger == AVAILABLE_NOW,
    )


def refuse_change(spark: SparkSession, checkpoint: str, wanted: WindowCounts) -> None:
    """Raise SettingError if the checkpoint's state is of other windows, groups or aggregates.

    Spark would add to that state without a check.
    """
    place = f"{checkpoint.rstrip('/')}/{MEANING}"
    texts = {"--group-by": wanted.group_by, "--aggregate": wanted.aggregate}
    now = {name: " ".join(text.split()) for name, text in texts.items()} | asdict(wanted.windows)
    known = [json.loads(text) for _, text in text_of(spark, place) if text.strip()]
    if known == [now]:
        return
    # until a batch has ended there is no state, so a setting may still be corrected
    if known and text_of(spark, f"{checkpoint.rstrip('/')}/commits"):
        names = ", ".join(name for name in now if known[0].get(name) != now[name])
        raise SettingError(
            f"{checkpoint} counts by other settings ({names}); write the old ones, or start with a new "
            "--checkpoint and a new --output"
        )
    rows = spark.range(0, 1, 1, 1).select(F.lit(json.dumps(now)).alias("value"))
    rows.write.mode("overwrite").text(place)


def run(job: Job, settings: argparse.Namespace) -> None:
    """Count until the trigger ends or a stop is asked for.

    Raises SettingError before the first batch if Spark cannot use a setting.
    """
    if format_of(settings) == "delta":
        tables.check_delta(job.spark, settings.output or settings.rejected)
    wanted = window_counts_of(settings, job.spark.conf.get("spark.sql.session.timeZone") or "UTC")
    columns = columns_read(settings.fields, wanted)
    records = stream(job.spark, settings, settings.topic, columns)
    events = with_event_time(read_values(records, settings.fields), wanted)
    seen = events.observe("values", F.count(ERROR).alias("dead_letters"))
    made = counted(seen, wanted)
    refuse_change(job.spark, settings.checkpoint, wanted)
    keeping = keeper_of_rejected(job, settings, wanted) if settings.rejected else None
    write = sink_of(settings, made, wanted.windows)
    job.watch(QUERY, warn_of_late_rows)
    with naming("--group-by, --aggregate, --output-mode"):
        query = job.start(
            made.rows.writeStream.outputMode(settings.output_mode),
            keeping.checked_write(write) if keeping else write,
            name=QUERY,
            checkpoint=settings.checkpoint,
            trigger=settings.trigger,
        )
    if keeping is None:
        job.run([query])
    else:
        keeping.follow(query)
        job.run([query], keeping.started)


def warn_of_late_rows(progress: Mapping[str, Any]) -> None:
    """Log a warning if a batch dropped more rows than it counted.

    A single event with a time in the future may have moved the watermark.
    """
    states = progress["stateOperators"]
    late = sum(state["numRowsDroppedByWatermark"] for state in states)
    if late > sum(state["numRowsUpdated"] for state in states):
        times = progress["eventTime"]
        log.warning(
            "batch %d dropped %d late rows, more than it counted: the watermark is %s; if events are this late, give a longer --watermark",
            progress["batchId"],
            late,
            times.get("watermark"),
        )


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse_settings(argv)
    more = tables.session_settings(format_of(settings))
    program(NAME, vars(settings), lambda job: run(job, settings), more)
