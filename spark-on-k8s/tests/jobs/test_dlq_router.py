"""What cannot be read goes to a dead-letter topic, and comes back when it is mended."""

import json
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from logfleet_spark.jobs import dlq_router
from logfleet_spark.jobs.expressions import SettingError

from e2e.harness.spark_topics import NumberedTopic

FIELDS = "n INT, origin STRING"
VALUES = [
    b'{"n": 1, "origin": "A"}',
    b"{broken",
    b'{"n": "two"}',
    b'{"n": 3}',
    None,
    b'{"n": 5, "origin": "B"}',
]
TRACE: list[tuple[str, str | bytes | None]] = [("trace", b"\x01"), ("trace", b"\x02")]


@pytest.fixture
def topics(broker):
    """(source, good, dead letters); every record of the source has headers and a key."""
    made = [NumberedTopic(broker.bootstrap, partitions=2) for _ in range(3)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n, value in enumerate(VALUES):
        producer.produce(made[0].name, value, f"k{n}", partition=n % 2, headers=TRACE)
    assert producer.flush(20) == 0
    return made


@pytest.fixture
def run(job, topics, tmp_path):
    def run(*more, name="route"):
        source, good, dead = topics
        arguments = ["--bootstrap-servers", source.bootstrap, "--dlq-topic", dead.name]
        arguments += ["--fields", FIELDS, "--checkpoint", str(tmp_path / name)]
        if "--replay" not in more:
            arguments += ["--topic", source.name, "--output-topic", good.name]
        job.run(dlq_router.start(job, dlq_router.parse_settings([*arguments, *more])))

    return run


def held(spark, topic, source="logfleet"):
    """(key, value, headers) of all records, by key; values of a header as text where they are text."""
    rows = topic.batch(spark, source, includeHeaders="true").collect()
    found = []
    for row in sorted(rows, key=lambda r: (r["partition"], r["offset"])):
        headers = [(h["key"], bytes(h["value"])) for h in row["headers"] or []]
        value = None if row["value"] is None else bytes(row["value"])
        found.append((bytes(row["key"]).decode(), value, headers))
    return sorted(found, key=lambda record: record[0])


def ours(headers):
    return {key: value.decode() for key, value in headers if key.startswith("__dlq")}


@pytest.mark.parametrize("source", ["logfleet", "kafka"])
def test_each_record_goes_where_it_belongs_as_it_came(spark, job, topics, run, source):
    before = job.metrics.value("dead_letters")
    run("--source", source, "--require", "origin IS NOT NULL")
    first, good, dead = topics
    assert held(spark, good) == [(f"k{n}", VALUES[n], TRACE) for n in (0, 4, 5)]
    letters = held(spark, dead)
    assert [(key, value) for key, value, _ in letters] == [(f"k{n}", VALUES[n]) for n in (1, 2, 3)]
    assert all(headers[:2] == TRACE for _, _, headers in letters)
    told = [ours(headers) for _, _, headers in letters]
    assert [t["__dlq.errors.message"] for t in told] == [
        "the value is not JSON",
        f"the value does not fit the fields {FIELDS}",
        "the condition is not met: origin IS NOT NULL",
    ]
    places = [(t["__dlq.errors.partition"], t["__dlq.errors.offset"]) for t in told]
    assert places == [("1", "0"), ("0", "1"), ("1", "1")]
    assert {(t["__dlq.errors.topic"], t["__dlq.errors.attempts"]) for t in told} == {
        (first.name, "1")
    }
    age = datetime.now(UTC) - datetime.fromisoformat(told[0]["__dlq.errors.time"])
    assert 0 <= age.total_seconds() < 600
    assert job.metrics.value("dead_letters") == before + 3


def test_a_batch_that_is_done_again_is_written_once_if_asked(spark, topics, run, repeat_last_batch):
    _, good, dead = topics
    found = []
    for _ in range(2):
        run("--exactly-once")
        found.append((held(spark, good), held(spark, dead)))
        repeat_last_batch("route")
    assert [len(each) for each in found[0]] == [4, 2]
    assert found[0] == found[1]


def test_mended_letters_come_back_and_the_others_stay_dead_with_their_origin(
    spark, job, topics, run
):
    run()
    first, good, dead = topics
    before = job.metrics.value("replayed")
    mend = "CASE WHEN value = '{broken' THEN '{\"n\": 7}' ELSE value END"
    run("--replay", "--mend", mend, name="replay")
    assert held(spark, first)[-1] == ("k5", VALUES[5], TRACE)
    back = [record for record in held(spark, first) if record[0] == "k1"]
    assert sorted(back, key=str) == sorted(
        [("k1", b"{broken", TRACE), ("k1", b'{"n": 7}', TRACE)], key=str
    )
    assert job.metrics.value("replayed") == before + 1
    again = [(key, ours(headers)) for key, _, headers in held(spark, dead) if key == "k2"]
    told = sorted(again, key=lambda each: each[1]["__dlq.errors.attempts"])
    assert [t["__dlq.errors.attempts"] for _, t in told] == ["1", "2"]
    assert told[0][1]["__dlq.errors.offset"] == told[1][1]["__dlq.errors.offset"] == "1"
    # what came back is routed like any record
    run()
    assert json.loads(held(spark, good)[1][1]) == {"n": 7}


def test_a_letter_that_failed_too_often_stays_where_it_is(spark, topics, run):
    run()
    dead = topics[2]
    for number in range(3):
        run("--replay", "--attempts-max", "2", name="replay")
        assert len(held(spark, dead)) == 4, number


def test_a_value_that_cannot_be_mended_stays_as_it_is(spark, topics, run):
    """CAST gives NULL here; a record without a value would be a deletion where it goes back to."""
    run()
    first, _, dead = topics
    run("--replay", "--mend", "CAST(CAST(value AS INT) AS STRING)", name="replay")
    assert len(held(spark, first)) == len(VALUES)
    again = [(value, ours(headers)) for key, value, headers in held(spark, dead) if key == "k1"]
    told = sorted(again, key=lambda each: each[1]["__dlq.errors.attempts"])
    assert [(v, t["__dlq.errors.attempts"]) for v, t in told] == [
        (VALUES[1], "1"),
        (VALUES[1], "2"),
    ]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (
            ["--require", "gone > 1"],
            "--require 'gone > 1': A column, variable, or function parameter",
        ),
        (
            ["--replay", "--mend", "gone"],
            "--mend 'gone': A column, variable, or function parameter",
        ),
        (["--replay", "--mend", "trim(value"], "--mend 'trim\\(value': Syntax error"),
    ],
)
def test_sql_that_spark_cannot_use_is_named_before_the_first_batch(run, tmp_path, arguments, said):
    with pytest.raises(SettingError, match=f"^{said}"):
        run(*arguments)
    assert not (tmp_path / "route").exists()


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "write --topic, or --replay"),
        (["--topic", "a,d"], "--topic d is written to as well"),
        (["--topic", "a", "--output-topic", "a"], "--topic a is written to as well"),
        (["--topic", "a", "--output-topic", "d"], "--dlq-topic and --output-topic are both d"),
        (["--replay", "--topic", "a"], "--replay reads --dlq-topic: leave out --topic"),
        (["--topic", "a", "--mend", "value"], "--mend and --replay-topic are for --replay"),
    ],
)
def test_a_wrong_argument_is_named(capsys, arguments, said):
    basic = ["--bootstrap-servers", "b:1", "--fields", FIELDS, "--dlq-topic", "d"]
    with pytest.raises(SystemExit):
        dlq_router.parse_settings([*basic, "--checkpoint", "/c", *arguments])
    assert said in capsys.readouterr().err
