"""The operator's Prometheus metrics."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from logfleet_operator.queue import WorkQueue

Key = TypeVar("Key", bound=Hashable)


class Metrics(Generic[Key]):
    """The metrics of one work queue. now: the queue's clock."""

    def __init__(self, queue: WorkQueue[Key], now: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        prefix = "logfleet_operator"
        depth = Gauge(
            f"{prefix}_queue_depth", "Keys that wait to be reconciled.", registry=self._registry
        )
        depth.set_function(lambda: len(queue))
        overdue = Gauge(
            f"{prefix}_queue_overdue_seconds",
            "How long the key that is due longest has been waiting.",
            registry=self._registry,
        )
        overdue.set_function(lambda: max(0.0, now() - (queue.next_due() or now())))
        working = Gauge(
            f"{prefix}_reconciles_in_progress",
            "Keys worked on now, those that wait for their fleet counted.",
            registry=self._registry,
        )
        working.set_function(lambda: len(queue.working))
        self._reconciles = Counter(
            f"{prefix}_reconciles",
            "Reconciles by kind of key and result.",
            ["what", "result"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            f"{prefix}_reconcile_seconds",
            "Duration of reconciles.",
            ["what"],
            registry=self._registry,
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
        )

    def observe(self, what: str, result: str, seconds: float) -> None:
        self._reconciles.labels(what, result).inc()
        self._seconds.labels(what).observe(seconds)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
