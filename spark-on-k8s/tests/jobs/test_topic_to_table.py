"""A topic as a table: each record is one row, whatever was run how often."""

import json
from datetime import UTC, datetime

import pandas as pd
import pytest
from confluent_kafka import Producer
from logfleet_spark.jobs import topic_to_table

from e2e.harness.spark_topics import NumberedTopic

FIELDS = "n INT, at TIMESTAMP"
DAY_MS = 86_400_000
JANUARY_MS = 1_356_998_400_000
"""2013-01-01T00:00Z"""


def send(topic, numbers):
    """Record n has the time of day n // 10 of 2013; every 7th is no JSON."""
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for n in numbers:
        at = datetime.fromtimestamp((JANUARY_MS + n // 10 * DAY_MS) / 1000, UTC)
        value = json.dumps({"n": n, "at": f"{at:%Y-%m-%dT%H:%M:%S}"}) if n % 7 else "{"
        time = JANUARY_MS + n // 10 * DAY_MS
        producer.produce(topic.name, value, f"k{n}", partition=n % 2, timestamp=time)
    assert producer.flush(20) == 0


@pytest.fixture
def topic(broker):
    made = NumberedTopic(broker.bootstrap, partitions=2)
    send(made, range(30))
    return made


@pytest.fixture
def run(job, topic, tmp_path):
    def run(*more, checkpoint="c"):
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name]
        arguments += ["--output", str(tmp_path / "t"), "--fields", FIELDS]
        if "--backfill" not in more:
            arguments += ["--checkpoint", str(tmp_path / checkpoint)]
        topic_to_table.run(job, topic_to_table.settings([*arguments, *more]))

    return run


def numbers(spark, folder, form):
    """n of each row by day, as any reader sees them."""
    rows = (
        pd.read_parquet(folder)
        if form == "parquet"
        else spark.read.format(form).load(str(folder)).toPandas()
    )
    assert not rows.duplicated(["topic", "partition", "offset"]).any()
    assert (rows["key"] == "k" + rows["n"].astype(int).astype(str)).all()
    days = rows.groupby(rows["day"].astype(str))["n"].agg(sorted)
    return {day: list(map(int, found)) for day, found in days.items()}


def want(upto, start=0):
    days: dict[str, list[int]] = {}
    for n in range(start, upto):
        if n % 7:
            days.setdefault(f"2013-01-{1 + n // 10:02}", []).append(n)
    return days


@pytest.mark.parametrize("form, source", [("parquet", "kafka"), ("delta", "logfleet")])
def test_a_stream_writes_each_record_once_also_in_a_batch_that_is_made_again(
    spark, topic, run, tmp_path, form, source
):
    run("--format", form, "--source", source)
    # as after a kill between the table's write and the checkpoint's
    for name in ("0", ".0.crc"):
        (tmp_path / "c" / "commits" / name).unlink()
    send(topic, range(30, 45))
    run("--format", form, "--source", source)
    assert numbers(spark, tmp_path / "t", form) == want(45)
    aside = pd.read_parquet(tmp_path / "t-rejected")
    assert len(aside) == len(range(0, 45, 7))
    assert set(aside["error"]) == {"the value is not JSON"}


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_backfill_adds_what_is_missing_between_its_bounds_and_nothing_twice(
    spark, topic, run, tmp_path, form
):
    between = ["--backfill", "--format", form, "--since", "2013-01-02", "--until", "2013-01-03"]
    for _ in range(2):
        run(*between)
        assert numbers(spark, tmp_path / "t", form) == want(20, start=10)
    by_offset = json.dumps({topic.name: {"0": 12, "1": 12}})
    run("--backfill", "--format", form, "--to-offsets", by_offset)
    assert numbers(spark, tmp_path / "t", form) == want(24)
    send(topic, range(30, 40))
    run("--backfill", "--format", form)
    run("--backfill", "--format", form)
    assert numbers(spark, tmp_path / "t", form) == want(40)


def test_the_day_is_of_a_column_and_values_need_not_be_json(job, topic, tmp_path):
    arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--backfill"]
    out = [
        "--output",
        str(tmp_path / "raw"),
        "--to-offsets",
        json.dumps({topic.name: {"0": 1, "1": 1}}),
    ]
    topic_to_table.run(job, topic_to_table.settings([*arguments, *out]))
    rows = pd.read_parquet(tmp_path / "raw").sort_values("partition")
    assert list(rows["value"]) == [b"{", b'{"n": 1, "at": "2013-01-01T00:00:00"}']
    assert set(rows["day"].astype(str)) == {"2013-01-01"}


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "write --checkpoint, or --backfill"),
        (["--checkpoint", "/c", "--since", "2013-01-01"], "are for --backfill"),
        (
            ["--backfill", "--since", "2013-01-02", "--until", "2013-01-01"],
            "--since lies at or after",
        ),
        (["--backfill", "--since", "2013-01-02", "--from-offsets", "{}"], "a time or offsets"),
        (["--backfill", "--since", "soon"], "'soon' is no time; write it as 2013-01-31T06"),
        (["--checkpoint", "/t"], "--checkpoint and --output are both /t"),
    ],
)
def test_a_wrong_argument_is_named(capsys, arguments, said):
    basic = ["--bootstrap-servers", "b:1", "--topic", "a", "--output", "/t"]
    with pytest.raises(SystemExit):
        topic_to_table.settings([*basic, *arguments])
    assert said in capsys.readouterr().err
