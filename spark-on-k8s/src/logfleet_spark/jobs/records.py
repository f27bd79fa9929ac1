"""Records as rows: their JSON values as columns, or the reason why a record is no event.

A record's value is one JSON object; `fields` names what to read from it, as DDL ("origin STRING,
event_time TIMESTAMP"). A record without a value (a tombstone) is a row whose fields are null, and
nothing is wrong with it.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import cast
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name that Spark's documentation uses)
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from logfleet_spark.jobs.expressions import SettingError, condition, reason

RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")
ERROR = "_error"
"""Why a row is no event; null if nothing is wrong with it."""
RECORD = "_record"
"""The record as it came: a struct of the source's columns."""
EVENT_TIME = "_event_time"
RESERVED = (ERROR, RECORD, EVENT_TIME)
"""Columns of ours beside the fields, which no field may be named."""
DAY = "day"
"""Column by which tables are partitioned: a date in the time zone of the session."""
_CORRUPT = "_corrupt"
_MARK = uuid4().hex
"""A name that no value has by chance or on purpose; see _parsed."""
_FIRST_TIME, _END_OF_TIMES = "0001-01-02", "9999-12-31"
"""Python and the readers of Parquet know the years 1 to 9999.

A day less at both ends leaves room for time zones.
"""


def options_of(settings: argparse.Namespace) -> dict[str, str]:
    """Options of the source that every read of a job has."""
    return {"kafka.bootstrap.servers": settings.bootstrap_servers, **dict(settings.option)}


def sink_options_of(settings: argparse.Namespace) -> dict[str, str]:
    """Options of the sink that every write of a job to a topic has."""
    servers = settings.sink_bootstrap_servers or settings.bootstrap_servers
    return {"kafka.bootstrap.servers": servers, **dict(settings.sink_option)}


def send(records: DataFrame, settings: argparse.Namespace, topic: str | None) -> None:
    """Write records (key, value, perhaps headers), to one topic or to that of the column `topic`.

    At least once.
    """
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
    """The columns that a DDL string means, none for "".

    Raises SettingError if it is no DDL, or names what cannot be a field.
    """
    try:
        fields = cast("StructType", StructType.fromDDL(ddl) if ddl else StructType())
    except PySparkException as problem:
        raise SettingError(
            f'--fields {ddl!r} cannot be read; write "name TYPE, name TYPE" ({reason(problem)})'
        ) from None
    seen: set[str] = set()
    for name in (field.name for field in fields):
        if name.lower() in RESERVED:
            raise SettingError(f"--fields: the name {name} is the job's own; leave that field out")
        if name.lower() in seen:
            raise SettingError(f"--fields: {name} is there twice; names have no case, as in SQL")
        seen.add(name.lower())
    return fields


def read_values(records: DataFrame, fields: str, require: str | None = None) -> DataFrame:
    """Columns that SQL in settings may use, ERROR, and RECORD.

    They are the fields and, where no field has that name, RECORD_COLUMNS, the key as text. fields
    "" reads no values, and nothing is wrong with any. require: a SQL condition over the columns
    that a row must meet to be an event; null counts as not met. Tombstones need not meet it. Raises
    SettingError if `fields` or `require` cannot be used.
    """
    wanted = fields_of(fields)
    rows = records.select(F.struct(*records.columns).alias(RECORD))
    taken = {field.name.lower() for field in wanted}
    columns = [F.col(f"{RECORD}.{name}") for name in RECORD_COLUMNS[1:] if name not in taken]
    if "key" not in taken:
        columns.insert(0, F.col(f"{RECORD}.key").cast("string").alias("key"))
    if not fields:
        return _required(rows.select(*columns, _strange_record().alias(ERROR), RECORD), require)
    text = F.col(f"{RECORD}.value").cast("string")
    try:
        parsed = rows.select(RECORD, text.alias("_text"), _parsed(text, wanted).alias("_parsed"))
        read = parsed.select(RECORD, "_text", _event(F.col("_parsed")).alias("_event"))
    except PySparkException as problem:
        raise SettingError(f"--fields {fields!r} cannot be read: {reason(problem)}") from None
    columns += [_field(field).alias(field.name) for field in wanted]
    return _required(read.select(*columns, _wrong(fields, wanted).alias(ERROR), RECORD), require)


def rejected(events: DataFrame) -> DataFrame:
    """The records of rows that are no events, as they came, with the columns `error` and DAY.

    Of the record's timestamp.

    A timestamp that other programs cannot express is null.
    """
    wrong = events.where(F.col(ERROR).isNotNull())
    rows = wrong.select(f"{RECORD}.*", F.col(ERROR).alias("error"))
    time = expressible(F.col("timestamp"), TimestampType())
    return rows.withColumn("timestamp", time).withColumn(DAY, F.to_date("timestamp"))


def _field(field: StructField) -> Column:
    return F.col("_event").getField(field.name)


def _parsed(text: Column, kind: DataType) -> Column:
    """The input of _event: the text inside other JSON, as a struct of a map and _CORRUPT.

    _CORRUPT is null if all of it could be read.
    from_json reads the first JSON value of a text and is content, whatever follows. Here the text
    stands in a list in a map, and what closes or goes on with either has to get past _MARK: of one
    value, the map has the list of it, and _MARK, and nothing else.
    """
    whole = F.concat(F.lit('{"map":{"":['), text, F.lit(f'],"{_MARK}":[]}}}}'))
    inner = MapType(StringType(), ArrayType(kind))
    shape = StructType([StructField("map", inner), StructField(_CORRUPT, StringType())])
    return F.from_json(whole, shape, {"columnNameOfCorruptRecord": _CORRUPT})


def _event(parsed: Column) -> Column:
    """The value that a text is, null if it is not exactly one that fits."""
    lists = parsed["map"]
    of_text = F.try_element_at(lists, F.lit(""))
    is_whole = parsed[_CORRUPT].isNull() & (F.size(lists) == 2) & (F.size(of_text) == 1)
    is_whole &= F.try_element_at(lists, F.lit(_MARK)).isNotNull()
    return F.when(is_whole, F.try_element_at(of_text, F.lit(1)))


def _wrong(fields: str, wanted: StructType) -> Column:
    """What is wrong with a value, null if nothing is."""
    text, any_object = F.col("_text"), MapType(StringType(), StringType())
    begins_well = F.from_json(text, "map<string, string>").isNotNull()
    goes_on = begins_well & _event(_parsed(text, any_object)).isNull()
    wrong = F.when(text.isNull() | F.col("_event").isNotNull(), F.lit(None))
    wrong = wrong.when(text.rlike(r"^\s*$"), F.lit("the value is empty"))
    wrong = wrong.when(F.get_json_object(text, "$").isNull(), F.lit("the value is not JSON"))
    wrong = wrong.when(goes_on, F.lit("the value goes on after its JSON object"))
    wrong = wrong.otherwise(F.lit(f"the value does not fit the fields {fields}"))
    return F.coalesce(wrong, *_strange_times(wanted), _strange_record())


def _strange_record() -> Column:
    """A producer may send any number as the time of a record."""
    error = F.lit("the time of the record is not of the years 1 to 9999")
    return F.when(_is_strange(F.col(f"{RECORD}.timestamp"), TimestampType()), error)


def _strange_times(wanted: StructType) -> list[Column]:
    """For each field with times: the reason, if a year is one that other programs cannot express.

    from_json takes a number as seconds since 1970 and multiplies it by a million without a check
    for overflow, so that one of 13 digits or more (as seconds, a year after 30,000) may come out as
    any time. Where that may be so, times are read as text too.
    """
    have_times = [
        each for each in wanted if _any_time(F.lit(None), each.dataType, _is_strange) is not None
    ]
    texts = StructType([StructField(each.name, _as_text(each.dataType)) for each in have_times])
    found = []
    for field in have_times:
        name, kind = field.name, field.dataType
        written = _event(_parsed(F.col("_text"), texts)).getField(name)
        strange = _any_time(_field(field), kind, _is_strange)
        doubtful = _any_time(_field(field), kind, _may_have_overflowed)
        huge = _any_time(written, kind, lambda each, _: each.rlike("^-?[0-9]{13,}$"))
        assert strange is not None
        assert doubtful is not None
        assert huge is not None
        error = F.lit(f"a time in {name} is not of the years 1 to 9999")
        found.append(F.when(strange | F.when(doubtful, huge).otherwise(F.lit(False)), error))
    return found


def _may_have_overflowed(value: Column, kind: DataType) -> Column:
    """Whether a TIMESTAMP may be what is left of n * 10**6 - k * 2**64.

    Both are multiples of 64, and 2**64 is no whole second. (Some k, all multiples of 15625, are
    passed over: they take n of 2.8e17 or more.)
    """
    if not isinstance(kind, TimestampType):
        return F.lit(False)  # read from text only
    micros = F.unix_micros(value)
    return (micros % 64 == 0) & (micros % 1_000_000 != 0)


def _is_strange(value: Column, kind: DataType) -> Column:
    first, end = (F.lit(text).cast(kind) for text in (_FIRST_TIME, _END_OF_TIMES))
    return (value < first) | (value >= end)


def expressible(value: Column, kind: DataType) -> Column:
    """The value, but NULL for a time of a year that other programs cannot express."""
    is_time = isinstance(kind, TimestampType | TimestampNTZType | DateType)
    return F.when(~_is_strange(value, kind), value) if is_time else value


def _any_time(
    value: Column, kind: DataType, test: Callable[[Column, DataType], Column]
) -> Column | None:
    """Whether the test holds for a time within a value of that type.

    None if the type has no times.
    """
    match kind:
        case TimestampType() | TimestampNTZType() | DateType():
            return F.coalesce(test(value, kind), F.lit(False))
        case StructType():
            parts = [_any_time(value.getField(each.name), each.dataType, test) for each in kind]
            have = [part for part in parts if part is not None]
            return reduce(or_, have) if have else None
        case ArrayType(elementType=inner) | MapType(valueType=inner):
            if _any_time(value, inner, test) is None:
                return None
            values = F.map_values(value) if isinstance(kind, MapType) else value
            found = F.exists(values, lambda each: cast("Column", _any_time(each, inner, test)))
            return F.coalesce(found, F.lit(False))
    return None


def _as_text(kind: DataType) -> DataType:
    """The type with text in the place of times: their JSON as it is written."""
    match kind:
        case TimestampType() | TimestampNTZType() | DateType():
            return StringType()
        case StructType():
            return StructType([StructField(each.name, _as_text(each.dataType)) for each in kind])
        case ArrayType(elementType=inner):
            return ArrayType(_as_text(inner))
        case MapType(valueType=inner):
            return MapType(kind.keyType, _as_text(inner))
    return kind


def _required(rows: DataFrame, require: str | None) -> DataFrame:
    if require is None:
        return rows
    unmet = F.lit(f"the condition is not met: {require}")
    is_tombstone = F.col(f"{RECORD}.value").isNull()
    is_met = is_tombstone | F.coalesce(condition(rows, "--require", require), F.lit(False))
    return rows.withColumn(ERROR, F.coalesce(ERROR, F.when(~is_met, unmet)))
