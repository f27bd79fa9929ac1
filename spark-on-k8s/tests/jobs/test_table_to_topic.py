"""The rows of a table as records, each once."""

import json

import deltalake
import pandas as pd
import pytest
from logfleet_spark.jobs import table_to_topic
from logfleet_spark.jobs.expressions import SettingError

from e2e.harness.spark_topics import NumberedTopic

ROWS = pd.DataFrame({"name": ["a", "b", "b", None], "n": [1, 2, 2, 3], "_id": 7, "a.b": 8})
"""Two of them are the same; no name is in the way of the job's own."""


@pytest.fixture
def table(tmp_path):
    deltalake.write_deltalake(tmp_path / "rows", ROWS)
    return tmp_path / "rows"


@pytest.fixture
def topic(broker):
    return NumberedTopic(broker.bootstrap, partitions=2)


@pytest.fixture
def run(job, topic, table):
    def run(*more):
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name]
        arguments += ["--input", str(table)]
        table_to_topic.run(job, table_to_topic.parse_settings([*arguments, *more]))

    return run


def values(spark, topic):
    return sorted(
        json.dumps(json.loads(bytes(row["value"]))) for row in topic.batch(spark).collect()
    )


@pytest.mark.parametrize("source", ["logfleet", "kafka"])
def test_every_row_is_sent_once_however_often_the_job_is_run(spark, run, topic, source):
    """Of rows that are the same each is sent; rows that come later are sent then."""
    plain: list[dict[str, object]] = [{"n": 3}, {"name": "a", "n": 1}, *2 * [{"name": "b", "n": 2}]]
    want = [row | {"_id": 7, "a.b": 8} for row in plain]
    run("--source", source, "--where", "n < 3")
    run("--source", source)
    run("--source", source)
    assert values(spark, topic) == sorted(map(json.dumps, want))


def test_a_table_may_be_plain_parquet(spark, run, topic, tmp_path):
    ROWS.to_parquet(tmp_path / "rows.parquet")
    run("--input", str(tmp_path / "rows.parquet"), "--format", "parquet", "--value", "name")
    sent = [row["value"] and bytes(row["value"]) for row in topic.batch(spark).collect()]
    assert sorted(sent, key=str) == sorted([b"a", b"b", b"b", None], key=str)


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["--input", "/nowhere"], r"--input /nowhere: no delta table is there"),
        (["--key", "nam"], r"--key nam: .*`nam` cannot be resolved"),
        (["--where", "n >"], r"--where n >: Syntax error at or near"),
    ],
)
def test_a_setting_that_does_not_suit_the_table_is_named(run, arguments, problem):
    with pytest.raises(SettingError, match=problem):
        run(*arguments)


def test_keys_values_and_ids_are_expressions(spark, run, topic):
    run("--key", "name", "--value", "concat('n', n)", "--id", "concat(name, n)", "--where", "n = 1")
    (row,) = topic.batch(spark, includeHeaders="true").collect()
    assert (bytes(row["key"]), bytes(row["value"])) == (b"a", b"n1")
    assert [(h["key"], bytes(h["value"])) for h in row["headers"]] == [("__table.row", b"a1")]


def test_a_sink_that_the_job_cannot_look_into_is_refused(capsys):
    basic = ["--bootstrap-servers", "b:1", "--topic", "a", "--input", "/t"]
    with pytest.raises(SystemExit):
        table_to_topic.parse_settings([*basic, "--sink-bootstrap-servers", "c:1"])
    assert "--sink-bootstrap-servers: this job also reads" in capsys.readouterr().err
