import json
import os
from datetime import UTC, datetime

import pandas as pd
from logfleet_spark.jobs.records import ERROR, RECORD_COLUMNS, read_values
from logfleet_spark.jobs.window_counts import WindowCounts, as_records, counted
from pyspark.sql.functions import lit

from e2e.harness.watermark import appended_counts

FIELDS = "origin STRING, event_time TIMESTAMP, delay DOUBLE"
JOB = WindowCounts(
    fields=FIELDS, event_time="event_time", window="1 hour", watermark="1 hour", group_by="origin"
)
RECORD_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"
)


def records(spark, rows):
    data = [
        (b"k", None if row is None else json.dumps(row).encode(), "t", 0, i, None)
        for i, row in enumerate(rows)
    ]
    return spark.createDataFrame(data, RECORD_SCHEMA)


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
    counts = counted(read_values(records(spark, rows), FIELDS), JOB)
    assert result(counts) == [
        ("2013-01-01 05:00:00", "JFK", 1),
        ("2013-01-01 06:00:00", "EWR", 1),
        ("2013-01-01 06:00:00", "JFK", 2),
    ]


def test_a_field_takes_the_place_of_the_records_own_column_of_that_name(spark):
    rows = [{"Timestamp": "2013-01-01T05:10:00", "topic": "a"}]
    job = WindowCounts(
        fields="Timestamp TIMESTAMP, topic STRING",
        event_time="timestamp",
        window="1 hour",
        watermark="1 hour",
        group_by="topic",
    )
    events = read_values(records(spark, rows), job.fields)
    assert events.columns[:-2] == ["key", "partition", "offset", "Timestamp", "topic"]
    assert [row["topic"] for row in counted(events, job).collect()] == ["a"]


def test_values_need_not_be_json(spark):
    job = WindowCounts(fields="", event_time="timestamp", window="1 hour", watermark="1 hour")
    at = datetime(2013, 1, 1, 5, 10, tzinfo=UTC)
    data = [(b"k", value, "t", 0, i, at) for i, value in enumerate((b"no JSON", None))]
    events = read_values(spark.createDataFrame(data, RECORD_SCHEMA), job.fields)
    assert events.columns[:-2] == list(RECORD_COLUMNS)
    assert [row["count"] for row in counted(events, job).collect()] == [2]


def test_a_condition_filters_rows_before_they_are_counted(spark):
    rows = [flight("JFK", "2013-01-01T05:00:00", d) for d in (1.0, 20.0, 30.0)]
    job = WindowCounts(
        fields=FIELDS,
        event_time="event_time",
        window="1 hour",
        watermark="1 hour",
        where="delay > 15",
    )
    counts = counted(read_values(records(spark, rows), FIELDS), job).collect()
    assert [row["count"] for row in counts] == [2]


def test_counts_become_records_keyed_by_window_and_group(spark):
    rows = [flight("JFK", "2013-01-01T05:10:00")]
    out = as_records(counted(read_values(records(spark, rows), FIELDS), JOB), "origin").collect()
    assert [row["key"] for row in out] == ["2013-01-01T05:00:00/JFK"]
    assert json.loads(out[0]["value"])["count"] == 1


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
    events = read.withColumn(ERROR, lit(None).cast("string"))
    query = (
        counted(events, JOB)
        .writeStream.format("parquet")
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
