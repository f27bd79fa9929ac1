"""How a job runs: its session, its queries to their end, and a stop that ends the batch it is in.

SIGTERM asks for the stop. A batch that has begun to write is ended, one that has not is left for the next start, so nothing is written
in half. The image's entrypoint hands the signal on to the process whose id a job leaves in the file that LOGFLEET_JOB_PID names: Kubernetes
sends it to the container's first process only.
"""

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkConf
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from logfleet_spark.jobs.metrics import Metrics, ProgressListener
from logfleet_spark.jobs.records import SettingError
from logfleet_spark.jobs.settings import AVAILABLE_NOW

log = logging.getLogger(__name__)

SHUFFLE_PARTITIONS = 8
"""Tasks of an aggregation where nobody says. Spark's 200 made batches of 60 records take 12 to 16 s; a stream's state keeps the number."""
POLL_S = 0.2
WriteBatch = Callable[[DataFrame, int], None]
UNITS_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
}


class NotBegun(Exception):
    """A batch was not begun because the job is to stop."""


class Stop:
    """Whether the job is to stop, and whether a batch was left for the next start because of it."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.left_a_batch = False
        self.refused: SettingError | None = None
        """Why a batch was not written, where a setting is the reason."""

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        self._asked.set()

    def on_sigterm(self) -> None:
        """Stop when this process gets SIGTERM. Only for the main thread."""
        signal.signal(signal.SIGTERM, lambda *_: self.ask())
        if path := os.environ.get("LOGFLEET_JOB_PID"):
            Path(path).write_text(f"{os.getpid()}\n", encoding="ascii")

    def gate(self, write: WriteBatch) -> WriteBatch:
        """`write`, for batches that come before the stop was asked for."""

        def begin(frame: DataFrame, batch_id: int) -> None:
            if self.is_asked:
                self.left_a_batch = True
                raise NotBegun(f"batch {batch_id} is left for the next start")
            try:
                write(frame, batch_id)
            except SettingError as problem:  # Spark would make a text with traces of it
                self.refused = problem
                raise

        return begin


@dataclass
class Job:
    """A running application of ours: session, metrics, and the wish to stop."""

    spark: SparkSession
    metrics: Metrics
    stop: Stop
    _listener: ProgressListener | None = None

    def start(
        self,
        writer: DataStreamWriter,
        write: WriteBatch,
        *,
        name: str,
        checkpoint: str,
        trigger: str,
    ) -> StreamingQuery:
        """Start a query that writes each batch by `write`. trigger: as the setting of that name."""
        writer = (
            writer.queryName(name)
            .foreachBatch(self.stop.gate(write))
            .option("checkpointLocation", checkpoint)
        )
        if trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True).start()
        self.metrics.set("trigger_ms", interval_ms(trigger))
        return writer.trigger(processingTime=trigger).start()

    def watch(self, query: str) -> None:
        """Tell the progress of the query of that name as metrics; before it is started."""
        self._forget()
        self._listener = ProgressListener(self.metrics, query)
        self.spark.streams.addListener(self._listener)

    def close(self) -> None:
        """Nothing of the job is left in the session, which others may use."""
        for query in self.spark.streams.active:
            query.stop()
        self._forget()

    def _forget(self) -> None:
        if self._listener is not None:
            self.spark.streams.removeListener(self._listener)
            self._listener = None

    def run(self, queries: Sequence[StreamingQuery]) -> None:
        """Return when all have ended by themselves, or a stop was asked for and their batches have ended.

        When one fails, the others are stopped as by a stop, and its StreamingQueryException is raised.
        """
        try:
            while not self.stop.is_asked and any(query.isActive for query in queries):
                for query in queries:
                    query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # fractions are taken
        except StreamingQueryException as failure:
            if not self.stop.left_a_batch:
                self.stop.ask()
                self._end(queries)
                raise self.stop.refused or failure from None
        self._end(queries)
        failed = [error for query in queries if (error := query.exception()) is not None]
        if failed and not self.stop.left_a_batch:
            raise self.stop.refused or failed[0]

    def _end(self, queries: Sequence[StreamingQuery]) -> None:
        """No query runs afterwards; a batch that had begun has ended."""
        for query in queries:
            while query.isActive and query.status["isTriggerActive"]:
                time.sleep(POLL_S)
            query.stop()


def interval_ms(trigger: str) -> int:
    """Milliseconds of an interval such as "10 seconds"; 0 if it is none of one number and unit. Spark judges what is wrong with it."""
    found = re.fullmatch(r"\s*(?:interval\s+)?(\d+)\s*([a-z]+?)s?\s*", trigger.lower())
    if found is None or found.group(2) not in UNITS_MS:
        return 0
    return int(found.group(1)) * UNITS_MS[found.group(2)]


def session(name: str, settings: Mapping[str, object], more: Mapping[str, str]) -> SparkSession:
    """The session of a job, with our source known to it. more: configuration that the job needs, where Spark's settings do not say."""
    given = SparkConf()
    wanted = {"spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS), **more}
    wanted = {key: value for key, value in wanted.items() if not given.contains(key)}
    if settings.get("shuffle_partitions"):
        wanted["spark.sql.shuffle.partitions"] = str(settings["shuffle_partitions"])
    # event times are taken as they stand; windows and days must not move with the machine's time zone
    wanted["spark.sql.session.timeZone"] = "UTC"
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if settings.get("source") == "logfleet":
        from logfleet_spark import register

        register(spark)
    return spark


def program(
    name: str,
    settings: Mapping[str, object],
    run: Callable[[Job], None],
    more: Mapping[str, str] | None = None,
) -> None:
    """Run a job as a program of its own. A wrong setting ends it with one sentence and exit code 2."""
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = Stop()
    stop.on_sigterm()
    spark = session(name, settings, more or {})
    try:
        run(Job(spark, Metrics(spark), stop))
        log.info("stopped at the end of a batch" if stop.is_asked else "done")
    except SettingError as problem:
        sys.stderr.write(f"{name}: error: {problem}\n")
        sys.exit(2)
    finally:
        spark.stop()
