"""What Prometheus sees of a broker.

The hot path counts in plain attributes of the objects it works on; they are read here when a scrape
comes. A counter of the client library costs about as much per increment as decoding a small request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from logfleet.node.client_quotas import ClientQuotas
from logfleet.node.disk_space import WARN_PERCENT, DiskSpace
from logfleet.node.dispatch import Dispatcher, RequestStats
from logfleet.node.listener import Listener
from logfleet.sessions.cache import SessionCache


class RequestMetrics(Collector):
    """Requests by API."""

    def __init__(self, stats: Callable[[], Mapping[str, RequestStats]]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("logfleet_requests", "Requests answered", labels=["api"])
        failures = CounterMetricFamily(
            "logfleet_request_failures", "Requests that a bug ended", labels=["api"]
        )
        seconds = CounterMetricFamily(
            "logfleet_request_seconds",
            "Time from a request's arrival to its answer, waiting included",
            labels=["api"],
        )
        for api, stats in self._stats().items():
            requests.add_metric([api], stats.requests)
            failures.add_metric([api], stats.failures)
            seconds.add_metric([api], stats.seconds)
        yield from (requests, failures, seconds)


class ConnectionMetrics(Collector):
    """Connections by listener."""

    def __init__(self, listeners: Callable[[], Iterable[Listener]]) -> None:
        self._listeners = listeners

    def collect(self) -> Iterator[Metric]:
        now = GaugeMetricFamily("logfleet_connections", "Open connections", labels=["listener"])
        accepted = CounterMetricFamily(
            "logfleet_connections_accepted", "Connections accepted", labels=["listener"]
        )
        refused = CounterMetricFamily(
            "logfleet_connections_refused",
            "Connections closed at once because their address had as many as max.connections.per.ip",
            labels=["listener"],
        )
        evicted = CounterMetricFamily(
            "logfleet_connections_evicted",
            "Connections closed because max.connections was exceeded, the longest idle first",
            labels=["listener"],
        )
        waited = CounterMetricFamily(
            "logfleet_connections_wait_seconds",
            "Time for which new connections were kept waiting by max.connections and the rate of new ones",
            labels=["listener"],
        )
        for listener in self._listeners():
            now.add_metric([listener.name], len(listener.connections))
            accepted.add_metric([listener.name], listener.accepted)
            refused.add_metric([listener.name], listener.refused)
            evicted.add_metric([listener.name], listener.evicted)
            waited.add_metric([listener.name], listener.waited_s)
        yield from (now, accepted, refused, evicted, waited)


class FetchSessionMetrics(Collector):
    """Fetch sessions, as Kafka's FetchSessionCache tells them."""

    def __init__(self, cache: SessionCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "logfleet_incremental_fetch_sessions",
            "Fetch sessions kept for readers (Kafka: NumIncrementalFetchSessions)",
            len(self._cache),
        )
        yield GaugeMetricFamily(
            "logfleet_incremental_fetch_partitions_cached",
            "Partitions of all fetch sessions (Kafka: NumIncrementalFetchPartitionsCached)",
            self._cache.partitions,
        )
        yield CounterMetricFamily(
            "logfleet_incremental_fetch_session_evictions",
            "Fetch sessions that had to make room for others (Kafka: IncrementalFetchSessionEvictionsPerSec)",
            self._cache.evictions,
        )


class QuotaMetrics(Collector):
    """Clients that were held for going too fast, by the quota that did it."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[Metric]:
        quotas = self._quotas
        throttled = CounterMetricFamily(
            "logfleet_quota_throttles", "Answers that throttled their client", labels=["quota"]
        )
        seconds = CounterMetricFamily(
            "logfleet_quota_throttle_seconds",
            "Time for which clients were throttled",
            labels=["quota"],
        )
        clients = GaugeMetricFamily(
            "logfleet_quota_clients", "Clients that are measured", labels=["quota"]
        )
        for each in (quotas.produce, quotas.fetch, quotas.request, quotas.mutation):
            throttled.add_metric([each.key], each.throttled)
            seconds.add_metric([each.key], each.throttled_ms / 1_000)
            clients.add_metric([each.key], len(each.meters))
        yield from (throttled, seconds, clients)
        yield CounterMetricFamily(
            "logfleet_connections_throttled",
            "Connections turned away because their address opened too many",
            quotas.connection.throttled,
        )


class DiskMetrics(Collector):
    """The disks of the log directories, as they were last looked at."""

    def __init__(self, disk_space: DiskSpace) -> None:
        self._disk_space = disk_space

    def collect(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("logfleet_disk_bytes", "Size of the disk", labels=["path"])
        free = GaugeMetricFamily(
            "logfleet_disk_free_bytes", "What may still be written to it", labels=["path"]
        )
        full = GaugeMetricFamily(
            "logfleet_disk_full", "1 while its directory takes no records", labels=["path"]
        )
        over = GaugeMetricFamily(
            "logfleet_disk_used_over",
            "1 while more than so many percent of it are used",
            labels=["path", "percent"],
        )
        for path, room in self._disk_space.rooms.items():
            total.add_metric([path], room.total_bytes)
            free.add_metric([path], room.free_bytes + room.reserve_bytes)
            full.add_metric([path], path in self._disk_space.full)
            for percent in WARN_PERCENT:
                over.add_metric([path, str(percent)], 100 * room.used_ratio >= percent)
        yield from (total, free, full, over)


def new_registry() -> CollectorRegistry:
    """A registry of a broker's own, with what is known of its process (CPU, memory, descriptors)."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    return registry


class Described(Protocol):
    """What of a broker is told."""

    quotas: ClientQuotas
    disk_space: DiskSpace
    fetch_sessions: SessionCache

    @property
    def dispatcher(self) -> Dispatcher[Any]: ...


def describe_broker(
    registry: CollectorRegistry, broker: Described, listeners: Callable[[], Iterable[Listener]]
) -> None:
    """Let a registry tell of a broker's requests, connections, clients and disks."""
    registry.register(RequestMetrics(lambda: broker.dispatcher.stats))
    registry.register(ConnectionMetrics(listeners))
    registry.register(QuotaMetrics(broker.quotas))
    registry.register(DiskMetrics(broker.disk_space))
    registry.register(FetchSessionMetrics(broker.fetch_sessions))
