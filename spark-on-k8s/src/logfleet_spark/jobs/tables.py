"""Folders of Parquet files, partitioned by day, into which micro-batches are written once each, whatever was killed when.

Spark's file sink keeps a list of its files, which only Spark reads: others see files of tries that failed. Here a batch is written
aside and then moved to names that say whose batch it is, so that a repeated one finds what an earlier try left: any reader of Parquet sees
each row once, but for the moments in which files are moved. Names that begin with `_` are passed over by readers.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from logfleet_spark.jobs.folders import Folders, joined
from logfleet_spark.jobs.records import DAY

STAGING = "_staging"
OWNER = "_owner"


class NotOurs(Exception):
    """A folder was written by something else; the text says what to do."""


@dataclass
class BatchTable:
    """Rows of batches, appended. owner: whose batches they are (a query's id, a backfill's name); batch ids are counted per owner.

    Not for two writers of one owner at once.
    """

    folders: Folders
    root: str
    owner: str
    _is_first: bool = True

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """The rows of this batch are in the table once. rows: with the column DAY; a null one is written as Hive's default partition."""
        name = f"{self.owner}-{batch_id:010}"
        staging = joined(self.root, STAGING, name)
        self.folders.delete(staging)
        # one task per day, but days of many rows are split and those of few share one
        (
            rows.hint("rebalance", F.col(DAY))
            .write.partitionBy(DAY)
            .option("compression", "zstd")
            .parquet(staging)
        )
        if self._is_first:  # only the first batch after a start can be one that was begun before
            for leftover in self.folders.matching(joined(self.root, f"{DAY}=*", f"{name}-*")):
                self.folders.delete(leftover)
            self._is_first = False
        for number, (file, day) in enumerate(self.folders.moves(staging, self.root)):
            self.folders.make(joined(self.root, day))
            self.folders.move(file, joined(self.root, day, f"{name}-{number:05}.parquet"))
        self.folders.delete(staging)


def appending(root: str) -> Callable[[DataFrame, int], None]:
    """Writes the micro-batches of one query to a table."""
    table: BatchTable | None = None

    def write(rows: DataFrame, batch_id: int) -> None:
        nonlocal table
        table = table or BatchTable(Folders(rows.sparkSession), root, query_of(rows))
        table.write(rows, batch_id)

    return write


@dataclass
class LatestTable:
    """The newest row of each key: a batch's rows take the place of those with the same key.

    Each day has one file, a whole copy as of the batch in its name. It is written aside, moved in, and then older ones are removed: a
    repeated batch takes a day that has its file as done. keys: columns; DAY must follow from them. owner: as for BatchTable, and the only one.
    """

    folders: Folders
    root: str
    owner: str
    keys: Sequence[str]
    _is_ours: bool = False

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Rows with the column DAY. Raises NotOurs if another owner has written to the folder."""
        self._claim()
        fresh = rows.persist()
        try:
            days = [row[DAY] for row in fresh.select(DAY).distinct().collect()]
            files = {str(day): self._files(f"{DAY}={day}") for day in days}
            done = {day for day, have in files.items() if batch_id in have}
            todo = [day for day in files if day not in done]
            if todo:
                self._merge(fresh.where(F.col(DAY).cast("string").isin(todo)), files, batch_id)
            for day, have in files.items():
                for each, path in have.items():
                    if each < batch_id:
                        self.folders.delete(joined(self.root, f"{DAY}={day}", path))
        finally:
            fresh.unpersist()

    def _merge(self, fresh: DataFrame, files: dict[str, dict[int, str]], batch_id: int) -> None:
        staging = joined(self.root, STAGING, f"{batch_id:010}")
        self.folders.delete(staging)
        newest = [
            joined(self.root, f"{DAY}={day}", have[max(have)])
            for day, have in files.items()
            if have and batch_id not in have
        ]
        merged = fresh
        if newest:
            reader = fresh.sparkSession.read.option("basePath", self.root)
            kept = reader.schema(fresh.schema).parquet(*newest)
            # null keys are keys too: a group may have no name
            same = [kept[key].eqNullSafe(fresh[key]) for key in self.keys]
            merged = kept.join(fresh, same, "left_anti").unionByName(fresh)
        merged.repartition(DAY).write.partitionBy(DAY).option("compression", "zstd").parquet(
            staging
        )
        for file, day in self.folders.moves(staging, self.root):
            self.folders.make(joined(self.root, day))
            self.folders.move(file, joined(self.root, day, f"{batch_id:010}.parquet"))
        self.folders.delete(staging)

    def _files(self, day: str) -> dict[int, str]:
        """Name of a day's file by batch."""
        names = self.folders.names(joined(self.root, day))
        return {int(name.partition(".")[0]): name for name in names if _is_of_a_batch(name)}

    def _claim(self) -> None:
        if self._is_ours:
            return
        mark = joined(self.root, OWNER)
        owner = self.folders.read_text(mark)
        if owner is None:
            if self.folders.matching(joined(self.root, f"{DAY}=*")):
                owner = "something else"
            else:
                self.folders.write_text(mark, self.owner)
                owner = self.owner
        if owner != self.owner:
            raise NotOurs(
                f"{self.root} was written by {owner}, this is {self.owner}: give the job an --output "
                "of its own, or the --checkpoint that it was started with"
            )
        self._is_ours = True


def _is_of_a_batch(name: str) -> bool:
    return re.fullmatch(r"\d{10}\.parquet", name) is not None


def query_of(frame: DataFrame) -> str:
    """Id of the streaming query that a micro-batch is of: it is in the checkpoint, and the same after a restart."""
    spark: SparkSession = frame.sparkSession
    found = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found, "a micro-batch runs in the thread of its query"
    return str(found)
