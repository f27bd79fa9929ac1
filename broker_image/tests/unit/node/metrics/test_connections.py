from concurrent.futures import ThreadPoolExecutor

from logfleet.metadata.image import Quotas
from logfleet.net.connection import Encoded
from logfleet.net.listener import Listener
from logfleet.net.peer import Peer
from logfleet.node.metrics.connections import connections, fetch_sessions, throttled_clients
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.quotas.rates import Windows
from logfleet.sessions.cache import SessionCache
from logfleet.wire.messages import FetchRequest

from broker_image.tests.unit.node.metrics.metric_values import metric_values


def nothing(peer: Peer, frame: memoryview) -> Encoded:
    del peer, frame
    return None


def test_connections_are_reported_by_listener() -> None:
    with ThreadPoolExecutor(1) as disk:
        listener = Listener("INTERNAL", nothing, disk=disk)
        listener.accepted = 3
        listener.closed_by["idle"] = 2
        values = metric_values(connections(lambda: [listener]))
    assert values("logfleet_connections", listener="INTERNAL") == 0
    assert values("logfleet_connections_accepted_total", listener="INTERNAL") == 3
    closed = "logfleet_connections_closed_total"
    assert values(closed, listener="INTERNAL", reason="idle") == 2
    assert values(closed, listener="INTERNAL", reason="peer") == 0
    assert values("logfleet_response_send_seconds_count", listener="INTERNAL") == 0


def test_fetch_sessions_are_counted() -> None:
    cache = SessionCache(1, iter([1, 2]).__next__)
    wanted = {("topic", index): FetchRequest.FetchPartition() for index in range(3)}
    for privileged in (False, True):
        cache.create(wanted, by_id=False, privileged=privileged, now_ms=0)
    values = metric_values(fetch_sessions(cache))
    name = "logfleet_incremental_fetch"
    assert values(f"{name}_sessions") == 1
    assert values(f"{name}_partitions_cached") == 3
    assert values(f"{name}_session_evictions_total") == 1


def test_throttled_clients_are_counted_by_quota() -> None:
    quotas = ClientQuotas(Windows(), Windows())
    quotas.update({(("client-id", None),): Quotas({"producer_byte_rate": 1.0})})
    quotas.produce.count(quotas.produce.charge("ANONYMOUS", "c", 20))
    quotas.connection.throttled = 3
    values = metric_values(throttled_clients(quotas))
    assert values("logfleet_quota_throttles_total", quota="producer_byte_rate") == 1
    assert values("logfleet_quota_throttle_seconds_total", quota="producer_byte_rate") == 10
    assert values("logfleet_quota_clients", quota="producer_byte_rate") == 1
    assert values("logfleet_connections_throttled_total") == 3
