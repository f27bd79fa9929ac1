"""Keeps the records that a job could not count, with a second query.

The first query aggregates rows, so it cannot write single records. Once it has found a rejected
record, a second query is started that reads the topic again, beginning with the batch of that
record. The offsets at which that batch begins are stored (`FROM`, in the checkpoint of the second
query) before the next batch is written. So the job may be killed at any time: at its next start it
finds these offsets, or checks its last batch again.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from logfleet_spark.jobs.running import WriteBatch

FROM = "from"
"""Folder with the offsets at which the second query starts, as JSON."""
Offsets = dict[str, dict[str, int]]


def text_of(spark: SparkSession, place: str) -> list[tuple[str, str]]:
    """Return (name, text) of each file at a path or URL; empty if nothing is there."""
    try:
        # the path is given twice: for a single path, Spark also searches for the log of a file sink,
        # and logs a stack trace if the path does not exist
        files = spark.read.text([place, place], wholetext=True)
    except AnalysisException as problem:
        if problem.getCondition() == "PATH_NOT_FOUND":
            return []
        raise
    named = files.select("_metadata.file_name", "value").distinct()
    return [(row["file_name"], row["value"]) for row in named.collect()]


class Rejected:
    """Starts the query that keeps rejected records.

    checkpoint: of the first query, which counts. place: checkpoint of the second query, which keeps
    rejected records. count: returns the number of rejected records between two sets of offsets.

    start: starts the second query at these offsets (JSON); they have an effect only while it has no
    checkpoint. is_last: whether to start it only after the first query has ended.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        place: str,
        *,
        count: Callable[[Offsets, Offsets], int],
        start: Callable[[str | None], StreamingQuery],
        is_last: bool,
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint.rstrip("/")
        self._place = place.rstrip("/")
        self._count = count
        self._start = start
        self._is_last = is_last
        self._lock = threading.Lock()
        self._counting: StreamingQuery | None = None
        self._is_known = threading.Event()
        self._is_started = False
        self._from = self._stored_start()
        self._is_wanted = self._from is not None or bool(text_of(spark, f"{self._place}/metadata"))
        if not self._is_wanted:
            self._check_last_batch()

    def checked_write(self, write: WriteBatch) -> WriteBatch:
        """Wrap `write` so that the progress of the previous batch is checked before each batch."""

        def check_and_write(rows: DataFrame, batch_id: int) -> None:
            self._is_known.wait()
            self._check()
            write(rows, batch_id)

        return check_and_write

    def follow(self, counting: StreamingQuery) -> None:
        """Set the counting query.

        Its batches must be written by the function that `checked_write` returned.
        """
        self._counting = counting
        self._is_known.set()

    def started(self) -> list[StreamingQuery]:
        """Start the query that keeps if it is time, and return it.

        For the thread that runs the job.
        """
        self._check()
        assert self._counting is not None
        waits = self._is_last and self._counting.isActive
        if self._is_started or not self._is_wanted or waits:
            return []
        self._is_started = True
        return [self._start(self._from)]

    def _check(self) -> None:
        """Store where the second query starts if the last batch had a rejected record."""
        with self._lock:
            if self._is_wanted or self._counting is None or self._counting.lastProgress is None:
                return
            progress = json.loads(self._counting.lastProgress.json)
            observed = progress.get("observedMetrics") or {}
            if not any(each.get("dead_letters") for each in observed.values()):
                return
            source = progress["sources"][0]
            begin = _offsets(source["startOffset"]) or self._initial()
            self._store_start(begin, _offsets(source["endOffset"]))

    def _check_last_batch(self) -> None:
        """Check the batch that ended last before this start of the job.

        The job may have been killed before it checked that batch's progress.
        """
        done = [
            int(name)
            for name, _ in text_of(self._spark, f"{self._checkpoint}/commits")
            if name.isdecimal()
        ]
        if not done:
            return
        ends = {
            int(name): _offsets(text.splitlines()[2])
            for name, text in text_of(self._spark, f"{self._checkpoint}/offsets")
            if name.isdecimal()
        }
        begin = ends.get(max(done) - 1) if max(done) else self._initial()
        end = ends.get(max(done))
        if begin and end and self._count(begin, end):
            self._store_start(begin, end)

    def _initial(self) -> Offsets:
        """Return the offsets at which the first batch of the counting query began.

        Spark's connector stores them in the checkpoint. With our source they are empty here, as its
        first batch has no rows.
        """
        files = dict(text_of(self._spark, f"{self._checkpoint}/sources/0/0"))
        return _offsets("{" + files["0"].partition("{")[2]) if files else {}

    def _store_start(self, begin: Offsets, end: Offsets) -> None:
        """Store the offsets of a batch's beginning as the start of the second query.

        A partition that was new in that batch is read from its first record.
        """
        offsets = {
            topic: dict.fromkeys(parts, 0) | begin.get(topic, {}) for topic, parts in end.items()
        }
        self._from = json.dumps(offsets)
        rows = self._spark.range(0, 1, 1, 1).select(F.lit(self._from).alias("value"))
        rows.write.mode("overwrite").text(f"{self._place}/{FROM}")
        self._is_wanted = True

    def _stored_start(self) -> str | None:
        found = [text for _, text in text_of(self._spark, f"{self._place}/{FROM}") if text.strip()]
        return found[0].strip() if found else None


def _offsets(given: Any) -> Offsets:
    """Parse offsets of partitions out of the JSON of a progress or a checkpoint.

    Entries without partitions hold topic ids and are left out.
    """
    read = json.loads(given) if isinstance(given, str) else given
    return {
        topic: parts for topic, parts in (read or {}).items() if isinstance(parts, dict) and parts
    }
