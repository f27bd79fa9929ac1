"""Reads records as rows: their JSON values as columns, or the reason why a value cannot be read.

A record's value is one JSON object. `fields` names the fields to read from it, as DDL ("origin
STRING, event_time TIMESTAMP"). A record without a value (a tombstone) is a row whose fields are
null and which has no error.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
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
from logfleet_spark.options import APP_ID, EXACTLY_ONCE, VERSION, app_id_of_query

RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")
ERROR = "_error"
"""Column with the reason why a record is rejected; null if it is not."""
RECORD = "_record"
"""Column with the original record: a struct of the source's columns."""
EVENT_TIME = "_event_time"
RESERVED = (ERROR, RECORD, EVENT_TIME)
"""Names of the job's own columns, which no field may have."""
DAY = "day"
"""Column by which tables are partitioned: a date in the session's time zone."""
_CORRUPT = "_corrupt"
_MARK = uuid4().hex
"""A random name, which no value contains by chance or on purpose; see _parsed."""
_FIRST_TIME, _END_OF_TIMES = "0001-01-02", "9999-12-31"
"""Python and the readers of Parquet support the years 1 to 9999.

A day less at both ends leaves room for time zones.
"""


def options_of(settings: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source that every read of a job needs."""
    return {"kafka.bootstrap.servers": settings.bootstrap_servers, **dict(settings.option)}


def sink_options_of(settings: argparse.Namespace) -> dict[str, str]:
    """Return the options of the sink that every write of a job to a topic needs."""
    servers = settings.sink_bootstrap_servers or settings.bootstrap_servers
    once = {EXACTLY_ONCE: "true"} if getattr(settings, "exactly_once", False) else {}
    return {"kafka.bootstrap.servers": servers, **once, **dict(settings.sink_option)}


def send(
    records: DataFrame, settings: argparse.Namespace, topic: str | None, batch_id: int | None = None
) -> None:
    """Write records (key, value, perhaps headers) to `topic`, or to the one in the column `topic`.

    Records are written at least once; with the setting `exactly_once` those of a micro-batch once.
    batch_id: of the micro-batch, which makes one such call, in the thread of its query.
    """
    options = sink_options_of(settings) | ({"topic": topic} if topic else {})
    if getattr(settings, "exactly_once", False):
        query = records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query, "a micro-batch is written in the thread of its query"
        options = {APP_ID: app_id_of_query(query), VERSION: str(batch_id)} | options
    records.write.format(settings.source).options(**options).mode("append").save()


def stream_options(settings: argparse.Namespace, topics: str) -> dict[str, str]:
    """Return the options of the source for a stream.

    topics: the value of its option `subscribe`.
    """
    options = {
        "subscribe": topics,
        "startingOffsets": settings.starting_offsets,
        **options_of(settings),
    }
    if settings.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    return options


def stream(
    spark: SparkSession,
    settings: argparse.Namespace,
    topics: str,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Read topics as a stream, from the offsets in the settings.

    topics: as for `stream_options`. columns: those that are needed, None for all. Spark's own
    connector always returns all, and options in the settings take precedence.
    """
    options = stream_options(settings, topics)
    are_given = {"includecolumns", "includeheaders"} & {name.lower() for name in options}
    if columns is not None and settings.source == "logfleet" and not are_given:
        options["includeColumns"] = ",".join(columns)
    return spark.readStream.format(settings.source).options(**options).load()


def batch_options(
    settings: argparse.Namespace, topics: str, bounds: Mapping[str, str]
) -> dict[str, str]:
    """Return the options of the source for a batch. bounds: options such as endingTimestamp."""
    return {"subscribe": topics, **bounds, **options_of(settings)}


def batch(
    spark: SparkSession, settings: argparse.Namespace, topics: str, bounds: Mapping[str, str]
) -> DataFrame:
    """Read topics as a batch. bounds: options of the source, such as endingTimestamp."""
    options = batch_options(settings, topics, bounds)
    return spark.read.format(settings.source).options(**options).load()


def fields_of(ddl: str) -> StructType:
    """Return the columns that a DDL string declares, none for "".

    Raises SettingError if the DDL is wrong or declares a field that is not allowed.
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
    """Return rows with the columns that SQL in settings may use, and with ERROR and RECORD.

    The columns are the fields, then those of RECORD_COLUMNS that were read and whose name no field
    has, with the key as text.

    fields: DDL; with "" no value is read, and none counts as wrong. require: a SQL condition over
    the columns; a row that does not meet it, or for which it is null, has an ERROR, except for
    tombstones. Raises SettingError if Spark cannot use `fields` or `require`.
    """
    wanted = fields_of(fields)
    rows = records.select(F.struct(*records.columns).alias(RECORD))
    taken = {field.name.lower() for field in wanted}
    own = [name for name in RECORD_COLUMNS if name in records.columns and name not in taken]
    columns = [F.col(f"{RECORD}.{name}") for name in own if name != "key"]
    if "key" in own:
        columns.insert(0, F.col(f"{RECORD}.key").cast("string").alias("key"))
    if not fields:
        return _checked_against(
            rows.select(*columns, _strange_record().alias(ERROR), RECORD), require
        )
    text = F.col(f"{RECORD}.value").cast("string")
    try:
        parsed = rows.select(RECORD, text.alias("_text"), _parsed(text, wanted).alias("_parsed"))
        read = parsed.select(RECORD, "_text", _event(F.col("_parsed")).alias("_event"))
    except PySparkException as problem:
        raise SettingError(f"--fields {fields!r} cannot be read: {reason(problem)}") from None
    columns += [_field(field).alias(field.name) for field in wanted]
    return _checked_against(
        read.select(*columns, _rejection(fields, wanted).alias(ERROR), RECORD), require
    )


def rejected(events: DataFrame) -> DataFrame:
    """Return the original records of rows with an ERROR, with the columns `error` and DAY.

    DAY is the day of the record's timestamp. A timestamp that other programs cannot express is
    null.
    """
    wrong = events.where(F.col(ERROR).isNotNull())
    rows = wrong.select(f"{RECORD}.*", F.col(ERROR).alias("error"))
    time = expressible(F.col("timestamp"), TimestampType())
    return rows.withColumn("timestamp", time).withColumn(DAY, F.to_date("timestamp"))


def _field(field: StructField) -> Column:
    return F.col("_event").getField(field.name)


def _parsed(text: Column, kind: DataType) -> Column:
    """Parse the text inside other JSON; return a struct of a map and _CORRUPT, the input of _event.

    _CORRUPT is null if all of the JSON could be parsed. from_json reads the first JSON value of a
    text and ignores whatever follows. Therefore the text is put in a list within a map, followed by
    an entry named _MARK. If the text is exactly one value, the map has two entries: a list of that
    value, and _MARK. Text that closes the list or the map early, or goes on after the value, cannot
    produce both, as it does not know _MARK.
    """
    whole = F.concat(F.lit('{"map":{"":['), text, F.lit(f'],"{_MARK}":[]}}}}'))
    inner = MapType(StringType(), ArrayType(kind))
    shape = StructType([StructField("map", inner), StructField(_CORRUPT, StringType())])
    return F.from_json(whole, shape, {"columnNameOfCorruptRecord": _CORRUPT})


def _event(parsed: Column) -> Column:
    """Return the parsed value; null if the text is not exactly one value of the right type."""
    lists = parsed["map"]
    of_text = F.try_element_at(lists, F.lit(""))
    is_whole = parsed[_CORRUPT].isNull() & (F.size(lists) == 2) & (F.size(of_text) == 1)
    is_whole &= F.try_element_at(lists, F.lit(_MARK)).isNotNull()
    return F.when(is_whole, F.try_element_at(of_text, F.lit(1)))


def _rejection(fields: str, wanted: StructType) -> Column:
    """Return the reason why a value cannot be read; null if it can."""
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
    """Return an error if the record's own time is out of range: producers may send any number."""
    error = F.lit("the time of the record is outside the years 1 to 9999")
    return F.when(_is_strange(F.col(f"{RECORD}.timestamp"), TimestampType()), error)


def _strange_times(wanted: StructType) -> list[Column]:
    """Return an error for each field with times; null if other programs can express all its times.

    from_json takes a number as seconds since 1970 and multiplies it by a million without a check
    for overflow, so a number of 13 digits or more (as seconds, a year after 30,000) may result in
    any time. Where that is possible, the times are also read as text.
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
        error = F.lit(f"a time in {name} is outside the years 1 to 9999")
        found.append(F.when(strange | F.when(doubtful, huge).otherwise(F.lit(False)), error))
    return found


def _may_have_overflowed(value: Column, kind: DataType) -> Column:
    """Return whether a TIMESTAMP may be the result of an overflow: n * 10**6 - k * 2**64.

    Such a result is a multiple of 64, as both terms are, but not a whole second, as 2**64 is none.
    (Some k, all multiples of 15625, are missed; they need n of 2.8e17 or more.)
    """
    if not isinstance(kind, TimestampType):
        return F.lit(False)  # from_json reads other types from text only, not from numbers
    micros = F.unix_micros(value)
    return (micros % 64 == 0) & (micros % 1_000_000 != 0)


def _is_strange(value: Column, kind: DataType) -> Column:
    first, end = (F.lit(text).cast(kind) for text in (_FIRST_TIME, _END_OF_TIMES))
    return (value < first) | (value >= end)


def expressible(value: Column, kind: DataType) -> Column:
    """Return the value, or NULL if it is a time that other programs cannot express."""
    is_time = isinstance(kind, TimestampType | TimestampNTZType | DateType)
    return F.when(~_is_strange(value, kind), value) if is_time else value


def _any_time(
    value: Column, kind: DataType, test: Callable[[Column, DataType], Column]
) -> Column | None:
    """Return whether the test holds for any time within a value of that type.

    None if the type contains no times.
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
    """Return the type with text in the place of times, to read times as the JSON has them."""
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


def _checked_against(rows: DataFrame, require: str | None) -> DataFrame:
    if require is None:
        return rows
    unmet = F.lit(f"the condition is not met: {require}")
    is_tombstone = F.col(f"{RECORD}.value").isNull()
    is_met = is_tombstone | F.coalesce(condition(rows, "--require", require), F.lit(False))
    return rows.withColumn(ERROR, F.coalesce(ERROR, F.when(~is_met, unmet)))
