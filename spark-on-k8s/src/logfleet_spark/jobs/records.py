"""Records as rows: read from either source, their JSON values as columns, and what is wrong with those that are none.

A record's value is a JSON object; `fields` names what to read from it, as DDL ("origin STRING, event_time TIMESTAMP"). A record
without a value (a tombstone) is a row whose fields are null, and nothing is wrong with it.
"""

import argparse
from collections.abc import Mapping
from typing import cast

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name that Spark's documentation uses)
from pyspark.sql.types import StructType

RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")
ERROR = "_error"
"""Why a row is no event; null if nothing is wrong with it."""
RECORD = "_record"
"""The record as it came."""
DAY = "day"
"""Column by which tables are partitioned: a date in UTC."""
_CORRUPT = "_corrupt"


class SettingError(Exception):
    """A setting that turns out to be wrong once Spark looks at it; the text names it and says what to do."""


def options_of(settings: argparse.Namespace) -> dict[str, str]:
    """Options of the source that every read of a job has."""
    return {"kafka.bootstrap.servers": settings.bootstrap_servers, **dict(settings.option)}


def sink_options_of(settings: argparse.Namespace) -> dict[str, str]:
    """Options of the sink that every write of a job to a topic has."""
    servers = settings.sink_bootstrap_servers or settings.bootstrap_servers
    return {"kafka.bootstrap.servers": servers, **dict(settings.sink_option)}


def send(records: DataFrame, settings: argparse.Namespace, topic: str | None) -> None:
    """Write records (key, value, perhaps headers), to one topic or to that of the column `topic`; at least once."""
    options = sink_options_of(settings) | ({"topic": topic} if topic else {})
    records.write.format(settings.source).options(**options).mode("append").save()


def stream_options(settings: argparse.Namespace, topics: str) -> dict[str, str]:
    """Options of the source for a stream. topics: as its option `subscribe`."""
    options = {
        "subscribe": topics,
        "startingOffsets": settings.starting_offsets,
        **options_of(settings),
    }
    if settings.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    return options


def stream(spark: SparkSession, settings: argparse.Namespace, topics: str) -> DataFrame:
    """Topics from where the settings say. topics: as the source's option `subscribe`."""
    options = stream_options(settings, topics)
    return spark.readStream.format(settings.source).options(**options).load()


def batch_options(
    settings: argparse.Namespace, topics: str, bounds: Mapping[str, str]
) -> dict[str, str]:
    """Options of the source for a batch. bounds: such as endingTimestamp."""
    return {"subscribe": topics, **bounds, **options_of(settings)}


def batch(
    spark: SparkSession, settings: argparse.Namespace, topics: str, bounds: Mapping[str, str]
) -> DataFrame:
    """Topics between bounds, options of the source such as endingTimestamp."""
    options = batch_options(settings, topics, bounds)
    return spark.read.format(settings.source).options(**options).load()


def fields_of(ddl: str) -> StructType:
    """The columns that a DDL string means. Raises SettingError with Spark's first words if it is none."""
    try:
        return cast("StructType", StructType.fromDDL(ddl))
    except ParseException as problem:
        said = str(problem).splitlines()[0]
        raise SettingError(
            f'--fields {ddl!r} cannot be read; write "name TYPE, name TYPE" ({said})'
        ) from None


def read_values(records: DataFrame, fields: str, require: str | None = None) -> DataFrame:
    """The record's own columns, those of the fields, ERROR, and RECORD.

    Columns of the record whose name is a field's give way to it; names have no case, as in SQL. fields "" reads no values, and nothing
    is wrong with any. require: a SQL condition over the columns that a row must meet to be an event; null counts as not met. Tombstones are not asked.
    """
    own = {name: F.col(name) for name in RECORD_COLUMNS} | {"key": F.col("key").cast("string")}
    whole = F.struct(*records.columns).alias(RECORD)
    if not fields:
        columns = [column.alias(name) for name, column in own.items()]
        nothing = F.lit(None).cast("string").alias(ERROR)
        return _required(records.select(*columns, nothing, whole), require)
    wanted = fields_of(fields)
    meant = {field.name.lower() for field in wanted}
    text = F.col("value").cast("string")
    with_corrupt = StructType([*wanted.fields]).add(_CORRUPT, "string")
    read = F.from_json(text, with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT})
    kept = [name for name in own if name not in meant]
    rows = records.select(
        *(own[name].alias(name) for name in kept), text.alias("_text"), read.alias("_value"), whole
    )
    columns = [F.col(name) for name in kept]
    columns += [F.col(f"_value.`{field.name}`").alias(field.name) for field in wanted]
    return _required(rows.select(*columns, _wrong(fields).alias(ERROR), RECORD), require)


def rejected(events: DataFrame) -> DataFrame:
    """The records of rows that are no events, as they came, with the columns `error` and DAY (of the record's timestamp)."""
    wrong = events.where(F.col(ERROR).isNotNull())
    rows = wrong.select(f"{RECORD}.*", F.col(ERROR).alias("error"))
    return rows.withColumn(DAY, F.to_date("timestamp"))


def _wrong(fields: str) -> Column:
    """What is wrong with a value: Spark gives one that it could not read in full as the corrupt record."""
    text, corrupt = F.col("_text"), F.col(f"_value.{_CORRUPT}")
    is_json = F.get_json_object(text, "$").isNotNull()
    return (
        F.when(text.isNull(), F.lit(None))
        .when(text.rlike(r"^\s*$"), F.lit("the value is empty"))
        .when(corrupt.isNotNull() & is_json, F.lit(f"the value does not fit the fields {fields}"))
        .when(corrupt.isNotNull(), F.lit("the value is not JSON"))
    )


def _required(rows: DataFrame, require: str | None) -> DataFrame:
    if require is None:
        return rows
    unmet = F.lit(f"the condition is not met: {require}")
    is_tombstone = F.col(f"{RECORD}.value").isNull()
    is_met = is_tombstone | F.coalesce(F.expr(require).cast("boolean"), F.lit(False))
    return rows.withColumn(ERROR, F.coalesce(ERROR, F.when(~is_met, unmet)))
