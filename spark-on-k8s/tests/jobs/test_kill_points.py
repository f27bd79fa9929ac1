"""Each job is killed at points of its batches and restarted until it has read its topic; then what
it wrote is compared with pandas.

A usual run has one case with 4,000 records. `FULL=1` runs all cases and points with 100,000:

    FULL=1 pytest -s spark-on-k8s/tests/jobs/test_kill_points.py
"""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from e2e.harness import postgres
from e2e.harness.killing.jobs import EXECUTORS, LOCAL, Checkpoint, SparkJob
from e2e.harness.killing.points import (
    Kill,
    Killed,
    Moment,
    Sink,
    driver,
    executor,
    python_workers,
    server,
)
from e2e.harness.killing.records import FIELDS, WATERMARK, counts, made, produced
from e2e.harness.killing.sinks import CommittedTopics, Folder, Table, Topics
from e2e.harness.postgres import Postgres
from e2e.harness.processes import Broker
from e2e.harness.spark_topics import NumberedTopic

FULL = bool(os.environ.get("FULL"))
RECORDS, BATCHES = (100_000, 10) if FULL else (4_000, 4)
pytestmark = pytest.mark.timeout(3600 if FULL else 600)
PLANNED, AMID, WRITTEN = Moment
COUNTS = (
    "CREATE TABLE {} (window_start timestamptz, window_end timestamptz, origin text, count bigint, "
    "UNIQUE NULLS NOT DISTINCT (window_start, window_end, origin))"
)


@dataclass
class World:
    """What all cases share: servers, the records, and their topic."""

    broker: Broker
    database: Postgres
    records: pd.DataFrame
    topic: NumberedTopic

    def kills(self, *points: str) -> list[Kill]:
        """Return the points by name; only a full run has those with a plus."""
        known = {
            "driver": driver,
            "python": python_workers,
            "executor": executor,
            "broker": lambda moment: server("broker", moment, self.broker),
            "database": lambda moment: server("database", moment, self.database),
        }
        chosen = [each.lstrip("+") for each in points if FULL or not each.startswith("+")]
        return [known[what](Moment[moment]) for what, moment in (each.split() for each in chosen)]


@pytest.fixture(scope="module")
def world(rig):
    broker = rig.broker({"log.retention.ms": "-1"})
    records = made(RECORDS)
    with (
        tempfile.TemporaryDirectory(prefix="logfleet-postgres-") as folder,
        postgres.running(Path(folder)) as database,
    ):
        yield World(broker, database, records, produced(broker.bootstrap, records))


@pytest.fixture
def run(world, tmp_path):
    """Runs a job over the topic, kills it at each of the points, and prints what was killed when."""

    def run(
        name: str,
        arguments: list[str],
        sink: Sink,
        *points: str,
        master: str = LOCAL,
        batches: int = BATCHES,
    ) -> None:
        given = ["--bootstrap-servers", world.broker.bootstrap, *arguments]
        checkpoint = None
        if name != "table_to_topic":
            checkpoint = Checkpoint(tmp_path / "checkpoint")
            given += ["--topic", world.topic.name, "--checkpoint", str(checkpoint.folder)]
            given += ["--fields", FIELDS]
            given += ["--max-offsets-per-trigger", str(RECORDS // batches)]
        job = SparkJob(name, given, tmp_path, master)
        killed = Killed(job, sink, checkpoint)
        try:
            killed.run(world.kills(*points))
        finally:
            job.close()
        print(f"\n{name} {' '.join(arguments[:2])}, {RECORDS} records, {master}")  # noqa: T201
        print("".join(f"  {line}\n" for line in killed.lines))  # noqa: T201

    return run


BY_ORIGIN = ["--event-time", "at", "--group-by", "origin"]
BY_ORIGIN += ["--watermark", f"{WATERMARK // pd.Timedelta(hours=1)} hours"]


def _times(column: pd.Series) -> pd.Series:
    return pd.to_datetime(column, utc=True).dt.tz_localize(None).astype("datetime64[ns]")


def assert_counts(found: pd.DataFrame, want: pd.Series) -> None:
    """Each window and origin once, with the count that pandas has. found: window_start, origin, count."""
    columns = ["window_start", "origin", "count"]
    found = found.assign(window_start=_times(found["window_start"]))[columns]
    pd.testing.assert_frame_equal(
        found.fillna({"origin": ""}).sort_values(columns).reset_index(drop=True),
        want.rename("count")
        .reset_index()
        .fillna({"origin": ""})
        .sort_values(columns)
        .reset_index(drop=True),
        check_dtype=False,
    )


def assert_rejected(world: World, found: pd.DataFrame, *kinds: str) -> None:
    """Records of these kinds are there as they came, each once. found: partition, offset, value."""
    want = world.records[world.records["kind"].isin(kinds)]
    columns = ["partition", "offset", "value"]
    pd.testing.assert_frame_equal(
        found.assign(value=[bytes(each).decode() for each in found["value"]])[columns]
        .sort_values(columns[:2])
        .reset_index(drop=True),
        want[columns].sort_values(columns[:2]).reset_index(drop=True),
        check_dtype=False,
    )


def test_counts_in_a_delta_table(world, run, tmp_path):
    folder = Folder(tmp_path / "out")
    arguments = ["--sink", "delta", "--output", str(folder.root), *BY_ORIGIN]
    points = ["+driver PLANNED", "+driver AMID", "driver WRITTEN", "+python PLANNED"]
    run("window_counts", arguments, folder, *points, "broker PLANNED")
    assert_counts(folder.rows(), counts(world.records, closed=False))
    assert_rejected(world, Folder(tmp_path / "out-rejected").rows(), "broken", "future")


@pytest.mark.full
def test_closed_counts_in_a_folder(world, run, tmp_path):
    folder = Folder(tmp_path / "out")
    arguments = ["--sink", "parquet", "--output", str(folder.root), *BY_ORIGIN]
    arguments += ["--output-mode", "append"]
    run("window_counts", arguments, folder, "+driver PLANNED", "+driver AMID", "driver WRITTEN")
    assert_counts(folder.rows(), counts(world.records, closed=True))
    assert_rejected(world, Folder(tmp_path / "out-rejected").rows(), "broken", "future")


@pytest.mark.full
def test_counts_in_a_database(world, run):
    table = Table(world.database, "killed")
    world.database.execute(COUNTS.format(table.name))
    arguments = ["--sink", "database", "--output", table.name, *BY_ORIGIN]
    arguments += ["--database-url", world.database.url]
    points = ["+driver PLANNED", "driver AMID", "+python PLANNED", "broker PLANNED"]
    run("window_counts", arguments, table, *points, "database AMID", "driver WRITTEN")
    assert_counts(table.rows(), counts(world.records, closed=False))


@pytest.mark.full
def test_counts_in_a_topic(world, run):
    """The last record of a key is its count."""
    out = NumberedTopic(world.broker.bootstrap, partitions=1)
    sink = Topics(world.broker.bootstrap, (out.name,))
    arguments = ["--sink", "topic", "--output", out.name, *BY_ORIGIN]
    run("window_counts", arguments, sink, "+driver PLANNED", "driver AMID", "+broker AMID")
    found = sink.rows().drop_duplicates("key", keep="last")
    rows = pd.DataFrame([json.loads(value) for value in found["value"]])
    assert_counts(rows, counts(world.records, closed=False))


@pytest.mark.full
def test_counts_with_executors_that_are_killed(world, run):
    table = Table(world.database, "on_executors")
    world.database.execute(COUNTS.format(table.name))
    arguments = ["--sink", "database", "--output", table.name, *BY_ORIGIN]
    arguments += ["--database-url", world.database.url]
    points = ["executor PLANNED", "+executor AMID", "+python PLANNED"]
    run("window_counts", arguments, table, *points, master=EXECUTORS)
    assert_counts(table.rows(), counts(world.records, closed=False))


@pytest.mark.full
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_topic_as_a_table(world, run, tmp_path, form):
    folder = Folder(tmp_path / "out")
    points = ["+driver PLANNED", "+driver AMID", "driver WRITTEN", "+python PLANNED"]
    arguments = ["--format", form, "--output", str(folder.root)]
    run("topic_to_table", arguments, folder, *points, "+broker PLANNED")
    columns = ["partition", "offset", "n", "origin", "at"]
    found = folder.rows()
    found = found.assign(at=_times(found["at"]), origin=found["origin"].fillna(""))
    want = world.records[world.records["kind"] != "broken"]
    is_empty = want["kind"] == "tombstone"
    want = want.assign(n=want["n"].mask(is_empty), origin=want["origin"].mask(is_empty).fillna(""))
    pd.testing.assert_frame_equal(
        found[columns].sort_values(columns[:2]).reset_index(drop=True),
        want[columns].sort_values(columns[:2]).reset_index(drop=True),
        check_dtype=False,
    )
    assert_rejected(world, Folder(tmp_path / "out-rejected").rows(), "broken")


@pytest.mark.full
def test_dead_letters(world, run):
    """Each record at least once; the headers of dead letters tell which are the same."""
    good, dead = (NumberedTopic(world.broker.bootstrap, partitions=1) for _ in range(2))
    sink = Topics(world.broker.bootstrap, (good.name, dead.name))
    arguments = ["--output-topic", good.name, "--dlq-topic", dead.name]
    points = ["+driver PLANNED", "driver AMID", "+python PLANNED", "broker AMID"]
    run("dlq_router", arguments, sink, *points)
    sound = world.records[world.records["kind"] != "broken"]
    values = [None if value is None else value.encode() for value in sound["value"]]
    rows = Topics(world.broker.bootstrap, (good.name,)).rows()
    assert set(zip(rows["key"], rows["value"], strict=True)) == set(
        zip([str(n).encode() for n in sound["n"]], values, strict=True)
    )
    letters = Topics(world.broker.bootstrap, (dead.name,)).rows()
    where = pd.DataFrame(list(letters.pop("headers"))).rename(
        columns=lambda n: n[len("__dlq.errors.") :]
    )
    assert set(where["topic"]) == {world.topic.name.encode()}
    letters = letters[["value"]].join(where[["partition", "offset"]].astype(int))
    assert_rejected(world, letters.drop_duplicates(["partition", "offset"]), "broken")
    doubled = len(rows) - len(sound), int(letters.duplicated(["partition", "offset"]).sum())
    print("  written twice: {} records, {} dead letters".format(*doubled))  # noqa: T201


ONCE = ["--exactly-once", "--sink-option", "kafka.batch.size=1000"]
"""With batches so small the write of a micro-batch takes so long that a kill meets it."""


def good_and_dead(world: World) -> CommittedTopics:
    made = [NumberedTopic(world.broker.bootstrap, partitions=1).name for _ in range(2)]
    return CommittedTopics(world.broker.bootstrap, (made[0], made[1]))


def assert_once(world: World, sink: CommittedTopics) -> None:
    """A reader of committed records finds each record once: in the good topic, or in the other."""
    values = (b"" if value is None else value.encode() for value in world.records["value"])
    want = sorted(zip((str(n).encode() for n in world.records["n"]), values, strict=True))
    rows = sink.rows()
    found = zip(rows["key"], (value or b"" for value in rows["value"]), strict=True)
    assert sorted(found) == want
    is_dead = ["__dlq.errors.topic" in headers for headers in rows["headers"]]
    assert sum(is_dead) == sum(world.records["kind"] == "broken")


@pytest.mark.full
def test_records_and_dead_letters_once(world, run):
    """The broker leads the topics, and is the coordinator of the transaction and of its number."""
    sink = good_and_dead(world)
    arguments = ["--output-topic", sink.names[0], "--dlq-topic", sink.names[1], *ONCE]
    points = ["driver AMID", "broker AMID", "driver WRITTEN", "broker WRITTEN", "driver WRITTEN"]
    run("dlq_router", arguments, sink, *points, batches=RECORDS // 4_000)
    assert_once(world, sink)


@pytest.mark.full
def test_records_and_dead_letters_once_with_executors_that_are_killed(world, run):
    sink = good_and_dead(world)
    arguments = ["--output-topic", sink.names[0], "--dlq-topic", sink.names[1], *ONCE]
    points = ["executor PLANNED", "executor AMID", "python AMID"]
    run("dlq_router", arguments, sink, *points, master=EXECUTORS)
    assert_once(world, sink)


@pytest.mark.full
def test_rows_of_a_table(world, run, tmp_path):
    """Each row is one record, however often the job is started."""
    world.records[["n", "origin"]].to_parquet(tmp_path / "rows.parquet")
    out = NumberedTopic(world.broker.bootstrap, partitions=1)
    sink = Topics(world.broker.bootstrap, (out.name,))
    arguments = ["--input", str(tmp_path / "rows.parquet"), "--format", "parquet"]
    arguments += ["--topic", out.name, "--key", "n"]
    run("table_to_topic", arguments, sink, "driver AMID", "+python AMID", "+broker AMID")
    found = sorted(int(key) for key in sink.rows()["key"])
    assert found == list(world.records["n"])
