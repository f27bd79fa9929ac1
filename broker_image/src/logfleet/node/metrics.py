"""What Prometheus sees of a broker.

The hot path counts in plain attributes of the objects it works on; they are read here when a scrape
comes. A counter of the client library costs about as much per increment as decoding a small request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from logfleet.node.client_quotas import ClientQuotas
from logfleet.node.dispatch import RequestStats
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


def new_registry() -> CollectorRegistry:
    """A registry of a broker's own, with what is known of its process (CPU, memory, descriptors)."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    return registry
