"""Tables of batches: whatever a driver was killed at, and whoever writes besides, each row is there once, or the write is refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Barrier

import pytest
from logfleet_spark.jobs import tables
from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.tables import (
    BATCH,
    Batch,
    DeltaTable,
    LatestTable,
    ParquetExport,
    backfill,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from e2e.harness.spark_topics import read_table as held

DAY1, DAY2 = date(2013, 1, 1), date(2013, 1, 2)
COUNTS = "name STRING, count LONG, day DATE"
RECORDS = "topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, n INT, day DATE"


class Query:
    """What a table sees of a query: its id, and the offsets in its checkpoint."""

    def __init__(self, spark, folder, name):
        self.spark = spark
        self.name = name
        self.checkpoint = folder / f"checkpoint-{name}"
        (self.checkpoint / "offsets").mkdir(parents=True)

    def write(self, table, rows, number, end):
        """A batch that reads up to the offset `end` of partition 0 of the topic t."""
        log = "\n".join(["v1", "{}", json.dumps({"t": {"0": end}})])
        (self.checkpoint / "offsets" / str(number)).write_text(log)
        self.spark.sparkContext.setLocalProperty("sql.streaming.queryId", self.name)
        table.write(rows, number)

    def table(self, root):
        """As after a start."""
        return DeltaTable(str(root), str(self.checkpoint))

    def latest(self, root):
        return LatestTable(str(root), ["name"], str(self.checkpoint))

    def export(self, root):
        return ParquetExport(str(root), str(self.checkpoint))


@pytest.fixture
def query(spark, tmp_path):
    return lambda name="q": Query(spark, tmp_path, name)


@pytest.fixture
def counts(spark):
    return lambda *rows: spark.createDataFrame(list(rows), COUNTS)


@pytest.fixture
def records(spark):
    """Records of these offsets."""

    def records(*offsets):
        at = datetime(2013, 1, 1, tzinfo=UTC)
        rows = [("t", 0, n, at, n, DAY1 if n % 2 else DAY2) for n in offsets]
        return spark.createDataFrame(rows, RECORDS)

    return records


def newest(root):
    rows = held(root)
    return sorted(zip(rows["name"].fillna("-"), rows["count"], rows["day"], strict=True))


def test_a_batch_that_is_written_again_is_there_once(query, records, tmp_path):
    stream, root = query(), tmp_path / "t"
    for number, numbers, end in ((0, (), 0), (1, (0, 1), 2), (1, (0, 1), 2), (2, (2, 3), 4)):
        stream.write(stream.table(root), records(*numbers), number, end)
    assert sorted(held(root)["n"]) == [0, 1, 2, 3]
    stream.write(table := stream.table(root), records(2, 3), 2, 4)
    stream.write(table, records(4), 3, 5)
    assert sorted(held(root)["n"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["table", "latest", "export"])
@pytest.mark.parametrize("number, end", [(2, 5), (1, 3)])
def test_a_batch_of_other_offsets_is_refused(query, records, tmp_path, kind, number, end):
    stream, root = query(), tmp_path / "t"
    rows = lambda *numbers: records(*numbers).withColumnRenamed("n", "name")  # noqa: E731
    for each in (1, 2):
        stream.write(getattr(stream, kind)(root), rows(2 * each, 2 * each + 1), each, 2 * each)
    with pytest.raises(SettingError, match=rf"holds batch 2 .* batch {number} has other offsets"):
        stream.write(getattr(stream, kind)(root), rows(8), number, end)


def test_a_batch_that_only_delta_remembers_is_refused(query, records, tmp_path, monkeypatch):
    """The history lasts for 30 days, the number of a query's last commit for good."""
    stream, root = query(), tmp_path / "t"
    stream.write(stream.table(root), records(0, 1), 5, 2)
    monkeypatch.setattr(tables, "COMMITS_MAX", 1)
    assert backfill(records(7), str(root)) == 1
    with pytest.raises(SettingError, match="from before its history begins"):
        stream.write(stream.table(root), records(2, 3), 5, 4)
    stream.write(stream.table(root), records(2, 3), 6, 4)
    assert sorted(held(root)["n"]) == [0, 1, 2, 3, 7]


def test_a_stream_that_was_killed_amid_rows_of_others_still_doubles_none(query, records, tmp_path):
    """Another query has written up to 6; this one is at 2, and is started anew after each batch."""
    first, second, root = query("first"), query("second"), tmp_path / "t"
    first.write(first.table(root), records(0, 1, 2, 3, 4, 5), 0, 6)
    for number, numbers in enumerate([(0, 1), (2, 3), (4, 5, 6), (7, 8)]):
        second.write(second.table(root), records(*numbers), number, numbers[-1] + 1)
    assert sorted(held(root)["n"]) == list(range(9))


def test_maintenance_costs_no_scan(spark, query, records, tmp_path):
    stream, root = query(), tmp_path / "t"
    stream.write(stream.table(root), records(0, 1), 0, 2)
    spark.sql(f"OPTIMIZE delta.`{root}`").collect()
    stream.write(table := stream.table(root), records(2, 3), 1, 4)
    assert not table._ends
    backfill(records(5, 6), str(root))
    stream.write(table := stream.table(root), records(4), 2, 5)
    assert table._ends == {("t", 0): 7}


@pytest.mark.parametrize("kind", ["table", "latest"])
def test_of_two_drivers_of_one_query_one_writes_a_batch(
    query, records, tmp_path, kind, monkeypatch
):
    """Both read the history before either writes; then Delta lets one commit."""
    stream, root = query(), tmp_path / "t"
    rows = lambda *numbers: records(*numbers).withColumn("name", F.col("n"))  # noqa: E731
    stream.write(getattr(stream, kind)(root), rows(0, 1), 0, 2)
    both, read_history = Barrier(2), tables.commits

    def commits(*place):
        found = read_history(*place)
        both.wait(60)
        return found

    def drive(table):
        try:
            stream.write(table, rows(2, 3), 1, 4)
        except (Py4JJavaError, PySparkException) as problem:
            return str(problem)
        return ""

    monkeypatch.setattr(tables, "commits", commits)
    drivers = [getattr(stream, kind)(root) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(drive, drivers))
    assert "" in ended, ended
    assert all("Concurrent" in each for each in ended if each), ended
    assert sorted(held(root)["n"]) == [0, 1, 2, 3]


BATCHES: list[list[tuple[object, ...]]] = [
    [("a", 1, DAY1), ("b", 1, DAY1), (None, 1, DAY1), ("d", 1, DAY2)],
    [("a", 5, DAY1), (None, 2, DAY1)],
    [("e", 1, DAY2), ("b", 3, DAY1)],
]
NEWEST = [("-", 2, DAY1), ("a", 5, DAY1), ("b", 3, DAY1), ("d", 1, DAY2), ("e", 1, DAY2)]


def test_the_newest_row_of_each_key_is_there_once(query, counts, tmp_path, monkeypatch):
    """Null is a key; a batch without rows, and one that is written again, change nothing.

    The path of the table is relative, as a user writes it.
    """
    monkeypatch.chdir(tmp_path)
    stream, root = query(), Path("t")
    for number, rows in enumerate([*BATCHES, []]):
        for _ in range(2):
            stream.write(stream.latest(root), counts(*rows), number, number)
    assert newest(root) == NEWEST


def test_a_table_of_counts_belongs_to_one_query(spark, query, counts, tmp_path):
    one, other, root = query("one"), query("other"), tmp_path / "t"
    one.write(one.latest(root), counts(*BATCHES[0]), 9, 1)
    with pytest.raises(SettingError, match=r"written by query one, this is query other: give the"):
        other.write(other.latest(root), counts(*BATCHES[1]), 0, 1)
    counts(*BATCHES[0]).write.format("delta").save(str(tmp_path / "u"))
    with pytest.raises(SettingError, match="was written by something else"):
        one.write(one.latest(tmp_path / "u"), counts(*BATCHES[1]), 0, 1)


@pytest.mark.parametrize("kind", ["table", "export"])
def test_a_folder_of_other_files_is_refused(query, records, tmp_path, kind):
    stream, root = query(), tmp_path / "t"
    records(1).write.parquet(str(root))
    with pytest.raises(SettingError, match=r"something else"):
        stream.write(getattr(stream, kind)(root), records(1), 0, 1)


def exported(root):
    rows = held(root)
    return sorted(zip(rows["n"], rows[BATCH].astype(int), rows["day"].astype(str), strict=True))


def test_a_repeated_batch_takes_the_place_of_its_files(spark, query, records, tmp_path):
    stream, root = query(), tmp_path / "t"
    stream.write(stream.export(root), records(), 0, 0)
    assert list(held(root)["n"]) == []
    assert spark.read.parquet(str(root)).count() == 0
    for number, numbers in ((1, (0, 1)), (2, (2, 3)), (2, (2, 3))):
        stream.write(stream.export(root), records(*numbers), number, numbers[-1] + 1)
    assert exported(root) == [
        (0, 1, "2013-01-02"), (1, 1, "2013-01-01"), (2, 2, "2013-01-02"), (3, 2, "2013-01-01")
    ]  # fmt: skip
    kept = spark.read.parquet(str(root)).select("n", BATCH)
    assert sorted(map(tuple, kept.collect())) == [(0, 1), (1, 1), (2, 2), (3, 2)]


def test_an_export_takes_no_other_query_and_no_other_type(query, records, tmp_path):
    one, other, root = query("one"), query("other"), tmp_path / "t"
    one.write(one.export(root), records(0, 1), 0, 2)
    with pytest.raises(SettingError, match=r"query one, this is query other: Parquet files are an"):
        other.write(other.export(root), records(0, 1), 0, 2)
    with pytest.raises(SettingError, match="the field n is int there and string in --fields"):
        one.write(one.export(root), records(2).selectExpr("* EXCEPT (n)", "'x' AS n"), 1, 3)
    assert [n for n, _, _ in exported(root)] == [0, 1]


def test_a_batch_is_beyond_ends_of_the_topics_that_it_reads():
    batch = Batch("q", 1, [{"t": {"0": 5, "1": 3}, "t@id": {}}])
    assert batch.is_beyond({})
    assert batch.is_beyond({("t", 0): 5, ("t", 1): 2, ("other", 0): 9})
    assert not batch.is_beyond({("t", 0): 6})
    assert not batch.is_beyond({("t", 2): 1})
    assert Batch.read(batch.json()) == batch
    assert Batch.read("by hand") is Batch.read(None) is Batch.read('{"query": 1}') is None
