from concurrent.futures import ThreadPoolExecutor

from logfleet.control.quota_rates import Windows
from logfleet.io.files import PosixFiles
from logfleet.log.disk_space import Room
from logfleet.metadata.image import Quotas
from logfleet.node.client_quotas import ClientQuotas
from logfleet.node.connection import Answer, Peer
from logfleet.node.disk_space import DiskSpace
from logfleet.node.dispatch import RequestStats
from logfleet.node.flusher import Flusher
from logfleet.node.listener import Listener
from logfleet.node.log_dirs import LogDirs
from logfleet.node.metrics import (
    ConnectionMetrics,
    DiskMetrics,
    FetchSessionMetrics,
    QuotaMetrics,
    RequestMetrics,
    new_registry,
)
from logfleet.node.open_files import OpenFiles
from logfleet.sessions.cache import SessionCache
from logfleet.wire.messages import FetchRequest


def nothing(peer: Peer, frame: memoryview) -> Answer:
    del peer, frame
    return None


def test_requests_are_told_by_api() -> None:
    registry = new_registry()
    stats = RequestStats()
    stats.requests, stats.seconds = 5, 0.25
    registry.register(RequestMetrics(lambda: {"Produce": stats}))
    assert registry.get_sample_value("logfleet_requests_total", {"api": "Produce"}) == 5
    assert registry.get_sample_value("logfleet_request_seconds_total", {"api": "Produce"}) == 0.25
    assert registry.get_sample_value("logfleet_request_failures_total", {"api": "Produce"}) == 0


def test_connections_are_told_by_listener() -> None:
    registry = new_registry()
    with ThreadPoolExecutor(1) as disk:
        listener = Listener("INTERNAL", nothing, disk=disk)
        listener.accepted = 3
        registry.register(ConnectionMetrics(lambda: [listener]))
        labels = {"listener": "INTERNAL"}
        assert registry.get_sample_value("logfleet_connections", labels) == 0
        assert registry.get_sample_value("logfleet_connections_accepted_total", labels) == 3


def test_fetch_sessions_are_counted() -> None:
    registry = new_registry()
    cache = SessionCache(1, iter([1, 2]).__next__)
    registry.register(FetchSessionMetrics(cache))
    wanted = {("topic", index): FetchRequest.FetchPartition() for index in range(3)}
    for privileged in (False, True):
        cache.create(wanted, by_id=False, privileged=privileged, now_ms=0)
    name = "logfleet_incremental_fetch"
    assert registry.get_sample_value(f"{name}_sessions") == 1
    assert registry.get_sample_value(f"{name}_partitions_cached") == 3
    assert registry.get_sample_value(f"{name}_session_evictions_total") == 1


def test_throttled_clients_are_counted_by_quota() -> None:
    registry = new_registry()
    quotas = ClientQuotas(Windows(), Windows())
    registry.register(QuotaMetrics(quotas))
    quotas.update({(("client-id", None),): Quotas({"producer_byte_rate": 1.0})})
    quotas.produce.count(quotas.produce.charge("c", 20))
    quotas.connection.throttled = 3
    labels = {"quota": "producer_byte_rate"}
    assert registry.get_sample_value("logfleet_quota_throttles_total", labels) == 1
    assert registry.get_sample_value("logfleet_quota_throttle_seconds_total", labels) == 10
    assert registry.get_sample_value("logfleet_quota_clients", labels) == 1
    assert registry.get_sample_value("logfleet_connections_throttled_total") == 3


def test_a_disk_that_fills_up_is_told() -> None:
    registry = new_registry()
    files = PosixFiles()
    space = DiskSpace(files, Flusher(files), LogDirs(OpenFiles(files), []), 0)
    registry.register(DiskMetrics(space))
    space.rooms["/data"] = Room(1_000, 100, 100)
    space.full.add("/data")
    labels = {"path": "/data"}
    assert registry.get_sample_value("logfleet_disk_bytes", labels) == 1_000
    assert registry.get_sample_value("logfleet_disk_free_bytes", labels) == 200
    assert registry.get_sample_value("logfleet_disk_full", labels) == 1
    over = "logfleet_disk_used_over"
    assert registry.get_sample_value(over, {**labels, "percent": "80"}) == 1
    assert registry.get_sample_value(over, {**labels, "percent": "95"}) == 0


def test_the_process_is_described() -> None:
    assert (new_registry().get_sample_value("process_resident_memory_bytes") or 0) > 0
