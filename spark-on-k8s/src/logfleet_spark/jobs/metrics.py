"""Metrics of a job for Prometheus, on a port of their own.

All except the lag exist from the start, at 0. Names of counters end in _total, as Prometheus
recommends. Source of the figures: org.apache.spark.sql.streaming.StreamingQueryProgress of Spark
4.2.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
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
    "late_rows": "rows that came after their window was closed; Spark counts them after each task has aggregated its rows by window",
    "dead_letters": "records whose value does not fit the job's fields, or that do not meet its condition",
    "replayed": "dead letters that were sent back",
}
GAUGES: Mapping[str, str] = {
    "batch_ms": "how long the last micro-batch took",
    "trigger_ms": "interval at which micro-batches start; 0 if the next one starts when the last has ended",
    "last_progress_seconds": "when a micro-batch last ended, or there was nothing to read, in seconds since 1970",
}
PREFIX = "logfleet_spark_"
LAG = "lag"
"""A gauge with the labels `topic` and `partition`."""
Progress = Mapping[str, Any]
"""A StreamingQueryProgress as JSON."""


class Metrics:
    """Counters and gauges of one application. Not thread-safe."""

    def __init__(self) -> None:
        self.registry = kept = CollectorRegistry()
        self._counters = {
            name: Counter(PREFIX + name, text, registry=kept) for name, text in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(PREFIX + name, text, registry=kept) for name, text in GAUGES.items()
        }
        text = "records that the topic holds and the job has not read"
        self._lag = Gauge(PREFIX + LAG, text, ["topic", "partition"], registry=kept)
        self._lagging: set[tuple[str, str]] = set()

    def serve(self, port: int) -> None:
        """Let Prometheus scrape the metrics at /metrics, on the address of Spark's web pages.

        Raises OSError if the port is taken.
        """
        start_http_server(port, os.environ.get("SPARK_LOCAL_IP", "0.0.0.0"), self.registry)  # noqa: S104

    def count(self, name: str, more: int) -> None:
        self._counters[name].inc(more)

    def set(self, name: str, value: int) -> None:
        self._gauges[name].set(value)

    def set_lags(self, lags: Mapping[tuple[str, int], int]) -> None:
        """Set the lag of all partitions, by topic and partition.

        Series of other partitions are removed.
        """
        now = {(topic, str(partition)): lag for (topic, partition), lag in lags.items()}
        for gone in self._lagging - now.keys():
            self._lag.remove(*gone)
        for place, lag in now.items():
            self._lag.labels(*place).set(lag)
        self._lagging = set(now)

    def value(self, name: str) -> int:
        """Return the value of a counter or of a gauge without labels."""
        series = PREFIX + name + ("_total" if name in COUNTERS else "")
        return int(self.registry.get_sample_value(series) or 0)


def lags(source: Progress) -> dict[tuple[str, int], int]:
    """Return the number of unread records by (topic, partition), from one source of a progress.

    Empty if the source has no offsets by partition. Offsets may be JSON text or its parsed form. A
    partition that was never read counts as read up to offset 0.
    """
    read, newest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    return {place: max(0, end - read.get(place, 0)) for place, end in newest.items()}


def _offsets(given: Any) -> dict[tuple[str, int], int]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return {}
    if not isinstance(given, dict):
        return {}
    return {
        (topic, int(partition)): offset
        for topic, partitions in given.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


class ProgressListener(StreamingQueryListener):
    """Updates the metrics from the progress of one query of the application.

    query: its name. seen: called with each progress after the metrics are updated.
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
        behind = [lags(source) for source in progress["sources"]]
        if any(behind):
            metrics.set_lags({place: lag for each in behind for place, lag in each.items()})
        for observed in (progress.get("observedMetrics") or {}).values():
            metrics.count("dead_letters", observed.get("dead_letters") or 0)
        self._alive()
        if self._seen:
            self._seen(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        if str(event.runId) == self._run:
            self._alive()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to do: the application ends with its query."""

    def _alive(self) -> None:
        self._metrics.set("last_progress_seconds", int(time.time()))
