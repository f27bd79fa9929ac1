"""Checkpoints that were taken back, lost or restarted with other fields: a table has each record once, or the job refuses."""

import json
import logging
import shutil
from datetime import date

import deltalake
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from logfleet_spark.jobs import topic_to_table, window_counts
from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.metrics import Metrics
from logfleet_spark.jobs.running import Job, Stop
from pyspark.errors import StreamingQueryException

from e2e.harness.spark_topics import NumberedTopic
from e2e.harness.spark_topics import read_table as read

FIELDS = "n INT, at TIMESTAMP"
JANUARY_MS = 1_356_998_400_000


def send(topic, numbers):
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for n in numbers:
        value = json.dumps({"n": n, "at": f"2013-01-01T00:{n:02}:00"})
        producer.produce(topic.name, value, timestamp=JANUARY_MS + n * 60_000)
    assert producer.flush(20) == 0


@pytest.fixture
def topic(broker):
    return NumberedTopic(broker.bootstrap, partitions=1)


@pytest.fixture
def fresh(spark):
    """Runs something with an application of its own: one that has failed begins no batch any more."""

    def run(start):
        running = Job(spark, Metrics(), Stop())
        try:
            start(running)
        except StreamingQueryException:
            assert running.stop.failed is not None
            raise running.stop.failed[1] from None
        finally:
            running.close()

    return run


@pytest.fixture
def table(fresh, topic, tmp_path):
    """Runs topic_to_table to its end: the table `t`, the checkpoint `c` unless another is named."""

    def run(*more, checkpoint="c", fields=FIELDS):
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name]
        arguments += ["--output", str(tmp_path / "t"), "--fields", fields]
        if "--backfill" not in more:
            arguments += ["--checkpoint", str(tmp_path / checkpoint)]
        found = topic_to_table.parse_settings([*arguments, *more])
        fresh(lambda job: topic_to_table.run(job, found))

    return run


@pytest.fixture
def counts(fresh, topic, tmp_path):
    """Runs window_counts to its end, as `table` does."""

    def run(*more, checkpoint="c", output="t"):
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name]
        arguments += ["--fields", FIELDS, "--event-time", "at", "--sink", "delta"]
        arguments += ["--output", str(tmp_path / output)]
        arguments += ["--checkpoint", str(tmp_path / checkpoint)]
        found = window_counts.parse_settings([*arguments, *more])
        fresh(lambda job: window_counts.run(job, found))

    return run


def taken_back(checkpoint, by):
    """The newest batches are gone from a checkpoint, as if they had never been planned."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
    for number in numbers[-by:]:
        for log in ("offsets", "commits"):
            for name in (f"{number}", f".{number}.crc"):
                (checkpoint / log / name).unlink(missing_ok=True)


def thrice(run, topic):
    """Three batches of ten records."""
    send(topic, range(30))
    run("--max-offsets-per-trigger", "10")


@pytest.mark.parametrize("by", [1, 2])
def test_counts_refuse_a_checkpoint_that_was_taken_back(topic, counts, tmp_path, by):
    thrice(counts, topic)
    taken_back(tmp_path / "c", by)
    send(topic, range(30, 40))
    with pytest.raises(
        SettingError, match=r"an older checkpoint was restored.*new --checkpoint and a new --output"
    ):
        counts()
    assert read(tmp_path / "t")["count"].sum() == 30
    counts(checkpoint="new", output="u")
    assert read(tmp_path / "u")["count"].sum() == 40


@pytest.mark.parametrize("by", [1, 2])
def test_a_table_refuses_a_checkpoint_that_was_taken_back_and_takes_a_new_one(
    topic, table, tmp_path, by
):
    thrice(table, topic)
    taken_back(tmp_path / "c", by)
    send(topic, range(30, 40))
    with pytest.raises(
        SettingError, match=r"an older checkpoint was restored.*new --checkpoint.*only what"
    ):
        table()
    table(checkpoint="new")
    assert sorted(read(tmp_path / "t")["n"]) == list(range(40))


@pytest.mark.parametrize("by", [1, 2])
def test_a_checkpoint_taken_back_over_the_same_records_goes_on(topic, table, tmp_path, by):
    """Batches that are made again as they were are in the table already."""
    thrice(table, topic)
    taken_back(tmp_path / "c", by)
    table("--max-offsets-per-trigger", "10")
    assert sorted(read(tmp_path / "t")["n"]) == list(range(30))
    send(topic, range(30, 40))
    table()
    assert sorted(read(tmp_path / "t")["n"]) == list(range(40))


def test_a_lost_checkpoint_doubles_nothing(topic, table, tmp_path):
    send(topic, range(10))
    table()
    shutil.rmtree(tmp_path / "c")
    send(topic, range(10, 15))
    table("--max-offsets-per-trigger", "4")
    send(topic, range(15, 20))
    table()
    assert sorted(read(tmp_path / "t")["n"]) == list(range(20))


def test_a_stream_goes_on_over_what_a_backfill_has_added(topic, table, tmp_path):
    send(topic, range(10))
    table()
    send(topic, range(10, 20))
    table("--backfill")
    send(topic, range(20, 25))
    table("--max-offsets-per-trigger", "4")
    table("--backfill")
    assert sorted(read(tmp_path / "t")["n"]) == list(range(25))


def test_counts_of_another_checkpoint_are_refused(topic, counts, tmp_path):
    send(topic, range(10))
    counts()
    with pytest.raises(SettingError, match=r"was written by query .*: give the job an --output"):
        counts(checkpoint="other")
    assert read(tmp_path / "t")["count"].sum() == 10


@pytest.mark.parametrize(
    "more, names",
    [(["--window", "2 hours"], "length"), (["--group-by", "n % 2 AS n"], "--group-by")],
)
def test_counts_of_a_checkpoint_by_other_settings_are_refused(topic, counts, tmp_path, more, names):
    send(topic, range(10))
    counts("--group-by", "n")
    send(topic, range(10))
    with pytest.raises(SettingError, match=rf"by other settings \({names}\).*new --output"):
        counts("--group-by", "n", *more)
    counts("--group-by", "n")
    assert list(read(tmp_path / "t")["count"]) == [2] * 10


def test_a_type_that_changed_is_refused_and_a_field_that_is_new_is_added(
    topic, table, tmp_path, caplog
):
    send(topic, range(10))
    table()
    send(topic, range(10, 20))
    with pytest.raises(SettingError, match=r"field n is int there and bigint in --fields"):
        table(fields="n BIGINT, at TIMESTAMP")
    assert sorted(read(tmp_path / "t")["n"]) == list(range(10))
    with caplog.at_level(logging.INFO):
        table(fields="n INT, at TIMESTAMP, more STRING")
    assert "gets the new columns more" in caplog.text
    rows = read(tmp_path / "t")
    assert sorted(rows["n"]) == list(range(20))
    assert rows["more"].isna().all()


@pytest.mark.parametrize("source", ["logfleet", "kafka"])
def test_an_empty_topic_is_an_empty_table(table, tmp_path, source):
    table("--source", source)
    rows = read(tmp_path / "t")
    assert len(rows) == 0
    assert list(rows.columns) == [
        "topic", "partition", "offset", "timestamp", "key", "n", "at", "day"
    ]  # fmt: skip
    schema = pa.schema(deltalake.DeltaTable(tmp_path / "t").schema())
    assert schema.field("day").type == pa.date32()


def test_the_day_is_a_date(topic, table, tmp_path):
    send(topic, range(1))
    table()
    assert list(read(tmp_path / "t")["day"]) == [date(2013, 1, 1)]
