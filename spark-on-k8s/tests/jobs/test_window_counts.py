import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.records import ERROR, read_values, stream
from logfleet_spark.jobs.window_counts import (
    WindowCounts,
    as_records,
    columns_read,
    counted,
    parse_settings,
    with_event_time,
)
from logfleet_spark.jobs.windows import Windows
from pyspark.sql.functions import lit

from e2e.harness.watermark import appended_counts

FIELDS = "origin STRING, event_time TIMESTAMP, delay DOUBLE"
JOB = WindowCounts(event_time="event_time", watermark="1 hour", group_by="origin")
RECORD_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"
)


def records(spark, rows):
    at = datetime(2013, 1, 1, 5, 10, tzinfo=UTC)
    data = [
        (b"k", None if row is None else json.dumps(row).encode(), "t", 0, i, at)
        for i, row in enumerate(rows)
    ]
    return spark.createDataFrame(data, RECORD_SCHEMA)


def events(spark, rows, job=JOB, fields=FIELDS):
    return with_event_time(read_values(records(spark, rows), fields), job)


def made(spark, rows, fields=FIELDS, **changes):
    """Counts of rows. changes: of a job without groups by `event_time`."""
    job = WindowCounts(**{"event_time": "event_time", "watermark": "1 hour", **changes})
    return counted(events(spark, rows, job, fields), job)


def flight(origin, time, delay=0.0):
    return {"origin": origin, "event_time": time, "delay": delay}


def result(frame):
    return sorted((str(r["window_start"]), r["origin"], r["count"]) for r in frame.collect())


def test_rows_are_counted_per_window_and_group_and_cancelled_ones_are_not(spark):
    rows = [
        flight("JFK", "2013-01-01T05:59:59"),
        flight("JFK", "2013-01-01T06:00:00"),
        flight("EWR", "2013-01-01T06:59:59"),
        flight("JFK", "2013-01-01T06:30:00"),
        flight("JFK", None),
        None,
    ]
    assert result(made(spark, rows, group_by="origin").rows) == [
        ("2013-01-01 05:00:00", "JFK", 1),
        ("2013-01-01 06:00:00", "EWR", 1),
        ("2013-01-01 06:00:00", "JFK", 2),
    ]


def test_several_aggregates_and_groups_are_expressions_with_names(spark):
    fields = "`flight.origin` STRING, at BIGINT, price DECIMAL(8, 2), n BIGINT"
    at = 1_357_016_400_000
    most = 2**63 - 1
    rows = [
        {"flight.origin": "jfk", "at": at, "price": "1.50", "n": 0},
        {"flight.origin": "JFK", "at": at + 1, "price": "2.25", "n": 4},
        {"flight.origin": "ewr", "at": at, "price": "1", "n": most},
        {"flight.origin": "EWR", "at": at, "price": None, "n": most},
        {"flight.origin": "EWR", "at": most, "price": "9", "n": 1},
    ]
    aggregate = "sum(price) AS sum, count(*) AS n, sum(n) AS whole, max(concat('sum(', n)) AS `a max`, sum(8 / n) AS ratio"
    found = made(
        spark,
        rows,
        fields,
        event_time="timestamp_millis(at)",
        group_by="upper(`flight.origin`) AS `to.upper`, _record.key, partition + 1 AS next",
        aggregate=aggregate,
    )
    assert found.keys == ("window_start", "window_end", "to.upper", "key", "next")
    counts = sorted(map(tuple, found.rows.collect()))
    shown = [(str(row[0]), row[2], bytes(row[3]), *map(str, row[4:])) for row in counts]
    begin = "2013-01-01 05:00:00"
    assert shown == [
        # NULL: a sum that no BIGINT can hold, a division by zero; the event of the year 292,278,994 has no time
        (begin, "EWR", b"k", "1", "1.00", "2", "None", f"sum({most}", str(16 / most)),
        (begin, "JFK", b"k", "1", "3.75", "2", "4", "sum(4", "2.0"),
    ]


def test_names_of_fields_are_taken_as_they_stand_and_the_records_own_where_no_field_has_them(spark):
    rows = [
        {"Timestamp": "2013-01-01T07:10:00", "day": "mon", "a.b": 1},
        {"Timestamp": "2013-01-01T07:20:00"},
    ]
    fields = "Timestamp TIMESTAMP, day STRING, window INT, count INT, `a.b` INT"
    by: dict[str, Any] = {
        "group_by": "a.b, topic, day AS weekday",
        "aggregate": "count(window) AS windows, count(*) AS count",
    }
    found = made(spark, rows, fields, event_time="timestamp", **by)
    got = {tuple(row)[2:] for row in found.rows.collect()}
    assert got == {(1, "t", "mon", 0, 1), (None, "t", None, 0, 1)}
    own = made(spark, rows, fields, event_time="_record.timestamp").rows.collect()
    assert [(str(row["window_start"]), row["count"]) for row in own] == [("2013-01-01 05:00:00", 2)]


def test_a_group_or_an_aggregate_that_is_a_time_beyond_the_year_9999_is_null(spark):
    rows = [flight("JFK", "2013-01-01T05:00:00", days) for days in (1, 9e6, 8e6)]
    late = "date_add(event_time, CAST(delay AS INT))"
    found = made(
        spark, rows, group_by=f"{late} AS due", aggregate=f"max({late}) AS due_last, count(*) AS n"
    )
    got = {(str(row["due"]), str(row["due_last"]), row["n"]) for row in found.rows.collect()}
    assert got == {("2013-01-02", "2013-01-02", 1), ("None", "None", 2)}


def test_values_need_not_be_json(spark):
    data = [
        (b"k", value, "t", 0, i, datetime(2013, 1, 1, tzinfo=UTC))
        for i, value in enumerate((b"no JSON", None))
    ]
    job = WindowCounts(event_time="timestamp", watermark="1 hour", group_by="key")
    rows = with_event_time(read_values(spark.createDataFrame(data, RECORD_SCHEMA), ""), job)
    assert [(row["key"], row["count"]) for row in counted(rows, job).rows.collect()] == [("k", 2)]


def test_a_condition_filters_rows_before_they_are_counted(spark):
    rows = [flight("JFK", "2013-01-01T05:00:00", d) for d in (1.0, 20.0, 30.0)]
    counts = made(spark, rows, where="delay > 15").rows.collect()
    assert [row["count"] for row in counts] == [2]


def test_events_far_from_the_clock_are_rejected_unless_the_condition_leaves_them_out(spark):
    now = datetime.now(UTC)
    ages = {
        "1969-12-31T23:59:59Z": True,
        "1970-01-01T00:00:00Z": False,
        (now + timedelta(hours=1)).isoformat(): False,
        (now + timedelta(hours=3)).isoformat(): True,
        "2113-01-01T00:00:00Z": True,
    }
    rows = [flight("JFK", time) for time in ages]
    job = WindowCounts(event_time="event_time", watermark="1 hour", future="2 hours")
    found = events(spark, rows, job).orderBy("offset").collect()
    said = "the event time is before 1970-01-01 or more than 2 hours ahead of the clock"
    assert [row[ERROR] for row in found] == [
        said if is_wrong else None for is_wrong in ages.values()
    ]
    left = WindowCounts(
        event_time="event_time", watermark="1 hour", where="event_time < '2100-01-01'"
    )
    assert events(spark, rows, left).where("_error IS NOT NULL").count() == 1


BERLIN = "Europe/Berlin"
"""Its clocks went forward on 2013-03-31 at 01:00Z and back on 2013-10-27 at 01:00Z."""


@pytest.fixture
def in_zone(spark):
    def change(zone):
        spark.conf.set("spark.sql.session.timeZone", zone)

    yield change
    change("UTC")


@pytest.mark.parametrize("window", ["1 day", "1 hour"])
def test_windows_of_whole_days_are_days_of_the_time_zone_and_others_the_same_everywhere(
    spark, in_zone, window
):
    in_zone(BERLIN)
    times = pd.DatetimeIndex(
        [
            *pd.date_range("2013-03-30T21:30Z", "2013-04-01T00:30Z", freq="1h"),
            *pd.date_range("2013-10-26T20:30Z", "2013-10-28T00:30Z", freq="1h"),
        ]
    )
    rows = [flight("JFK", time.isoformat()) for time in times]
    found = made(spark, rows, windows=Windows(window, zone=BERLIN)).rows.selectExpr(
        "unix_timestamp(window_start) AS start", "unix_timestamp(window_end) AS end", "count"
    )
    got = sorted(map(tuple, found.collect()))
    starts = times.tz_convert(BERLIN).normalize() if window == "1 day" else times.floor("h")
    ends = starts + (pd.DateOffset(days=1) if window == "1 day" else pd.Timedelta(hours=1))
    seconds = [(int(a.timestamp()), int(b.timestamp())) for a, b in zip(starts, ends, strict=True)]
    assert got == sorted((*bounds, n) for bounds, n in Counter(seconds).items())
    if window == "1 day":
        assert {b - a for a, b, _ in got} == {23 * 3600, 24 * 3600, 25 * 3600}


def test_sessions_end_when_a_group_has_had_no_event_for_so_long(spark):
    minutes = {"A": [0, 9, 18, 40], "B": [5, 16]}
    rows = [flight(k, f"2013-01-01T05:{m:02}:00") for k, each in minutes.items() for m in each]
    found = made(spark, rows, windows=Windows(session="10 minutes"), group_by="origin").rows
    got = sorted(
        (r["origin"], f"{r['window_start']:%M}", f"{r['window_end']:%M}", r["count"])
        for r in found.collect()
    )
    assert got == [
        ("A", "00", "28", 3),
        ("A", "40", "50", 1),
        ("B", "05", "15", 1),
        ("B", "16", "26", 1),
    ]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"event_time": "delay"}, "--event-time 'delay' is DOUBLE; write a TIMESTAMP, such as"),
        ({"event_time": "when"}, "--event-time 'when': "),
        ({"event_time": "event_time, delay"}, "--event-time 'event_time, delay': Syntax error"),
        ({"where": "delay"}, "--where 'delay' is DOUBLE; write a condition"),
        ({"where": "gone > 1"}, "--where 'gone > 1': A column, variable, or function parameter"),
        ({"group_by": "gone"}, "--group-by 'gone': A column, variable, or function parameter"),
        ({"group_by": "upper(origin)"}, "--group-by 'upper(origin)': number 1 has no name; write"),
        ({"group_by": "delay AS day"}, "--group-by: the name day is taken; write `... AS another"),
        ({"group_by": "delay AS Window_Start"}, "--group-by: the name Window_Start is taken"),
        ({"group_by": "origin, upper(origin) AS ORIGIN"}, "--group-by: the name ORIGIN is taken"),
        ({"group_by": "count(*) AS n"}, "--group-by 'count(*) AS n': "),
        ({"group_by": "origin) AS x, (delay"}, "--group-by 'origin) AS x, (delay': "),
        ({"aggregate": "sum(delay)"}, "--aggregate 'sum(delay)': number 1 has no name; write"),
        ({"aggregate": "delay AS d"}, "--aggregate 'delay AS d': "),
        ({"aggregate": "sum(gone) AS g"}, "--aggregate 'sum(gone) AS g': A column, variable"),
        ({"aggregate": "count(*) AS origin", "group_by": "origin"}, "--aggregate: the name origin"),
        ({"aggregate": "count(*) AS window_end"}, "--aggregate: the name window_end is taken"),
    ],
)
def test_a_setting_that_spark_cannot_use_is_named_in_one_sentence(spark, changes, said):
    with pytest.raises(SettingError) as refused:
        made(spark, [], **changes)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_counts_become_records_keyed_by_window_and_groups(spark):
    rows = [flight("JFK", "2013-01-01T05:10:00"), flight(None, "2013-01-01T05:10:00", None)]
    by = made(spark, rows, group_by="origin")
    out = {
        r["key"]: json.loads(r["value"])
        for r in as_records(by.rows, by.groups, Windows()).collect()
    }
    assert set(out) == {"2013-01-01T05:00:00/JFK", "2013-01-01T05:00:00"}
    assert out["2013-01-01T05:00:00/JFK"]["count"] == 1
    by = made(spark, rows, group_by="origin, delay AS `d.e`")
    keys = {
        r["key"]
        for r in as_records(by.rows, by.groups, Windows("500 milliseconds", zone=BERLIN)).collect()
    }
    form = "2013-01-01T05:00:00.000000Z/"
    assert keys == {form + '["JFK","0.0"]', form + "[null,null]"}


def test_late_rows_are_dropped_exactly_as_the_model_says(spark, tmp_path):
    """A file per micro-batch; each one holds rows of all ages, the same for Spark and for the model."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    day = pd.Timestamp("2013-01-01")
    minutes = [[0, 30, 70], [200, 10, 100], [210, 15, 130, 190], [400, 90, 205, 330], [401, 260]]
    batches = [
        pd.DataFrame({"event_time": [day + pd.Timedelta(m, "min") for m in group], "origin": "JFK"})
        for group in minutes
    ]
    for number, batch in enumerate(batches):
        lines = [json.dumps(flight("JFK", t.isoformat())) for t in batch["event_time"]]
        path = source / f"{number}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (number, number))  # the file source reads in the order of these times
    read = spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", 1).json(str(source))
    events = with_event_time(read.withColumn(ERROR, lit(None).cast("string")), JOB)
    query = (
        counted(events, JOB)
        .rows.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    hour = pd.Timedelta(1, "h")
    model = appended_counts(batches, hour, hour)
    want = [
        (str(row.window_start), row.origin, row.count)
        for row in model.counts.itertuples(index=False, name="Row")
    ]
    got = result(spark.read.parquet(str(out)))
    assert got == want
    counted_rows = sum(count for _, _, count in got)
    assert counted_rows + model.dropped + model.still_open == sum(map(len, batches))
    assert model.dropped > 0


@pytest.mark.parametrize(
    "fields, settings, columns",
    [
        ("a INT", {}, ("value", "timestamp")),
        ("", {}, ("timestamp",)),
        ("a INT", {"group_by": "upper(KEY) AS k, a"}, ("value", "key", "timestamp")),
        ("a INT", {"where": "`partition` = 1"}, ("value", "partition", "timestamp")),
        (
            "a INT",
            {"aggregate": "COUNT( * ) AS n, max(offset) AS o"},
            ("value", "offset", "timestamp"),
        ),
        ("a INT", {"aggregate": "max(struct(*)) AS all"}, None),
        ("a INT", {"where": "_record.topic = 't'"}, None),
    ],
)
def test_counting_reads_the_columns_that_its_settings_name(fields, settings, columns):
    job = WindowCounts(**{"event_time": "timestamp", "watermark": "1 hour", **settings})
    assert columns_read(fields, job) == columns


@pytest.mark.parametrize(
    "more, columns",
    [
        ([], ["value", "timestamp"]),
        (["--option", "includeColumns=key,value,timestamp"], ["key", "value", "timestamp"]),
        (["--option", "includeheaders=true"], None),
        (["--source", "kafka"], None),
    ],
)
def test_the_source_makes_only_those_columns_unless_an_option_names_others(spark, more, columns):
    arguments = ["--bootstrap-servers", "b:1", "--topic", "t", "--event-time", "timestamp"]
    settings = parse_settings([*arguments, "--checkpoint", "/c", *more])
    found = stream(spark, settings, "t", ["value", "timestamp"]).columns
    assert found == columns if columns else len(found) >= 7


def test_rows_without_the_other_columns_are_counted_alike(spark):
    rows = records(spark, [flight("JFK", "2013-01-01T05:59:59")] * 3)
    job = WindowCounts(event_time="event_time", watermark="1 hour", group_by="origin")
    columns = columns_read(FIELDS, job)
    assert columns is not None
    read = rows.select(*columns)
    less = counted(with_event_time(read_values(read, FIELDS), job), job)
    assert result(less.rows) == [("2013-01-01 05:00:00", "JFK", 3)]
