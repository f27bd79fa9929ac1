"""Runs a job: its session, its queries until they end, and a stop at the end of a batch.

SIGTERM asks for a stop. A batch that has begun to write is finished; one that has not is left for
the next start, so no batch is half written. Kubernetes sends the signal only to the container's
first process. The image's entrypoint passes it on to the process whose id the job writes to the
file that LOGFLEET_JOB_PID names.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from logfleet_spark import register_for_streams
from logfleet_spark.jobs.expressions import SESSION, SettingError
from logfleet_spark.jobs.failures import cause_of
from logfleet_spark.jobs.metrics import COUNTERS, Metrics, Progress, ProgressListener
from logfleet_spark.jobs.settings import AVAILABLE_NOW, interval_ms

log = logging.getLogger(__name__)

DEFAULTS: Mapping[str, str] = {
    # with Spark's default of 200, batches of 60 records took 12 to 16 s; a stream's state keeps the
    # number of its first start
    "spark.sql.shuffle.partitions": "8",
    # windows and days must not move with the time zone of the machine
    "spark.sql.session.timeZone": "UTC",
}
"""Spark settings of a job, unless the user sets them."""
POLL_S = 0.2
WriteBatch = Callable[[DataFrame, int], None]
NO_WORKER = "Python worker failed to connect back"
"""Spark's message if a new Python process has not connected within 10 s, a limit that is fixed."""

JVM_GONE = (Py4JNetworkError, ConnectionError)
"""Errors of a call to a JVM that has ended, as by the Ctrl-C that ends the whole program."""


class NotBegun(Exception):
    """A batch was not begun because the job has to stop."""


class Stop:
    """Whether the job has to stop, and the batches that it left or could not write."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._after_failure = threading.Event()
        self.left_a_batch = False
        self.failed: tuple[int, Exception] | None = None
        """The number of the batch that could not be written, and the error."""

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set() or self._after_failure.is_set()

    def ask(self) -> None:
        self._asked.set()

    def ask_after_failure(self) -> None:
        """As ask(), because a query failed."""
        self._after_failure.set()

    def forget_failure(self) -> None:
        """Clear the failure because the job runs again; a stop that others asked for stays."""
        self._after_failure.clear()
        self.left_a_batch = False
        self.failed = None

    def on_sigterm(self) -> None:
        """Ask for a stop when this process gets SIGTERM. For the main thread only."""
        signal.signal(signal.SIGTERM, lambda *_: self.ask())
        if path := os.environ.get("LOGFLEET_JOB_PID"):
            Path(path).write_text(f"{os.getpid()}\n", encoding="ascii")

    def gate(self, write: WriteBatch) -> WriteBatch:
        """Wrap `write` so that no batch begins after a stop was asked for."""

        def begin(frame: DataFrame, batch_id: int) -> None:
            if self.is_asked:
                self.left_a_batch = True
                raise NotBegun(f"batch {batch_id} is left for the next start")
            try:
                write(frame, batch_id)
            except Exception as problem:
                # Spark's exception has only the text of this one
                self.failed = batch_id, problem
                raise

        return begin


@dataclass
class Job:
    """A running job: its session, its metrics and its stop."""

    spark: SparkSession
    metrics: Metrics
    stop: Stop
    _listener: ProgressListener | None = None

    def __post_init__(self) -> None:
        # see register(): a job may start two queries at once
        register_for_streams(self.spark)

    def start(
        self,
        writer: DataStreamWriter,
        write: WriteBatch,
        *,
        name: str,
        checkpoint: str,
        trigger: str,
    ) -> StreamingQuery:
        """Start a query that writes each batch with `write`.

        trigger: the job's setting of that name.
        """
        writer = (
            writer.queryName(name)
            .foreachBatch(self.stop.gate(write))
            .option("checkpointLocation", checkpoint)
        )
        if trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True).start()
        self.metrics.set("trigger_ms", int(interval_ms(trigger)))
        return writer.trigger(processingTime=trigger).start()

    def watch(self, query: str, seen: Callable[[Progress], None] | None = None) -> None:
        """Update the metrics from the query of that name. Call it before the query is started.

        seen: called with each progress.
        """
        self._forget()
        self._listener = ProgressListener(self.metrics, query, seen)
        self.spark.streams.addListener(self._listener)

    def close(self) -> None:
        """Stop the job's queries and listener; the session stays for others."""
        for query in self.spark.streams.active:
            query.stop()
        self._forget()

    def _forget(self) -> None:
        if self._listener is not None:
            self.spark.streams.removeListener(self._listener)
            self._listener = None

    def run(
        self,
        started: Sequence[StreamingQuery],
        more: Callable[[], Sequence[StreamingQuery]] = tuple,
    ) -> None:
        """Run until all queries have ended, or until a stop was asked for and batches have ended.

        more: returns the queries started since its last call. It is called repeatedly, and once
        more when all queries have ended. If a query fails, the others are stopped as by a stop, and
        its StreamingQueryException is raised.
        """
        queries = list(started)
        try:
            while not self.stop.is_asked:
                have_ended = not any(query.isActive for query in queries)
                queries += (added := more())
                if have_ended and not added:
                    break
                for query in queries:
                    query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # fractions are taken
        except StreamingQueryException:
            if not self.stop.left_a_batch:
                self.stop.ask_after_failure()
                self._end(queries)
                raise
        self._end(queries)
        failed = [error for query in queries if (error := query.exception()) is not None]
        if failed and not self.stop.left_a_batch:
            raise failed[0]

    def _end(self, queries: Sequence[StreamingQuery]) -> None:
        """Stop all queries; a batch that has begun is finished first."""
        for query in queries:
            while query.isActive and query.status["isTriggerActive"]:
                time.sleep(POLL_S)
            if query.isActive:
                query.stop()


def session(name: str, settings: Mapping[str, object], more: Mapping[str, str]) -> SparkSession:
    """Create the session of a job.

    more: configuration that the job needs, unless the user sets it.
    """
    # a SparkConf holds the user's settings only after a first call to the JVM
    SparkContext.getSystemProperty("spark.master")
    given = SparkConf()
    wanted = {**DEFAULTS, **more}
    wanted = {key: value for key, value in wanted.items() if not given.contains(key)}
    if settings.get("shuffle_partitions"):
        wanted["spark.sql.shuffle.partitions"] = str(settings["shuffle_partitions"])
    builder = SparkSession.builder.appName(name)
    for key, value in {**wanted, **SESSION}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def program(
    name: str,
    settings: Mapping[str, object],
    run: Callable[[Job], None],
    more: Mapping[str, str] | None = None,
) -> None:
    """Run a job as a program.

    Its output ends with one sentence, which says what was done or what failed. The exit code is 2
    after a wrong setting, and 1 after any other failure.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("logfleet_spark").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs the trace of each failed batch
    stop, metrics = Stop(), Metrics()
    stop.on_sigterm()
    failure: tuple[str, int] | None = None
    spark = None
    try:
        if port := settings["metrics_port"]:
            _serve(metrics, int(str(port)))
        spark = session(name, settings, more or {})
        _run(Job(spark, metrics, stop), run)
    except Exception as problem:  # noqa: BLE001  (whatever it is, it ends the program with a sentence)
        failure = _failure(name, stop, problem, str(settings["trace_file"] or ""))
    except KeyboardInterrupt:
        failure = f"{name}: stopped by Ctrl-C; the next start does the last batch again", 130
    finally:
        if spark is not None:
            spark.stop()
    if failure:
        sys.stderr.write(f"{failure[0]}\n")
        sys.exit(failure[1])
    how = "stopped at the end of a batch" if stop.is_asked else "done"
    counted = ", ".join(f"{each} {metrics.value(each)}" for each in COUNTERS)
    log.info("%s: %s", how, counted)


def _serve(metrics: Metrics, port: int) -> None:
    try:
        metrics.serve(port)
    except OSError as problem:
        log.warning(
            "there are no metrics: port %d cannot be used (%s); set --metrics-port to another, or 0",
            port,
            problem.strerror,
        )


def _run(job: Job, run: Callable[[Job], None]) -> None:
    """Run the job to its end.

    It runs once more, from its checkpoint, if one of Spark's Python workers did not start in time.
    """
    try:
        run(job)
    except Exception as problem:
        if NO_WORKER not in str(problem):
            raise
        log.warning("the machine is busy: a Python worker did not start within 10 s; trying again")
        job.close()
        job.stop.forget_failure()
        run(job)


def _failure(name: str, stop: Stop, problem: Exception, trace_file: str) -> tuple[str, int]:
    """Return (sentence, exit code), and write the stack trace, unless only the JVM's end is in it.

    trace_file: `-` for standard error, "" for a file in the folder of temporary files.
    """
    trace = "".join(traceback.format_exception(problem))
    where = ""
    if stop.failed:
        batch_id, problem = stop.failed
        where = f" in batch {batch_id}"
    if isinstance(problem, SettingError):
        return f"{name}: error: {problem}", 2
    if isinstance(problem, JVM_GONE):
        return f"{name} failed: Spark's JVM has ended; its log says why", 1
    sentence = f"{name} failed{where}: {cause_of(problem)}"
    path = Path(trace_file or Path(tempfile.gettempdir(), f"logfleet-{name}.trace"))
    try:
        if trace_file != "-":
            path.write_text(trace, encoding="utf-8")
            return f"{sentence} (trace: {path})", 1
    except OSError as unwritable:
        sentence += f" (--trace-file {path}: {unwritable.strerror}; the trace is above)"
    sys.stderr.write(trace)
    return sentence, 1
