"""A job's metrics on the Prometheus endpoint of Spark's driver (`/metrics/prometheus` on the port of its UI, 4040).

Spark names them metrics_NAMESPACE_driver_logfleet_NAME_Count (what only grows) and _Value; NAMESPACE is `spark` with the shipped
spark-defaults.conf. Spark has no labels there: the lag of partition 0 of `flights` is lag_flights_0, of which the chart's PodMonitor makes
labels. Sources: org.apache.spark.metrics.sink.PrometheusServlet, org.apache.spark.sql.streaming.StreamingQueryProgress.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

COUNTERS: Mapping[str, str] = {
    "rows": "records that micro-batches have read",
    "batches": "micro-batches that have ended",
    "late_rows": "rows that came after their window was closed, as Spark counts them: after rows of one window were added up in a task",
    "dead_letters": "records that could not be read as the job's fields say, or did not meet its condition",
    "replayed": "dead letters that were sent back",
}
GAUGES: Mapping[str, str] = {
    "batch_ms": "how long the last micro-batch took",
    "trigger_ms": "how often micro-batches are to start; 0 if the next one starts when the last has ended",
    "last_progress_seconds": "when a micro-batch ended or there was nothing to do, in seconds since 1970",
}
Progress = Mapping[str, Any]
"""A StreamingQueryProgress as JSON."""
LAG = "lag"
"""Prefix of gauges by topic and partition: records that are there and not read yet."""


class _Source:
    """Spark's interface of whatever has metrics, called once, when it is registered."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def sourceName(self) -> str:
        return "logfleet"

    def metricRegistry(self) -> Any:
        return self._registry

    class Java:
        implements: ClassVar = ["org.apache.spark.metrics.source.Source"]


class Metrics:
    """Counters and gauges of one application; all of them are there, at 0, from the start. For one thread at a time."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001  (Spark has no Python interface for metrics of one's own)
        self._jvm = jvm
        self._registry = self._jvm.com.codahale.metrics.MetricRegistry()
        self._gauges: dict[str, Any] = {}
        for name in COUNTERS:
            self.count(name, 0)
        for name in GAUGES:
            self.set(name, 0)
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        system = self._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
        system.registerSource(_Source(self._registry))

    def count(self, name: str, more: int) -> None:
        assert name in COUNTERS, name
        self._registry.counter(name).inc(more)

    def set(self, name: str, value: int) -> None:
        """Set a gauge, which is made if it is new."""
        if name not in self._gauges:
            self._gauges[name] = self._jvm.com.codahale.metrics.DefaultSettableGauge(value)
            self._registry.register(name, self._gauges[name])
        self._gauges[name].setValue(value)

    def value(self, name: str) -> int:
        """What is told now."""
        if name in COUNTERS:
            return int(self._registry.counter(name).getCount())
        return int(self._gauges[name].getValue())


def lags(source: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Records not read yet by (topic, partition), from a source of a StreamingQueryProgress; empty if it tells no offsets by partition.

    Offsets come as JSON, which Spark hands on as text or as it was read. A partition that is not read yet counts as read to 0.
    """
    read, newest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    return {place: max(0, end - read.get(place, 0)) for place, end in newest.items()}


def _offsets(told: Any) -> dict[tuple[str, int], int]:
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return {}
    if not isinstance(told, dict):
        return {}
    return {
        (topic, int(partition)): offset
        for topic, partitions in told.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


class ProgressListener(StreamingQueryListener):
    """Keeps metrics of one query of the application.

    query: its name. seen: is called with each of its progresses, once they are counted.
    """

    def __init__(
        self, metrics: Metrics, query: str, seen: Callable[[Progress], None] | None = None
    ) -> None:
        self._metrics = metrics
        self._query = query
        self._seen = seen
        self._run: str | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if event.name == self._query:
            self._run = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = json.loads(event.progress.json)
        if progress["name"] != self._query:
            return
        metrics = self._metrics
        metrics.count("batches", 1)
        metrics.count("rows", sum(source["numInputRows"] for source in progress["sources"]))
        late = (state["numRowsDroppedByWatermark"] for state in progress["stateOperators"])
        metrics.count("late_rows", sum(late))
        metrics.set("batch_ms", progress["durationMs"].get("triggerExecution", 0))
        for source in progress["sources"]:
            for (topic, partition), lag in lags(source).items():
                metrics.set(f"{LAG}.{topic}.{partition}", lag)
        for observed in (progress.get("observedMetrics") or {}).values():
            metrics.count("dead_letters", observed.get("dead_letters") or 0)
        self._alive()
        if self._seen:
            self._seen(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        if str(event.runId) == self._run:
            self._alive()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to tell: the application ends with its query."""

    def _alive(self) -> None:
        self._metrics.set("last_progress_seconds", int(time.time()))
