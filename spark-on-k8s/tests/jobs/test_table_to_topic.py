"""The rows of a table as records, each once."""

import json

import pandas as pd
import pytest
from logfleet_spark.jobs import table_to_topic

from e2e.harness.spark_topics import NumberedTopic

ROWS = pd.DataFrame({"name": ["a", "b", "b", None], "n": [1, 2, 2, 3]})
"""Two of them are the same."""


@pytest.fixture
def table(tmp_path):
    ROWS.to_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


@pytest.fixture
def topic(broker):
    return NumberedTopic(broker.bootstrap, partitions=2)


@pytest.fixture
def run(job, topic, table):
    def run(*more):
        arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", topic.name]
        arguments += ["--input", str(table)]
        table_to_topic.run(job, table_to_topic.settings([*arguments, *more]))

    return run


def values(spark, topic):
    return sorted(
        json.dumps(json.loads(bytes(row["value"]))) for row in topic.batch(spark).collect()
    )


@pytest.mark.parametrize("source", ["logfleet", "kafka"])
def test_every_row_is_sent_once_however_often_the_job_is_run(spark, run, topic, source):
    """Of rows that are the same each is sent; rows that come later are sent then."""
    want = [{"n": 3}, {"name": "a", "n": 1}, {"name": "b", "n": 2}, {"name": "b", "n": 2}]
    run("--source", source, "--where", "n < 3")
    run("--source", source)
    run("--source", source)
    assert values(spark, topic) == sorted(map(json.dumps, want))


def test_keys_values_and_ids_are_expressions(spark, run, topic):
    run("--key", "name", "--value", "concat('n', n)", "--id", "concat(name, n)", "--where", "n = 1")
    (row,) = topic.batch(spark, includeHeaders="true").collect()
    assert (bytes(row["key"]), bytes(row["value"])) == (b"a", b"n1")
    assert [(h["key"], bytes(h["value"])) for h in row["headers"]] == [("__table.row", b"a1")]


def test_a_sink_that_the_job_cannot_look_into_is_refused(capsys):
    basic = ["--bootstrap-servers", "b:1", "--topic", "a", "--input", "/t"]
    with pytest.raises(SystemExit):
        table_to_topic.settings([*basic, "--sink-bootstrap-servers", "c:1"])
    assert "--sink-bootstrap-servers: this job looks into" in capsys.readouterr().err
