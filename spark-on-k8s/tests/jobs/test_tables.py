"""Tables of batches: whatever moment a driver is killed at, the repeated batch leaves each row once."""

import pandas as pd
import pytest
from logfleet_spark.jobs.folders import Folders
from logfleet_spark.jobs.tables import BatchTable, LatestTable, NotOurs

SCHEMA = "name STRING, count LONG, day DATE"
DAY1, DAY2 = pd.Timestamp("2013-01-01").date(), pd.Timestamp("2013-01-02").date()


class Killed(Exception):
    """As if the driver had died."""


class Dying(Folders):
    """Folders whose moves or deletes stop after some."""

    def __init__(self, spark, call, left):
        super().__init__(spark)
        self.__dict__["left"] = {call: left}

    def _count(self, call):
        left = self.__dict__["left"]
        if call in left:
            if not left[call]:
                raise Killed
            left[call] -= 1

    def move(self, source, target):
        self._count("move")
        super().move(source, target)

    def delete(self, place):
        self._count("delete")
        super().delete(place)


@pytest.fixture
def frame(spark):
    return lambda *rows: spark.createDataFrame(list(rows), SCHEMA)


def read(folder):
    """As somebody without Spark reads it."""
    rows = pd.read_parquet(folder)
    return sorted(
        zip(rows["name"].fillna("-"), rows["count"], rows["day"].astype(str), strict=True)
    )


def test_a_batch_that_is_written_again_is_there_once(spark, frame, tmp_path):
    first, second = [("a", 1, DAY1), ("b", 2, DAY2)], [("c", 3, DAY1)]
    root = str(tmp_path / "t")
    for rows, batch_id in ((first, 0), (second, 1), (second, 1)):
        BatchTable(Folders(spark), root, "q").write(frame(*rows), batch_id)
    assert read(root) == [
        ("a", 1, "2013-01-01"), ("b", 2, "2013-01-02"), ("c", 3, "2013-01-01")
    ]  # fmt: skip


def test_owners_have_batches_of_their_own(spark, frame, tmp_path):
    root = str(tmp_path / "t")
    for owner in ("q", "backfill", "q"):
        BatchTable(Folders(spark), root, owner).write(frame((owner, 1, DAY1)), 0)
    assert [name for name, _, _ in read(root)] == ["backfill", "q"]


@pytest.mark.parametrize("left", [0, 1])
def test_a_batch_whose_moves_were_cut_short_is_there_once_when_repeated(
    spark, frame, tmp_path, left
):
    root, rows = str(tmp_path / "t"), [("a", 1, DAY1), ("b", 2, DAY2)]
    with pytest.raises(Killed):
        BatchTable(Dying(spark, "move", left), root, "q").write(frame(*rows), 7)
    assert len(list((tmp_path / "t").glob("day=*/*.parquet"))) == left
    BatchTable(Folders(spark), root, "q").write(frame(*rows), 7)
    assert len(read(root)) == 2
    assert not list((tmp_path / "t" / "_staging").iterdir())


def latest(folders, root, owner="q"):
    return LatestTable(folders, root, owner, ["name"])


BATCHES: list[list[tuple[object, ...]]] = [
    [("a", 1, DAY1), ("b", 1, DAY1), (None, 1, DAY1), ("d", 1, DAY2)],
    [("a", 5, DAY1), (None, 2, DAY1)],
    [("e", 1, DAY2), ("b", 3, DAY1)],
]
NEWEST = [
    ("-", 2, "2013-01-01"), ("a", 5, "2013-01-01"), ("b", 3, "2013-01-01"),
    ("d", 1, "2013-01-02"), ("e", 1, "2013-01-02"),
]  # fmt: skip


def test_the_newest_row_of_each_key_is_there_once_and_one_file_a_day(spark, frame, tmp_path):
    root = str(tmp_path / "t")
    for batch_id, rows in enumerate(BATCHES):
        latest(Folders(spark), root).write(frame(*rows), batch_id)
    assert read(root) == NEWEST
    files = sorted(path.name for path in (tmp_path / "t").glob("day=*/*.parquet"))
    assert files == ["0000000002.parquet"] * 2


@pytest.mark.parametrize("call, left", [("move", 0), ("move", 1), ("delete", 1), ("delete", 3)])
def test_a_merge_that_was_cut_short_is_whole_when_repeated(spark, frame, tmp_path, call, left):
    """delete 1: the new files are in, nothing else is gone; delete 3: one old one is still beside its successor."""
    root = str(tmp_path / "t")
    for batch_id, rows in enumerate(BATCHES[:2]):
        latest(Folders(spark), root).write(frame(*rows), batch_id)
    with pytest.raises(Killed):
        latest(Dying(spark, call, left), root).write(frame(*BATCHES[2]), 2)
    latest(Folders(spark), root).write(frame(*BATCHES[2]), 2)
    assert read(root) == NEWEST


def test_a_folder_of_another_checkpoint_is_refused(spark, frame, tmp_path):
    root = str(tmp_path / "t")
    latest(Folders(spark), root).write(frame(*BATCHES[0]), 9)
    with pytest.raises(NotOurs, match=r"was written by q, this is other: give the job an --output"):
        latest(Folders(spark), root, "other").write(frame(*BATCHES[1]), 0)
    BatchTable(Folders(spark), str(tmp_path / "u"), "q").write(frame(*BATCHES[0]), 0)
    with pytest.raises(NotOurs, match="was written by something else"):
        latest(Folders(spark), str(tmp_path / "u")).write(frame(*BATCHES[1]), 0)
