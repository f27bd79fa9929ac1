"""Upserts into PostgreSQL: counts grow in their rows, and a batch that is made again changes nothing."""

import json
import tempfile
from pathlib import Path

import pytest
from confluent_kafka import Producer
from logfleet_spark.jobs import window_counts
from logfleet_spark.jobs.jdbc import Database, upsert_statement
from py4j.protocol import Py4JJavaError

from e2e.harness import postgres
from e2e.harness.spark_topics import NumberedTopic

COLUMNS = "window_start timestamptz, window_end timestamptz, origin text, count bigint"
UNIQUE = "UNIQUE NULLS NOT DISTINCT (window_start, window_end, origin)"


@pytest.fixture(scope="module")
def database():
    # not below pytest's folders, which are closed to PostgreSQL's user
    with (
        tempfile.TemporaryDirectory(prefix="logfleet-postgres-") as folder,
        postgres.running(Path(folder)) as server,
    ):
        server.execute(f"CREATE TABLE counts ({COLUMNS}, {UNIQUE})")
        yield server


def test_a_statement_names_what_is_replaced():
    said = upsert_statement("s.t", "s.t_batch_1", ["a", 'b"', "n"], ["a", 'b"'])
    assert said == (
        'INSERT INTO s.t ("a", "b""", "n") SELECT "a", "b""", "n" FROM s.t_batch_1 '
        'ON CONFLICT ("a", "b""") DO UPDATE SET "n" = EXCLUDED."n"'
    )
    assert upsert_statement("t", "u", ["a"], ["a"]).endswith('ON CONFLICT ("a") DO NOTHING')


def test_counts_grow_in_their_rows_also_over_batches_that_are_made_again(
    job, broker, database, tmp_path
):
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    arguments = [
        *("--bootstrap-servers", topic.bootstrap, "--topic", topic.name, "--group-by", "origin"),
        *("--fields", "origin STRING, at TIMESTAMP", "--event-time", "at", "--sink", "jdbc"),
        *("--output", "counts", "--jdbc-url", database.jdbc_url, "--jdbc-user", postgres.SUPERUSER),
        *("--checkpoint", str(tmp_path / "c")),
    ]
    for round_ in range(2):
        for origin in ("JFK", "JFK", None):
            producer.produce(
                topic.name, json.dumps({"origin": origin, "at": "2013-01-01T05:10:00"})
            )
        assert producer.flush(20) == 0
        window_counts.run(job, window_counts.settings(arguments))
        want = [["JFK", str(2 * round_ + 2)], ["", str(round_ + 1)]]
        assert database.execute("SELECT origin, count FROM counts ORDER BY origin") == want
        # as after a kill between the database's commit and the checkpoint's
        last = max(int(p.name) for p in (tmp_path / "c" / "commits").glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (tmp_path / "c" / "commits" / name).unlink()
    assert database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [
        ["counts"]
    ]


def test_a_batch_that_the_database_refuses_changes_nothing(spark, database):
    database.execute("CREATE TABLE few (a text UNIQUE, n bigint CHECK (n < 5))")
    table = Database(database.jdbc_url, "few", postgres.SUPERUSER, None)
    table.upsert(spark.createDataFrame([("x", 1)], "a STRING, n LONG"), ["a"], 0)
    with pytest.raises(Py4JJavaError, match="few_n_check"):
        table.upsert(spark.createDataFrame([("x", 2), ("y", 9)], "a STRING, n LONG"), ["a"], 1)
    assert database.execute("SELECT * FROM few") == [["x", "1"]]
