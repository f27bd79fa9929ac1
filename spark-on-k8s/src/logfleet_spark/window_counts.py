"""Events per window and group: the DataFrame part of `jobs/window_counts.py`, testable without a broker.

A record's value is a JSON object; `fields` names what to read from it (a DDL string such as
"origin STRING, event_time TIMESTAMP"). The record's own columns (key as text, topic, partition, offset, timestamp) stay
usable in `where` and as group or event time, but for those whose name is a field's: there the field is meant. Rows without an event time are not counted: Spark would put
them all into one window named NULL.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name that Spark's documentation uses)

RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")


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


def parsed(records: DataFrame, fields: str) -> DataFrame:
    """Records of a `kafka` or `logfleet` source with their JSON fields as columns beside the record's own."""
    own = {name: F.col(name) for name in RECORD_COLUMNS} | {"key": F.col("key").cast("string")}
    columns = [column.alias(name) for name, column in own.items()]
    if not fields:
        return records.select(*columns)
    value = F.from_json(F.col("value").cast("string"), fields).alias("_value")
    read = records.select(*columns, value)
    meant = {name.lower() for name in read.select("_value.*").columns}  # names have no case in SQL
    return read.select(*(name for name in own if name not in meant), "_value.*")


def counted(events: DataFrame, job: WindowCounts) -> DataFrame:
    """One row per window and group: window_start, window_end, the group's column, count."""
    rows = events.where(job.where) if job.where else events
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


def newest_per_window(batches: DataFrame, group_by: str | None) -> DataFrame:
    """The last count of each window, of rows that carry the `batch_id` which wrote them (update mode rewrites windows)."""
    groups = ["window_start", "window_end", *([group_by] if group_by else [])]
    return batches.groupBy(*groups).agg(F.max_by("count", "batch_id").alias("count"))


def as_records(counts: DataFrame, group_by: str | None) -> DataFrame:
    """Counts as records for a topic: key = window start and group, value = the row as JSON."""
    parts = [F.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss")]
    if group_by:
        parts.append(F.col(group_by).cast("string"))
    return counts.select(
        F.concat_ws("/", *parts).alias("key"),
        F.to_json(F.struct(*counts.columns)).alias("value"),
    )


def write_batch(output: str, counts: DataFrame, batch_id: int) -> None:
    """Write one micro-batch below `output`, replacing what an earlier try of the same batch left there.

    The file sink takes append mode only; a folder per batch makes update mode safe to repeat.
    """
    counts.write.mode("overwrite").parquet(str(PurePosixPath(output) / f"batch_id={batch_id}"))


def write_records(
    sink: str, options: Mapping[str, str], records: DataFrame, _batch_id: int
) -> None:
    """Write one micro-batch to a topic with the format `sink`; a batch that Spark repeats is written again."""
    records.write.format(sink).options(**options).mode("append").save()
