"""Metrics of a job for Prometheus, on a port of their own.

All but the lag are there, at 0, from the start. What only grows ends in _total, as Prometheus has
it. Source of the figures: org.apache.spark.sql.streaming.StreamingQueryProgress of Spark 4.2.
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
    "late_rows": "rows that came after their window was closed, as Spark counts them: after it has added up the rows of a window in a task",
    "dead_letters": "records that could not be read as the fields of the job, or did not meet its condition",
    "replayed": "dead letters that were sent back",
}
GAUGES: Mapping[str, str] = {
    "batch_ms": "how long the last micro-batch took",
    "trigger_ms": "how often micro-batches are to start; 0 if the next one starts when the last has ended",
    "last_progress_seconds": "when a micro-batch ended or there was nothing to do, in seconds since 1970",
}
PREFIX = "logfleet_spark_"
LAG = "lag"
"""A gauge with the labels `topic` and `partition`."""
Progress = Mapping[str, Any]
"""A StreamingQueryProgress as JSON."""


class Metrics:
    """Counters and gauges of one application. For one thread at a time."""

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
        """Let Prometheus scrape them at /metrics, on the address that the pages of Spark have too.

        Raises OSError if the port is taken.
        """
        start_http_server(port, os.environ.get("SPARK_LOCAL_IP", "0.0.0.0"), self.registry)  # noqa: S104

    def count(self, name: str, more: int) -> None:
        self._counters[name].inc(more)

    def set(self, name: str, value: int) -> None:
        self._gauges[name].set(value)

    def set_lags(self, lags: Mapping[tuple[str, int], int]) -> None:
        """lags: of all partitions, by topic and partition.

        Those that are no longer there have none.
        """
        now = {(topic, str(partition)): lag for (topic, partition), lag in lags.items()}
        for gone in self._lagging - now.keys():
            self._lag.remove(*gone)
        for place, lag in now.items():
            self._lag.labels(*place).set(lag)
        self._lagging = set(now)

    def value(self, name: str) -> int:
        """What a counter or a gauge without labels stands at."""
        series = PREFIX + name + ("_total" if name in COUNTERS else "")
        return int(self.registry.get_sample_value(series) or 0)


def lags(source: Progress) -> dict[tuple[str, int], int]:
    """Records not read yet by (topic, partition), from a source of a progress.

    Empty if it has no offsets by partition.

    Offsets are JSON, as text or as what was read of it. A partition that is not read yet counts as
    read to 0.
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
        """The application ends with its query."""

    def _alive(self) -> None:
        self._metrics.set("last_progress_seconds", int(time.time()))
