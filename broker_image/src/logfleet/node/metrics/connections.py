"""Connections by listener, fetch sessions, and clients that quotas throttled."""

from collections.abc import Callable, Iterable, Iterator

from logfleet.net.listener import Listener
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.sessions.cache import SessionCache
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, labelled, single


def connections(listeners: Callable[[], Iterable[Listener]]) -> Iterator[Family]:
    """Metrics of connections, for each listener."""
    all_ = [((each.name,), each) for each in listeners()]
    yield labelled(table.CONNECTIONS, [(name, len(each.connections)) for name, each in all_])
    yield labelled(table.CONNECTIONS_ACCEPTED, [(name, each.accepted) for name, each in all_])
    yield labelled(
        table.CONNECTIONS_CLOSED,
        [
            ((*name, reason), count)
            for name, each in all_
            for reason, count in each.closed_by.items()
        ],
    )
    yield labelled(table.CONNECTIONS_REFUSED, [(name, each.refused) for name, each in all_])
    yield labelled(table.CONNECTIONS_WAIT, [(name, each.waited_s) for name, each in all_])
    yield labelled(table.RESPONSE_SEND_SECONDS, [(name, each.send_time) for name, each in all_])


def fetch_sessions(cache: SessionCache) -> Iterator[Family]:
    """Metrics of fetch sessions, as Kafka's FetchSessionCache has them."""
    yield single(table.FETCH_SESSIONS, len(cache))
    yield single(table.FETCH_SESSION_PARTITIONS, cache.partitions)
    yield single(table.FETCH_SESSION_EVICTIONS, cache.evictions)


def throttled_clients(quotas: ClientQuotas) -> Iterator[Family]:
    """Metrics of throttled clients, by the quota that throttled them."""
    all_ = [
        ((each.key,), each)
        for each in (quotas.produce, quotas.fetch, quotas.request, quotas.mutation)
    ]
    yield labelled(table.QUOTA_THROTTLES, [(key, each.throttled) for key, each in all_])
    yield labelled(
        table.QUOTA_THROTTLE_SECONDS, [(key, each.throttled_ms / 1_000) for key, each in all_]
    )
    yield labelled(table.QUOTA_CLIENTS, [(key, len(each.meters)) for key, each in all_])
    yield single(table.CONNECTIONS_THROTTLED, quotas.connection.throttled)
