"""Upserts into PostgreSQL: counts grow in their rows, a repeated batch changes nothing."""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from logfleet_spark.jobs import database, window_counts
from logfleet_spark.jobs.database import Database, DatabaseAway, upsert_statement
from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.metrics import Metrics
from logfleet_spark.jobs.running import Job, Stop

from e2e.harness import postgres
from e2e.harness.spark_topics import NumberedTopic, wait_until

COLUMNS = "window_start timestamptz, window_end timestamptz, origin text, count bigint"
UNIQUE = "UNIQUE NULLS NOT DISTINCT (window_start, window_end, origin)"
PAIR = "CREATE TABLE pair (a text UNIQUE NULLS NOT DISTINCT, n bigint)"


@pytest.fixture(scope="module")
def module_server():
    # not below pytest's folders, which are closed to PostgreSQL's user
    with (
        tempfile.TemporaryDirectory(prefix="logfleet-postgres-") as folder,
        postgres.running(Path(folder)) as server,
    ):
        yield server


@pytest.fixture
def server(module_server):
    """A database without tables."""
    module_server.execute("DROP SCHEMA public CASCADE")
    module_server.execute("CREATE SCHEMA public")
    return module_server


@pytest.fixture
def pairs(spark):
    return lambda *rows: spark.createDataFrame(rows, "a STRING, n LONG")


def counted(server):
    return dict(server.execute("SELECT origin, count FROM counts"))


@pytest.fixture
def run(spark, broker, server, tmp_path):
    """Produces events of these origins to a topic, by its name, and counts what it holds."""
    server.execute(f"CREATE TABLE counts ({COLUMNS}, {UNIQUE})")
    topics: dict[str, NumberedTopic] = {}

    def run(name, origins, *more):
        topic = topics.setdefault(name, NumberedTopic(broker.bootstrap, partitions=1))
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for origin in origins:
            value = {"origin": origin, "at": "2013-01-01T05:10:00"}
            producer.produce(topic.name, json.dumps(value))
        assert producer.flush(20) == 0
        arguments = [
            *("--bootstrap-servers", topic.bootstrap, "--topic", topic.name),
            *("--fields", "origin STRING, at TIMESTAMP", "--event-time", "at"),
            *("--group-by", "origin", "--checkpoint", str(tmp_path / name)),
            *("--sink", "database", "--output", "counts", "--database-url", server.url, *more),
        ]
        job = Job(spark.newSession(), Metrics(), Stop())
        window_counts.run(job, window_counts.parse_settings(arguments))

    return run


def test_two_jobs_fill_one_table_at_once(run, server):
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(run, name, [f"{name}0", f"{name}1"] * 20, "--max-offsets-per-trigger", "10")
            for name in ("A", "B")
        ]
        for job in jobs:
            job.result()
    assert counted(server) == dict.fromkeys(("A0", "A1", "B0", "B1"), "20")


def test_counts_grow_in_their_rows_also_over_batches_that_are_made_again(run, server, tmp_path):
    for round_ in range(2):
        run("again", ["JFK", "JFK", None])
        assert counted(server) == {"JFK": str(2 * round_ + 2), "": str(round_ + 1)}
        # as after a kill between the database's commit and the checkpoint's
        commits = tmp_path / "again" / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (commits / name).unlink()
    assert server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [
        ["counts"]
    ]


def test_a_statement_names_what_is_replaced():
    said = upsert_statement("s.t", ["a", 'b"', "n"], ["a", 'b"'])
    assert said == (
        'INSERT INTO s.t ("a", "b""", "n") SELECT "a", "b""", "n" FROM logfleet_batch '
        'ORDER BY "a", "b""" ON CONFLICT ("a", "b""") DO UPDATE SET "n" = EXCLUDED."n"'
    )
    assert upsert_statement("t", ["a"], ["a"]).endswith('ON CONFLICT ("a") DO NOTHING')


VALUES = [
    ("TIMESTAMP", "timestamptz", datetime(2013, 1, 1, 5, 10, 0, 7, UTC)),
    ("TIMESTAMP", "timestamptz", datetime(1, 1, 1, 0, 0, tzinfo=UTC)),
    ("TIMESTAMP_NTZ", "timestamp", datetime(1901, 2, 3, 4, 5, 6)),  # noqa: DTZ001
    ("DATE", "date", date(9999, 12, 31)),
    ("DECIMAL(38,18)", "numeric", Decimal("-12345678901234567890.000000000000000001")),
    ("DOUBLE", "double precision", float("inf")),
    ("DOUBLE", "double precision", 5e-324),
    ("LONG", "bigint", -(2**63)),
    ("BOOLEAN", "boolean", False),
    ("BINARY", "bytea", b"\0\xff\\\t\n"),
    ("STRING", "text", '\\N \\. \t\r\n\x07 "quoted" \U0001f600'),
    ("STRING", "text", ""),
    ("STRING", "text", None),
    ("STRING", "uuid", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
]


@pytest.mark.parametrize("kind, column, value", VALUES)
def test_a_value_is_the_same_in_the_database(spark, server, kind, column, value):
    """Read back by PostgreSQL's driver, as Python's value."""
    server.execute(f"CREATE TABLE one (k int UNIQUE, v {column})")
    rows = spark.createDataFrame([(1, value)], f"k INT, v {kind}")
    Database(server.url, "one").upsert(rows, ["k"])
    with psycopg.connect(server.url) as connection:
        found = connection.execute("SELECT v FROM one").fetchall()
    assert [(str(each) if column == "uuid" else each) for (each,) in found] == [value]


def test_a_group_too_long_for_an_index_is_refused_at_once(pairs, server):
    server.execute(PAIR)
    text = "".join(f"{number * 7919 % 1_000_003:x}" for number in range(4_000))
    with pytest.raises(SettingError, match=r"a group is too long for an index .*left"):
        Database(server.url, "pair").upsert(pairs((text, 1)), ["a"])


@pytest.mark.parametrize(
    "expression, text",
    [
        ("timestamp_seconds(1356998400000)", "44971-07-27 00:00:00+00"),
        ("timestamp'-0043-03-15 00:00:00'", "0044-03-15 00:00:00+00 BC"),
        ("double('NaN')", "NaN"),
        ("'a' || char(0)", r"\x6100"),
        ("string(x'61ff')", r"\x61ff"),
        ("array(1, null)", "[1,null]"),
        ("named_struct('a', 'b\"', 'c', array(1.5))", '{"a":"b\\"","c":[1.5]}'),
        ("map('k', date'2013-01-01')", '{"k":"2013-01-01"}'),
    ],
)
def test_a_value_that_python_or_postgresql_has_not_is_written_by_a_rule(
    spark, server, expression, text
):
    rows = spark.sql(f"SELECT 1 AS k, {expression} AS v")
    kind = database.TYPES[rows.schema["v"].dataType.typeName()]
    server.execute(f"CREATE TABLE one (k int UNIQUE, v {kind})")
    Database(server.url, "one").upsert(rows, ["k"])
    assert server.execute("SET TimeZone = 'UTC'; SELECT v FROM one")[-1] == [text]


def test_names_with_dots_and_capitals_are_quoted(spark, server):
    server.execute('CREATE TABLE public."By.Name" ("service.name" text UNIQUE, "N" int)')
    rows = spark.createDataFrame([("a", 1)], "`service.name` STRING, N INT")
    Database(server.url, 'public."By.Name"').upsert(rows, ["service.name"])
    assert server.execute('SELECT * FROM "By.Name"') == [["a", "1"]]


@pytest.mark.parametrize(
    "table, advice",
    [
        (None, 'CREATE TABLE pair ("a" text, "n" bigint, UNIQUE NULLS NOT DISTINCT ("a"))'),
        ("(a text UNIQUE)", 'ALTER TABLE pair ADD "n" bigint'),
        ("(a text, n int)", 'ALTER TABLE pair ADD UNIQUE NULLS NOT DISTINCT ("a")'),
        ("(a text UNIQUE, n int)", 'ALTER TABLE pair ADD UNIQUE NULLS NOT DISTINCT ("a")'),
    ],
)
def test_a_table_that_lacks_something_is_refused_with_the_statement_that_mends_it(
    pairs, server, table, advice
):
    if table is not None:
        server.execute(f"CREATE TABLE pair {table}")
    rows = pairs(("x", 1), (None, 2)) if table == "(a text UNIQUE, n int)" else pairs(("x", 1))
    with pytest.raises(SettingError, match=r"^--output pair: ") as refused:
        Database(server.url, "pair").upsert(rows, ["a"])
    assert advice in str(refused.value)
    server.execute(advice)
    Database(server.url, "pair").upsert(rows, ["a"])
    assert server.execute("SELECT n FROM pair ORDER BY n") == [[str(n)] for _, n in rows.collect()]


def test_a_batch_that_the_database_refuses_changes_nothing(pairs, server):
    server.execute("CREATE TABLE pair (a text UNIQUE, n bigint CHECK (n < 5))")
    table = Database(server.url, "pair")
    table.upsert(pairs(("x", 1)), ["a"])
    with pytest.raises(SettingError, match=r"the database refuses the batch: .*pair_n_check"):
        table.upsert(pairs(("x", 2), ("y", 9)), ["a"])
    assert server.execute("SELECT * FROM pair") == [["x", "1"]]


@pytest.mark.parametrize(
    "columns, expression, said",
    [
        ("a text UNIQUE, n int", "interval '1' day", "n is of type interval day, which"),
        ("a text UNIQUE, n int", "'many'", 'invalid input syntax for type integer: "many"; COPY'),
        ("a char(1) UNIQUE, n int", "2", "refuses the batch: value too long for type character"),
    ],
)
def test_a_type_that_does_not_fit_is_named(spark, server, columns, expression, said):
    server.execute(f"CREATE TABLE pair ({columns})")
    rows = spark.sql(f"SELECT 'abc' AS a, {expression} AS n")
    with pytest.raises(SettingError) as refused:
        Database(server.url, "pair").upsert(rows, ["a"])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wrong_password_is_refused_at_once_and_not_repeated_in_what_is_said(pairs, server):
    server.execute(
        f"CREATE ROLE {postgres.GUARDED} LOGIN PASSWORD 'right' IN ROLE pg_write_all_data"
    )
    server.execute(PAIR)
    url = server.url.replace(postgres.SUPERUSER, postgres.GUARDED)
    server.execute(f"GRANT ALL ON pair TO {postgres.GUARDED}")
    for wrong in (Database(url, "pair", "hidden"), Database(url.replace("@", ":hidden@"), "pair")):
        with pytest.raises(SettingError, match="LOGFLEET_DATABASE_PASSWORD") as refused:
            wrong.upsert(pairs(("x", 1)), ["a"])
        assert "password authentication failed" in str(refused.value)
        assert "hidden" not in str(refused.value)
    Database(url, "pair", "right").upsert(pairs(("x", 1)), ["a"])
    assert server.execute("SELECT * FROM pair") == [["x", "1"]]
    server.execute(f"DROP OWNED BY {postgres.GUARDED}")
    server.execute(f"DROP ROLE {postgres.GUARDED}")


def test_a_database_that_restarts_amid_a_batch_gets_it_when_it_is_back(pairs, server, caplog):
    server.execute(PAIR)
    other = psycopg.connect(server.url)
    with ThreadPoolExecutor(1) as pool:
        other.execute("LOCK TABLE pair IN SHARE MODE")  # the batch is copied, but not inserted
        done = pool.submit(Database(server.url, "pair").upsert, pairs(("x", 1)), ["a"])
        waiting = (
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^INSERT'"
        )
        wait_until(lambda: server.execute(f"SELECT EXISTS ({waiting})") == [["t"]])
        server.kill()
        wait_until(lambda: "trying again" in caplog.text)
        server.start()
        done.result()
    other.close()
    assert server.execute("SELECT * FROM pair") == [["x", "1"]]


def test_a_database_that_stays_away_ends_the_batch(pairs, server, monkeypatch):
    monkeypatch.setattr(database, "AWAY_S_MAX", 1.0)
    server.kill()
    try:
        with pytest.raises(DatabaseAway, match=r"accepted no batch for 1 s.*Connection refused"):
            Database(server.url, "pair").upsert(pairs(("x", 1)), ["a"])
    finally:
        server.start()


def test_a_batch_that_loses_a_deadlock_is_tried_again(pairs, server):
    server.execute(PAIR)
    server.execute("INSERT INTO pair VALUES ('x', 0), ('y', 0)")
    ours = f"{server.url}?options=-c%20deadlock_timeout%3D2s"
    with psycopg.connect(server.url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET deadlock_timeout = '1h'")  # ours is the one that finds it
        other.execute("UPDATE pair SET n = 7 WHERE a = 'y'")
        done = pool.submit(Database(ours, "pair").upsert, pairs(("x", 1), ("y", 1)), ["a"])
        waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: server.execute(f"SELECT EXISTS ({waiting})") == [["t"]])
        other.execute("UPDATE pair SET n = 7 WHERE a = 'x'")
        other.commit()
        done.result()
    assert server.execute("SELECT * FROM pair ORDER BY a") == [["x", "1"], ["y", "1"]]
