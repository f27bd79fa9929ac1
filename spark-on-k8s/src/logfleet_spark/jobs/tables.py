"""Tables to which a query writes its micro-batches, each batch once.

They are Delta tables, or plain Parquet files that are only appended to.

A batch is identified by the query's id, the batch's number, and the offsets up to which it reads.
The table stores these: Delta in the commit (its txnAppId and txnVersion prevent a second commit of
the same number, its userMetadata holds the offsets), Parquet in the folder `_manifest`. So a
repeated batch is recognised. A batch of the same number with other offsets is refused: somebody has
restored an older checkpoint.

Source: Delta Lake's documentation, "Idempotent table writes in foreachBatch"; its PROTOCOL.md,
"Transaction Identifiers".
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from logfleet_spark.jobs.expressions import SettingError, quoted, reason
from logfleet_spark.jobs.records import DAY

log = logging.getLogger(__name__)

FORMATS = ("delta", "parquet")
PLACE = ("topic", "partition", "offset", "timestamp")
"""Columns that identify a record's row.

The timestamp tells records apart whose topic was deleted and created again.
"""
BATCH = "batch"
"""Column of a Parquet export with the batch's number. A repeated batch replaces its own files."""
OWNER = "logfleet.query"
ENTRY = "batch STRING, columns STRING"
"""An entry of a Parquet export's manifest: a batch, and the schema of its rows, both as JSON."""
MANIFEST_SLOTS = 256
"""Batches that a manifest keeps.

A checkpoint keeps 100 (spark.sql.streaming.minBatchesToRetain), so it cannot go back further.
"""
COMMITS_MAX = 1_000
"""Number of newest commits that are searched for a query's last one.

If it is not among them, rows are compared, which costs a scan.
"""
MAINTENANCE = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UPGRADE PROTOCOL"}
"""Delta operations that add no rows."""
FILES: Mapping[str, str] = {
    "spark.sql.parquet.compression.codec": "zstd",
}
DELTA: Mapping[str, str] = {
    **FILES,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # tasks that read a table's log; the default of 50 is for logs of millions of files
    "spark.databricks.delta.snapshotPartitions": "4",
}
NO_DELTA = (
    "Delta's jars are not there; `make setup` and the image have them, elsewhere give spark-submit "
    "--packages io.delta:delta-spark_4.2_2.13:4.4.0, or use --format parquet, which is append-only"
)
TABLE_AGAIN = "start with a new --checkpoint: it adds only what the table lacks"
OUTPUT_AGAIN = "start with a new --checkpoint and a new --output"


@dataclass(frozen=True)
class Batch:
    """A micro-batch.

    offsets: by source, in the checkpoint's form; the query reads up to them with this batch.
    is_passing: see DeltaTable.
    """

    query: str
    number: int
    offsets: list[Any]
    is_passing: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, rows: DataFrame, checkpoint: str, number: int) -> "Batch":
        """Return the batch that a query with this checkpoint writes.

        Call it in the query's thread.
        """
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query, "a micro-batch is written in the thread of its query"
        lines = rows.sparkSession.read.text(f"{checkpoint.rstrip('/')}/offsets/{number}").collect()
        # two lines come first: a version, and the batch's settings; "-" is a source without an offset
        return cls(query, number, [json.loads(row[0]) for row in lines[2:] if row[0] != "-"])

    @classmethod
    def read(cls, text: str | None) -> "Batch | None":
        """Parse the text that json() made; None if the text is something else."""
        try:
            return cls(**json.loads(text or "null"))
        except (ValueError, TypeError):
            return None

    def json(self) -> str:
        return json.dumps(asdict(self))

    def is_beyond(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Return whether the query has read up to these ends, in the topics that it reads."""
        return not any(
            source[topic].get(str(partition), 0) < end
            for (topic, partition), end in ends.items()
            for source in self.offsets
            if topic in source
        )


def is_repeated(root: str, known: Iterable[Batch], this: Batch, way_out: str) -> bool:
    """Return whether the table has this batch.

    known: batches in the table's history. Raises SettingError if another batch has the same number.
    """
    numbers = {batch.number: batch for batch in known if batch.query == this.query}
    newest = max(numbers, default=-1)
    if newest < this.number:
        return False
    if numbers.get(this.number) == this:
        return True
    raise SettingError(
        f"{root} holds batch {newest} of this query, and its batch {this.number} has other offsets than "
        f"the checkpoint's: an older checkpoint was restored; {way_out}"
    )


def check_types(root: str, there: StructType, fresh: StructType) -> None:
    """Log the columns that are new in the table.

    Raises SettingError if a column has another type there.
    """
    types = {column.name.lower(): column.dataType.simpleString() for column in there}
    for column in fresh:
        have, wanted = types.get(column.name.lower()), column.dataType.simpleString()
        if have not in {None, wanted}:
            raise SettingError(
                f"{root}: the field {column.name} is {have} there and {wanted} in --fields; write the "
                f"old type, or give it another name, or {OUTPUT_AGAIN}"
            )
    added = [column.name for column in fresh if column.name.lower() not in types]
    if added:
        log.info("%s gets the new columns %s", root, ", ".join(added))


def not_owned_error(root: str, owner: str | None, query: str, what: str) -> SettingError:
    whose = f"query {owner}" if owner else "something else"
    return SettingError(
        f"{root} was written by {whose}, this is query {query}: {what}, or the --checkpoint that it was "
        "started with"
    )


def check_delta(spark: SparkSession, root: str) -> None:
    """Raise SettingError if this Spark has no Delta."""
    try:
        spark.read.format("delta").load(root)
    except AnalysisException:
        return  # Spark has Delta; the table does not exist yet
    except Py4JJavaError as problem:
        if "DATA_SOURCE_NOT_FOUND" not in str(problem):
            raise
        raise SettingError(NO_DELTA) from None


def absolute(folder: str) -> str:
    """Return a folder in the form that SQL needs: an absolute path. URLs stay as they are."""
    return folder if "://" in folder else str(Path(folder).absolute())


def named(root: str) -> str:
    """Name a Delta table by its path, in the form of SQL."""
    return f"delta.{quoted(root)}"


def commits(spark: SparkSession, root: str) -> list[tuple[str, Batch | None]]:
    """Return (operation, batch or None) of the newest commits, newest first.

    Empty if there is no table. The batch is None if another program made the commit.
    """
    try:
        history = spark.sql(f"DESCRIBE HISTORY {named(root)} LIMIT {COMMITS_MAX}").collect()
    except AnalysisException as problem:
        if problem.getCondition() in {"DELTA_TABLE_ONLY_OPERATION", "DELTA_MISSING_DELTA_TABLE"}:
            return []
        raise
    return [(row["operation"], Batch.read(row["userMetadata"])) for row in history]


def opened(rows: DataFrame, root: str, *, is_there: bool, owner: str | None = None) -> DataFrame:
    """Return the table after checking that its columns fit these rows.

    It is created if it does not exist. owner: the only query that may write to a new table; None
    allows all.
    """
    if not is_there:
        writer = rows.limit(0).writeTo(named(root)).using("delta").partitionedBy(F.col(DAY))
        try:
            (writer.tableProperty(OWNER, owner) if owner else writer).create()
        except AnalysisException as problem:
            why = reason(problem)
            if problem.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS":
                why = "the folder holds files of something else"
            raise SettingError(
                f"no table can be made at {root}: {why}; give another --output"
            ) from None
    there = rows.sparkSession.read.format("delta").load(root)
    check_types(root, there.schema, rows.schema)
    return there


@contextmanager
def committing_as(spark: SparkSession, batch: Batch) -> Iterator[None]:
    """Mark the commits that the session makes in this block as this batch.

    Delta skips a batch that it has committed before.
    """
    settings = {
        "spark.databricks.delta.write.txnAppId": batch.query,
        "spark.databricks.delta.write.txnVersion": str(batch.number),
        "spark.databricks.delta.commitInfo.userMetadata": batch.json(),
    }
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


@dataclass
class DeltaTable:
    """Rows of records, appended.

    Other queries and backfills may append to the same table, one at a time.

    If others have added rows since this query's last batch, this query adds only rows that the
    table lacks, until it has read past those rows; `is_passing` marks the batches until then. Each
    of them, and each start, costs a scan of the columns PLACE.
    """

    root: str
    checkpoint: str
    way_out: str = TABLE_AGAIN
    _known: list[Batch] | None = None
    _ends: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = absolute(self.root)

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write the rows of this batch, with the column DAY, unless the table has the batch.

        Raises SettingError if the table's history does not fit the checkpoint.
        """
        spark, this = rows.sparkSession, Batch.of(rows, self.checkpoint, batch_id)
        if self._known is None:
            history = commits(spark, self.root)
            self._known = [batch for _, batch in history if batch and batch.query == this.query]
            self._open(rows, this, history)
        if is_repeated(self.root, self._known, this, self.way_out):
            self._skip(rows)
            return
        self._put(rows, this)
        # Delta silently skips a batch whose number is not above that of the query's last commit, even
        # if that commit has been removed from the history
        if not self._known and this not in [batch for _, batch in commits(spark, self.root)]:
            raise SettingError(
                f"{self.root} holds batch {batch_id} or a later one of this query, from before its "
                f"history begins: an older checkpoint was restored; {self.way_out}"
            )
        self._known = self._known or [this]

    def _open(
        self, rows: DataFrame, this: Batch, history: Sequence[tuple[str, Batch | None]]
    ) -> None:
        """Prepare the table before the first batch of a run."""
        there = opened(rows, self.root, is_there=bool(history))
        last = next((batch for what, batch in history if batch or what not in MAINTENANCE), None)
        if history and (last is None or last.is_passing or last.query != this.query):
            ends = there.groupBy("topic", "partition").agg(F.max("offset") + 1).collect()
            self._ends = {(topic, partition): end for topic, partition, end in ends}

    def _skip(self, rows: DataFrame) -> None:
        """Do what a batch needs that the table already has."""

    def _put(self, rows: DataFrame, this: Batch) -> None:
        fresh = missing_rows(rows, self.root) if self._ends else rows
        if this.is_beyond(self._ends):
            self._ends = {}
        with committing_as(rows.sparkSession, replace(this, is_passing=bool(self._ends))):
            append(fresh, self.root)


def missing_rows(rows: DataFrame, root: str) -> DataFrame:
    """Return the rows that are not in the table."""
    there = rows.sparkSession.read.format("delta").load(root).select(*PLACE).alias("there")
    # the timestamp of a rejected record may be null
    same = [F.col(f"fresh.{name}").eqNullSafe(F.col(f"there.{name}")) for name in PLACE]
    return rows.alias("fresh").join(there, same, "left_anti")


def append(rows: DataFrame, root: str) -> None:
    # one task per day, except that large days are split and small ones share a task
    files = rows.hint("rebalance", F.col(DAY)).write.format("delta").mode("append")
    files.option("mergeSchema", "true").save(root)


def backfill(rows: DataFrame, root: str) -> int:
    """Add the rows that the table lacks; return their number.

    Not for two writers at the same time.
    """
    root = absolute(root)
    opened(rows, root, is_there=bool(commits(rows.sparkSession, root)))
    fresh = missing_rows(rows, root).persist()
    try:
        if added := fresh.count():
            append(fresh, root)
        return added
    finally:
        fresh.unpersist()


class LatestTable(DeltaTable):
    """The newest row of each key in a Delta table: a batch's rows replace those with the same key.

    keys: columns; null is a key like any other. DAY must be a function of the keys. The table
    belongs to the query that created it, because another query would count from zero. If two
    drivers run the query at the same time, Delta lets one of them commit a batch, and the other one
    fails with ConcurrentModificationException.
    """

    def __init__(self, root: str, keys: Sequence[str], checkpoint: str) -> None:
        super().__init__(root, checkpoint, OUTPUT_AGAIN)
        self._keys = (DAY, *keys)

    def _open(
        self, rows: DataFrame, this: Batch, history: Sequence[tuple[str, Batch | None]]
    ) -> None:
        opened(rows, self.root, is_there=bool(history), owner=this.query)
        properties = rows.sparkSession.sql(f"SHOW TBLPROPERTIES {named(self.root)}").collect()
        owner = {row["key"]: row["value"] for row in properties}.get(OWNER)
        if owner != this.query:
            raise not_owned_error(
                self.root, owner, this.query, "give the job an --output of its own"
            )

    def _skip(self, rows: DataFrame) -> None:
        # the query's state takes in the batch only if the batch is computed, so compute it
        rows.write.format("noop").mode("overwrite").save()

    def _put(self, rows: DataFrame, this: Batch) -> None:
        spark, fresh = rows.sparkSession, rows.persist()
        try:
            # as text, because Python's dates end with the year 9999
            days = [row[0] for row in fresh.select(F.col(DAY).cast("string")).distinct().collect()]
            same = [f"there.{quoted(key)} <=> fresh.{quoted(key)}" for key in self._keys]
            if days:  # only these partitions are read
                same.append(f"there.{DAY} IN ({', '.join(f'DATE{day!r}' for day in days)})")
            fresh.createOrReplaceTempView("fresh")
            with committing_as(spark, this):
                spark.sql(
                    f"MERGE WITH SCHEMA EVOLUTION INTO {named(self.root)} AS there USING fresh "
                    f"ON {' AND '.join(same)} "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
        finally:
            fresh.unpersist()


@dataclass
class ParquetExport:
    """Plain Parquet files by day and batch, which one query appends from its first batch on.

    A batch is entered in the manifest before its files are written; a repeated batch replaces its
    own files. Not for two drivers at the same time. While a batch is written, readers may see part
    of it.
    """

    root: str
    checkpoint: str
    _known: list[Batch] | None = None

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """As DeltaTable.write."""
        this = Batch.of(rows, self.checkpoint, batch_id)
        if self._known is None:
            self._known = self._open(rows, this)
        is_repeated(self.root, self._known, this, OUTPUT_AGAIN)
        entry = (this.json(), rows.schema.json())
        entries = rows.sparkSession.createDataFrame([entry], ENTRY).coalesce(1)
        entries.write.mode("overwrite").json(self._manifest(str(batch_id % MANIFEST_SLOTS)))
        if not self._known:  # an empty file lets readers find the columns before any day has rows
            empty = f"{self.root.rstrip('/')}/{DAY}=1970-01-01/{BATCH}=0"
            rows.limit(0).drop(DAY).write.mode("overwrite").parquet(empty)
            self._known = [this]
        files = rows.hint("rebalance", F.col(DAY)).withColumn(BATCH, F.lit(batch_id)).write
        files = files.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        files.partitionBy(DAY, BATCH).parquet(self.root)

    def _manifest(self, slot: str) -> str:
        return f"{self.root.rstrip('/')}/_manifest/slot={slot}"

    def _open(self, rows: DataFrame, this: Batch) -> list[Batch]:
        """Return the batches of the manifest.

        Raises SettingError if another query wrote the files, or if a column has another type.
        """
        entries = _read_if_there(rows.sparkSession, "json", self._manifest("*"), ENTRY)
        found = [(Batch.read(row[0]), row[1]) for row in entries.collect()] if entries else []
        known = [batch for batch, _ in found if batch is not None]
        owner = next((batch.query for batch in known if batch.query != this.query), None)
        if owner or (not known and _read_if_there(rows.sparkSession, "parquet", self.root)):
            what = f"Parquet files are an export of one query; {OUTPUT_AGAIN}, use --format delta"
            raise not_owned_error(self.root, owner, this.query, what)
        for _, columns in found:
            check_types(self.root, StructType.fromJson(json.loads(columns)), rows.schema)
        return known


def _read_if_there(
    spark: SparkSession, form: str, place: str, schema: str | None = None
) -> DataFrame | None:
    reader = spark.read.format(form)
    try:
        return (reader.schema(schema) if schema else reader).load(place)
    except AnalysisException as problem:
        if problem.getCondition() in {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}:
            return None
        raise


def table(form: str, root: str, checkpoint: str) -> DeltaTable | ParquetExport:
    """Return the table to which a query with this checkpoint appends. form: one of FORMATS."""
    return DeltaTable(root, checkpoint) if form == "delta" else ParquetExport(root, checkpoint)


def session_settings(form: str | None) -> Mapping[str, str]:
    """Return the Spark configuration that tables of this format need."""
    return DELTA if form == "delta" else FILES


def sibling_folder(folder: str, word: str) -> str:
    """Return a folder next to another one: its name, a hyphen, and the word."""
    return f"{folder.rstrip('/')}-{word}"
