"""The job `window_counts` as its arguments start it, with either source, on a broker."""

import json
import threading

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from logfleet_spark.jobs import window_counts
from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.running import Job, Stop
from pyspark.errors import StreamingQueryException

from e2e.harness.spark_topics import NumberedTopic, read_table, wait_until

FIELDS = "origin STRING, event_time TIMESTAMP, delay DOUBLE"
EVENTS = [("A", 1, 0.0), ("A", 59, 20.0), ("B", 30, 0.0), ("A", 60, 30.0), ("A", 300, 0.0)]
"""(key and origin, minute of the day, delay)"""
COUNTS = {("00:00", "A"): 2, ("00:00", "B"): 1, ("01:00", "A"): 1, ("05:00", "A"): 1}
CLOSED = {window: count for window, count in COUNTS.items() if window[0] < "04:00"}
"""What append mode has written once the watermark stands one hour before the last event."""
MIDNIGHT_MS = 1_356_998_400_000
NO_JSON = b"\xff{"


@pytest.fixture(scope="module")
def events(broker):
    """A topic of events; the records' own time is the events'. One more has no event time, so it is not counted, one is no JSON."""
    topic = NumberedTopic(broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, minute, delay in EVENTS:
        time = f"2013-01-01T{minute // 60:02}:{minute % 60:02}:00"
        value = json.dumps({"origin": key, "event_time": time, "delay": delay})
        producer.produce(topic.name, value, key, timestamp=MIDNIGHT_MS + minute * 60_000)
    cancelled = json.dumps({"origin": "A", "event_time": None})
    producer.produce(topic.name, cancelled, "A", timestamp=MIDNIGHT_MS)
    producer.produce(topic.name, NO_JSON, "A", timestamp=MIDNIGHT_MS)
    assert producer.flush(20) == 0
    return topic


@pytest.fixture
def run(job, events, tmp_path):
    """Runs the job to its end."""

    def run(*more):
        basic = ["--bootstrap-servers", events.bootstrap, "--topic", events.name]
        basic += ["--fields", FIELDS, "--watermark", "1 hour"]
        basic += ["--checkpoint", str(tmp_path / "checkpoint")]
        window_counts.run(job, window_counts.parse_settings([*basic, *more]))

    return run


@pytest.mark.parametrize(
    "source, sink, mode, want",
    [("logfleet", "parquet", "append", CLOSED), ("kafka", "delta", "update", COUNTS)],
)
def test_counts_by_a_json_field_reach_a_table(run, job, tmp_path, source, sink, mode, want):
    """What is no JSON is counted, and kept as it came; run again, the job finds nothing new."""
    out = tmp_path / "out"
    by_field = ["--event-time", "event_time", "--group-by", "origin", "--output-mode", mode]
    before = job.metrics.value("dead_letters")
    for _ in range(2):
        run("--source", source, *by_field, "--sink", sink, "--output", str(out))
        rows = read_table(out)
        assert {
            (f"{row.window_start:%H:%M}", row.origin): row.count
            for row in rows.itertuples(index=False, name="Row")
        } == want
        assert len(rows) == len(want)
    assert set(rows["day"].astype(str)) == {"2013-01-01"}
    kept = read_table(tmp_path / "out-rejected")
    assert list(kept["value"]) == [NO_JSON]
    assert list(kept["error"]) == ["the value is not JSON"]
    wait_until(lambda: job.metrics.value("dead_letters") == before + 1)


def test_a_run_tells_its_rows_its_late_rows_and_that_nothing_is_left(job, broker, tmp_path):
    """A record per batch; the last comes hours after its window was closed."""
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for hour in ("00", "05", "10", "00"):
        producer.produce(topic.name, json.dumps({"event_time": f"2013-01-01T{hour}:00:00"}))
    assert producer.flush(20) == 0
    names = ("rows", "batches", "late_rows")
    before = {name: job.metrics.value(name) for name in names}
    arguments = [
        *("--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--window", "1 hour"),
        *("--fields", "event_time TIMESTAMP", "--event-time", "event_time"),
        *("--watermark", "1 hour", "--max-offsets-per-trigger", "1"),
        *("--checkpoint", str(tmp_path / "checkpoint")),
    ]
    window_counts.run(job, window_counts.parse_settings(arguments))
    told = lambda: {name: job.metrics.value(name) - before[name] for name in names}  # noqa: E731
    wait_until(lambda: told()["batches"] >= 4)
    wait_until(lambda: told() | {"batches": 4} == {"rows": 4, "batches": 4, "late_rows": 1})
    lag = {"topic": topic.name, "partition": "0"}
    assert job.metrics.registry.get_sample_value("logfleet_spark_lag", lag) == 0
    assert job.metrics.value("last_progress_seconds") > 1_700_000_000


@pytest.mark.parametrize("source", ["logfleet", "kafka"])
def test_records_are_kept_from_the_first_rejected_one_on_by_a_second_query_that_is_there_from_then(
    job, broker, tmp_path, source
):
    """What came before is not read again; a run that ended right after its last batch is made up for at the next start."""
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    checkpoint, out = tmp_path / "c", tmp_path / "out"
    milliseconds = json.dumps({"event_time": MIDNIGHT_MS})

    def run(*values, rejected=f"{out}-rejected"):
        for value in values:
            producer.produce(topic.name, value)
        assert producer.flush(20) == 0
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name]
        arguments += ["--fields", FIELDS, "--event-time", "event_time", "--source", source]
        arguments += ["--sink", "delta", "--output", str(out), "--checkpoint", str(checkpoint)]
        window_counts.run(job, window_counts.parse_settings([*arguments, "--rejected", rejected]))

    good = json.dumps({"event_time": "2013-01-01T00:10:00"})
    run(good, good)
    assert not (tmp_path / "c-rejected").exists()
    run(good, milliseconds, rejected="none")
    run(good)
    run(good, NO_JSON, good + good)
    assert read_table(out)["count"].sum() == 5
    kept = read_table(tmp_path / "out-rejected").sort_values("offset")
    assert dict(zip(kept["offset"], kept["error"], strict=True)) == {
        3: "a time in event_time is outside the years 1 to 9999",
        6: "the value is not JSON",
        7: "the value goes on after its JSON object",
    }
    assert json.loads(next((tmp_path / "c-rejected" / "from").glob("part-*")).read_text()) == {
        topic.name: {"0": 2}
    }


def test_one_clock_that_is_wrong_closes_no_windows(job, broker, tmp_path):
    """A record per batch; without --future the watermark would stand in 2113 for the last one."""
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for year in (2013, 2113, 2013):
        producer.produce(topic.name, json.dumps({"event_time": f"{year}-01-01T00:10:00"}))
    assert producer.flush(20) == 0
    out = tmp_path / "out"
    arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--fields", FIELDS]
    arguments += ["--event-time", "event_time", "--sink", "delta", "--output", str(out)]
    arguments += ["--checkpoint", str(tmp_path / "c"), "--max-offsets-per-trigger", "1"]
    window_counts.run(job, window_counts.parse_settings(arguments))
    assert list(read_table(out)["count"]) == [2]
    assert list(read_table(tmp_path / "out-rejected")["offset"]) == [1]


def test_a_job_that_goes_on_keeps_a_rejected_record_while_it_runs(job, broker, tmp_path):
    topic = NumberedTopic(broker.bootstrap, partitions=2)
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    producer.produce(topic.name, NO_JSON, partition=1)
    assert producer.flush(20) == 0
    kept = tmp_path / "out-rejected"
    arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--fields", FIELDS]
    arguments += [
        "--event-time",
        "event_time",
        "--sink",
        "delta",
        "--output",
        str(tmp_path / "out"),
    ]
    arguments += ["--checkpoint", str(tmp_path / "c"), "--trigger", "0 seconds"]
    running = threading.Thread(
        target=window_counts.run, args=(job, window_counts.parse_settings(arguments))
    )
    running.start()
    try:
        wait_until(lambda: any(kept.glob("day=*/*.parquet")))
    finally:
        job.stop.ask()
        running.join()
    assert list(read_table(kept)["value"]) == [NO_JSON]


def test_sums_by_several_groups_and_sessions_reach_a_folder(run, tmp_path):
    """A's three events within an hour of one another are one session; the ones that are still open are not written."""
    aggregate = "sum(delay) AS late, count(*) AS n"
    by = ["--group-by", "origin, _record.key AS of", "--aggregate", aggregate]
    run(
        "--event-time",
        "event_time",
        *by,
        "--session",
        "61 minutes",
        "--sink",
        "parquet",
        "--output",
        str(tmp_path / "out"),
    )
    rows = read_table(tmp_path / "out")
    got = {
        (r.origin, f"{r.window_start:%H:%M}", f"{r.window_end:%H:%M}", r.late, r.n)
        for r in rows.itertuples()
    }
    assert got == {("A", "00:01", "02:01", 50.0, 3), ("B", "00:30", "01:31", 0.0, 1)}


@pytest.mark.parametrize(
    "arguments, said",
    [
        (
            ["--window", "1 month"],
            "argument --window: '1 month' is not an interval; write a number",
        ),
        (["--future", "soon"], "argument --future: 'soon' is not an interval"),
        (["--session", "1 hour", "--window", "1 hour"], "--session takes the place of --window"),
        (["--session", "1 hour"], "--session needs --group-by"),
        (["--aggregate", " "], '--aggregate names nothing; write "count(*) AS count"'),
        (["--slide", "2 hours"], "--slide is longer than --window"),
        (
            ["--session", "1 hour", "--group-by", "key", "--output-mode", "update"],
            "--session: Spark writes sessions once they are closed",
        ),
    ],
)
def test_a_wrong_argument_is_named_before_spark_starts(capsys, arguments, said):
    basic = ["--bootstrap-servers", "b:1", "--topic", "t", "--event-time", "timestamp"]
    with pytest.raises(SystemExit):
        window_counts.parse_settings([*basic, "--checkpoint", "/c", *arguments])
    assert said in capsys.readouterr().err


def test_an_aggregate_that_a_stream_cannot_have_is_named_before_the_first_batch(run, tmp_path):
    with pytest.raises(
        SettingError, match=r"^--group-by, --aggregate, --output-mode: .*istinct"
    ) as refused:
        run("--event-time", "event_time", "--aggregate", "count(DISTINCT origin) AS n")
    assert "\n" not in str(refused.value)
    assert not any((tmp_path / "checkpoint" / "commits").glob("*"))


def test_a_batch_that_drops_more_than_it_counts_is_a_warning(caplog):
    state = {"numRowsDroppedByWatermark": 3, "numRowsUpdated": 2}
    progress = {"batchId": 7, "stateOperators": [state], "eventTime": {"watermark": "2113-01-01"}}
    window_counts.warn_of_late_rows(progress)
    window_counts.warn_of_late_rows(progress | {"stateOperators": [state | {"numRowsUpdated": 3}]})
    assert [record.message for record in caplog.records] == [
        "batch 7 dropped 3 late rows, more than it counted: the watermark is 2113-01-01; if events are this late, give a longer --watermark"
    ]


@pytest.mark.parametrize(
    "source, mode, want", [("logfleet", "update", COUNTS), ("kafka", "append", CLOSED)]
)
def test_counts_by_the_records_key_and_time_reach_a_topic(spark, events, run, source, mode, want):
    out = NumberedTopic(events.bootstrap)
    by_record = ["--event-time", "timestamp", "--group-by", "key", "--output-mode", mode]
    where = ["--where", "event_time IS NOT NULL"]
    run("--source", source, *by_record, *where, "--sink", "topic", "--output", out.name)
    rows = [json.loads(bytes(r["value"])) for r in out.batch(spark).collect()]
    assert {(r["window_start"][11:16], r["key"]): r["count"] for r in rows} == want


def test_counts_of_a_batch_that_is_done_again_reach_a_topic_once_if_asked(
    spark, events, run, repeat_last_batch
):
    out = NumberedTopic(events.bootstrap)
    for _ in range(2):
        by_record = ["--event-time", "timestamp", "--where", "event_time IS NOT NULL"]
        run(*by_record, "--exactly-once", "--sink", "topic", "--output", out.name)
        repeat_last_batch("checkpoint")
    rows = [json.loads(bytes(r["value"])) for r in out.batch(spark).collect()]
    assert sorted(r["count"] for r in rows) == [1, 1, 3]


def test_counts_are_shown_on_the_console(run, capsys):
    run("--event-time", "event_time", "--where", "delay < 25", "--window", "1 day")
    shown = capsys.readouterr().out
    assert "|2013-01-01 00:00:00|2013-01-02 00:00:00|4    |" in shown


def test_more_counts_than_the_console_shows_are_counted(job, broker, tmp_path, capsys):
    """A task whose rows are not shown has counted them all the same: Spark ends a query whose state is not written."""
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--group-by", "key"]
    arguments += ["--event-time", "timestamp", "--checkpoint", str(tmp_path / "c")]
    for _ in range(2):
        topic.produce(range(100), spread=1)
        window_counts.run(job, window_counts.parse_settings(arguments))
    assert "|2    |" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["logfleet", "kafka"])
def test_a_job_starts_again_where_its_topic_has_grown_and_lost_what_was_counted(
    job, broker, tmp_path, source
):
    """The search of the last batch for rejected records passes over what is gone or new."""
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--source", source]
    arguments += ["--event-time", "timestamp", "--checkpoint", str(tmp_path / "c")]
    arguments += ["--sink", "delta", "--output", str(tmp_path / "t")]
    topic.produce(range(5), spread=1)
    window_counts.run(job, window_counts.parse_settings(arguments))
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    for gone in admin.delete_records([TopicPartition(topic.name, 0, 5)]).values():
        gone.result(20)
    topic.grow(2)
    topic.produce(range(5, 8), spread=1)
    window_counts.run(job, window_counts.parse_settings(arguments))
    assert read_table(tmp_path / "t")["count"].sum() == 8


def test_a_stream_that_is_told_to_stop_ends_its_batch_and_goes_on_from_there(
    spark, job, events, tmp_path
):
    """The batch in which the stop is asked for is written; the next is not begun. Batch 0 is the start, without rows."""
    written = []

    def write(frame, batch_id):
        if batch_id == 1:
            job.stop.ask()
        written.append((batch_id, frame.count()))

    def query(running, write):
        rows = events.stream(spark, maxOffsetsPerTrigger="2")
        more = {"name": "q", "checkpoint": str(tmp_path / "c"), "trigger": "0 seconds"}
        return running.start(rows.writeStream, write, **more)

    job.run([query(job, write)])
    assert written == [(0, 0), (1, 2)]
    left = len(EVENTS) + 2 - 2
    again = Job(spark, job.metrics, Stop())
    rest = []

    def write_rest(frame, batch_id):
        rest.append((batch_id, frame.count()))
        if sum(count for _, count in rest) == left:
            again.stop.ask()

    again.run([query(again, write_rest)])
    assert rest[0][0] == 2
    assert sum(count for _, count in rest) == left


def test_a_query_that_fails_fails_the_job_and_ends_the_others(spark, job, events, tmp_path):
    def fail(frame, batch_id):
        raise RuntimeError("the disk is full")

    rows = events.stream(spark)
    trigger = "0 seconds"
    broken = job.start(
        rows.writeStream, fail, name="b", checkpoint=str(tmp_path / "b"), trigger=trigger
    )
    sound = job.start(
        rows.writeStream,
        lambda frame, _: frame.count(),
        name="s",
        checkpoint=str(tmp_path / "s"),
        trigger=trigger,
    )
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        job.run([sound, broken])
    assert not sound.isActive
