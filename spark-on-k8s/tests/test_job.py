"""The job `window_counts` as its arguments start it, with either source, on a broker."""

import importlib.util
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from logfleet_spark.window_counts import newest_per_window

from e2e.harness.spark_topics import NumberedTopic

FIELDS = "origin STRING, event_time TIMESTAMP, delay DOUBLE"
EVENTS = [("A", 1, 0.0), ("A", 59, 20.0), ("B", 30, 0.0), ("A", 60, 30.0), ("A", 300, 0.0)]
"""(key and origin, minute of the day, delay)"""
COUNTS = {("00:00", "A"): 2, ("00:00", "B"): 1, ("01:00", "A"): 1, ("05:00", "A"): 1}
CLOSED = {window: count for window, count in COUNTS.items() if window[0] < "04:00"}
"""What append mode has written once the watermark stands one hour before the last event."""
MIDNIGHT_MS = 1_356_998_400_000


@pytest.fixture(scope="module")
def job():
    path = Path(__file__).resolve().parents[1] / "jobs" / "window_counts.py"
    spec = importlib.util.spec_from_file_location("window_counts_job", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def events(broker):
    """A topic of events; the records' own time is the events'. One more has no event time, so it is not counted."""
    topic = NumberedTopic(broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, minute, delay in EVENTS:
        time = f"2013-01-01T{minute // 60:02}:{minute % 60:02}:00"
        value = json.dumps({"origin": key, "event_time": time, "delay": delay})
        producer.produce(topic.name, value, key, timestamp=MIDNIGHT_MS + minute * 60_000)
    cancelled = json.dumps({"origin": "A", "event_time": None})
    producer.produce(topic.name, cancelled, "A", timestamp=MIDNIGHT_MS)
    assert producer.flush(20) == 0
    return topic


@pytest.fixture
def run(spark, job, events, tmp_path):
    """Runs the job to its end; gives the query."""

    def run(*more):
        basic = ["--bootstrap-servers", events.bootstrap, "--topic", events.name]
        basic += ["--fields", FIELDS, "--watermark", "1 hour"]
        basic += ["--checkpoint", str(tmp_path / "checkpoint")]
        query = job.start(spark, job.arguments([*basic, *more]))
        query.awaitTermination()
        return query

    return run


@pytest.mark.parametrize(
    "source, mode, want", [("logfleet", "append", CLOSED), ("kafka", "update", COUNTS)]
)
def test_counts_by_a_json_field_reach_a_folder(spark, run, tmp_path, source, mode, want):
    out = tmp_path / "out"
    by_field = ["--event-time", "event_time", "--group-by", "origin"]
    run(
        "--source",
        source,
        "--output-mode",
        mode,
        *by_field,
        "--sink",
        "parquet",
        "--output",
        str(out),
    )
    newest = newest_per_window(spark.read.parquet(str(out)), "origin").collect()
    got = {(r["window_start"].strftime("%H:%M"), r["origin"]): r["count"] for r in newest}
    assert got == want


@pytest.mark.parametrize(
    "source, mode, want", [("logfleet", "update", COUNTS), ("kafka", "append", CLOSED)]
)
def test_counts_by_the_records_key_and_time_reach_a_topic(spark, events, run, source, mode, want):
    out = NumberedTopic(events.bootstrap)
    by_record = [
        "--event-time",
        "timestamp",
        "--group-by",
        "key",
        "--where",
        "event_time IS NOT NULL",
    ]
    run(
        "--source",
        source,
        "--output-mode",
        mode,
        *by_record,
        "--sink",
        "topic",
        "--output",
        out.name,
    )
    rows = [json.loads(bytes(r["value"])) for r in out.batch(spark).collect()]
    assert {(r["window_start"][11:16], r["key"]): r["count"] for r in rows} == want


def test_counts_are_shown_on_the_console(run):
    query = run("--event-time", "event_time", "--where", "delay < 25", "--window", "1 day")
    sinks = [progress["sink"] for progress in query.recentProgress]
    assert max(sink["numOutputRows"] for sink in sinks) == 1
    assert "ConsoleTable" in sinks[0]["description"]


@pytest.mark.parametrize(
    "wrong, said",
    [
        (["--sink", "parquet"], "--sink parquet needs --output"),
        (["--sink", "topic"], "--sink topic needs --output"),
        (["--option", "minPartitions"], "--option: 'minPartitions' is not KEY=VALUE"),
        (["--output-mode", "complete"], "--output-mode"),
        (["--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger: '0' is not a positive"),
    ],
)
def test_a_wrong_argument_is_named_before_spark_starts(job, capsys, wrong, said):
    basic = ["--bootstrap-servers", "a:1", "--topic", "t", "--fields", FIELDS, "--checkpoint", "/c"]
    with pytest.raises(SystemExit):
        job.arguments([*basic, "--event-time", "event_time", *wrong])
    assert said in capsys.readouterr().err
