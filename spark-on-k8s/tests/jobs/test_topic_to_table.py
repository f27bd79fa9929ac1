"""A topic as a table: each record is one row, whatever was run how often."""

import json
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from logfleet_spark.jobs import topic_to_table
from logfleet_spark.jobs.expressions import SettingError

from e2e.harness.spark_topics import NumberedTopic
from e2e.harness.spark_topics import read_table as read

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
        topic_to_table.run(job, topic_to_table.parse_settings([*arguments, *more]))

    return run


def numbers(folder):
    """n of each row by day, as any reader sees them."""
    rows = read(folder)
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
    topic, run, tmp_path, form, source
):
    run("--format", form, "--source", source)
    # as after a kill between the table's write and the checkpoint's
    for name in ("0", ".0.crc"):
        (tmp_path / "c" / "commits" / name).unlink()
    send(topic, range(30, 45))
    run("--format", form, "--source", source)
    assert numbers(tmp_path / "t") == want(45)
    aside = read(tmp_path / "t-rejected")
    assert len(aside) == len(range(0, 45, 7))
    assert set(aside["error"]) == {"the value is not JSON"}


def test_a_backfill_adds_what_is_missing_between_its_bounds_and_nothing_twice(topic, run, tmp_path):
    between = ["--backfill", "--since", "2013-01-02", "--until", "2013-01-03"]
    for _ in range(2):
        run(*between)
        assert numbers(tmp_path / "t") == want(20, start=10)
    by_offset = json.dumps({topic.name: {"0": 12, "1": 12}})
    run("--backfill", "--to-offsets", by_offset)
    assert numbers(tmp_path / "t") == want(24)
    send(topic, range(30, 40))
    run("--backfill")
    run("--backfill")
    assert numbers(tmp_path / "t") == want(40)
    assert len(read(tmp_path / "t-rejected")) == len(range(0, 40, 7))


@pytest.mark.parametrize("more", [(), ("--backfill",)])
def test_a_record_of_a_strange_time_is_kept_aside_once_also_without_fields(
    job, broker, tmp_path, more
):
    """The year 1, as .NET's DateTime has it where it is not set."""
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    producer.produce(topic.name, "good", timestamp=JANUARY_MS)
    producer.produce(topic.name, "strange", timestamp=-62_135_596_800_000)
    assert producer.flush(20) == 0
    for number in range(2):  # each with a checkpoint of its own
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name]
        arguments += ["--output", str(tmp_path / "t"), *more]
        arguments += [] if more else ["--checkpoint", str(tmp_path / f"c{number}")]
        topic_to_table.run(job, topic_to_table.parse_settings(arguments))
    assert list(read(tmp_path / "t")["value"]) == [b"good"]
    assert list(read(tmp_path / "t-rejected")["value"]) == [b"strange"]


@pytest.fixture
def one(job, broker, tmp_path):
    """Runs a backfill of a topic of one record into the folder `t`, and reads it."""

    def one(value, fields, *more):
        topic = NumberedTopic(broker.bootstrap, partitions=1)
        producer = Producer({"bootstrap.servers": topic.bootstrap})
        producer.produce(topic.name, json.dumps(value), "k", timestamp=JANUARY_MS)
        assert producer.flush(20) == 0
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--backfill"]
        arguments += ["--output", str(tmp_path / "t"), "--fields", fields, *more]
        topic_to_table.run(job, topic_to_table.parse_settings(arguments))
        (row,) = read(tmp_path / "t").to_dict("records")
        assert row["topic"] == topic.name
        return {name: row[name] for name in row if name not in {"topic", "timestamp"}} | {
            "day": str(row["day"])
        }

    return one


def test_a_field_of_a_name_that_the_table_has_is_a_column_of_its_own(one):
    row = one({"offset": 7, "Key": "x", "day": "mon"}, "offset BIGINT, Key STRING, day STRING")
    assert row == {
        "partition": 0, "offset": 0, "key": "k", "value_offset": 7, "value_Key": "x",
        "value_day": "mon", "day": "2013-01-01",
    }  # fmt: skip


def test_names_may_hold_dots(one):
    row = one({"service.name": "s", "at.ms": 1e9}, "`service.name` STRING, `at.ms` DOUBLE",
              "--day-of", "timestamp_seconds(`at.ms`)")  # fmt: skip
    assert (row["service.name"], row["day"]) == ("s", "2001-09-09")


@pytest.mark.parametrize("day_of", ["at", "if(at > '', at, null)"])
@pytest.mark.parametrize(
    "at, day",
    [("2013-02-03T04:05:06", "2013-02-03"), ("soon", "2013-01-01"), ("+44971-01-01", "2013-01-01")],
)
def test_a_day_that_cannot_be_is_the_day_of_the_record(one, at, day, day_of):
    assert one({"at": at}, "at STRING", "--day-of", day_of)["day"] == day


def test_a_batch_is_a_field_but_in_parquet_where_it_is_a_column():
    assert topic_to_table.columns_of("batch INT", "delta") == {"batch": "batch"}
    assert topic_to_table.columns_of("batch INT", "parquet") == {"batch": "value_batch"}


def test_a_field_that_would_be_a_column_twice_is_refused():
    with pytest.raises(SettingError, match="offset would be the column value_offset, which is a"):
        topic_to_table.columns_of("offset INT, VALUE_offset INT", "delta")


def test_a_day_of_no_column_is_refused(one):
    with pytest.raises(SettingError, match=r"--day-of nothing: .*`nothing` cannot be resolved"):
        one({"a": 1}, "a INT", "--day-of", "nothing")


def test_values_need_not_be_json(job, topic, tmp_path):
    arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--backfill"]
    bound = json.dumps({topic.name: {"0": 1, "1": 1}})
    arguments += ["--output", str(tmp_path / "raw"), "--to-offsets", bound]
    topic_to_table.run(job, topic_to_table.parse_settings(arguments))
    rows = read(tmp_path / "raw").sort_values("partition")
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
        (["--backfill", "--format", "parquet"], "--backfill adds rows to Delta tables only"),
    ],
)
def test_a_wrong_argument_is_named(capsys, arguments, said):
    basic = ["--bootstrap-servers", "b:1", "--topic", "a", "--output", "/t"]
    with pytest.raises(SystemExit):
        topic_to_table.parse_settings([*basic, *arguments])
    assert said in capsys.readouterr().err
