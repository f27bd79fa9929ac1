"""What peers cost that do nothing, read slowly, read nothing or send half of something: little memory, and not for ever."""

import contextlib
import select
import socket
import sys
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from logfleet.wire import messages as m
from logfleet.wire.frame import encode_request

from e2e.harness.processes import Broker, Rig
from e2e.harness.results import ROOT
from e2e.harness.topics import create_topic
from e2e.harness.wire_connection import WireConnection

MIB = 1024 * 1024
PATIENCE_S = 60.0
TOPIC, PARTITIONS = "large", 100
TOPIC_BYTES = 24 * MIB
RECORD_BYTES = 100_000


@contextlib.contextmanager
def peers(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections of small buffers on our side, closed at the end."""
    made = []
    try:
        for _ in range(count):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            peer.connect(("127.0.0.1", port))
            made.append(peer)
        yield made
    finally:
        for peer in made:
            peer.close()


def fetch(correlation_id: int) -> bytes:
    partition = m.FetchRequest.FetchPartition(partition=0, partition_max_bytes=16 * MIB)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    request = m.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=16 * MIB, topics=[topic])
    return b"".join(encode_request(request, 12, correlation_id, "greedy"))  # type: ignore[arg-type]


def metadata(correlation_id: int) -> bytes:
    return b"".join(encode_request(m.MetadataRequest(topics=None), 12, correlation_id, "greedy"))  # type: ignore[arg-type]


def send_until_full(peer: socket.socket, request: bytes, count: int) -> int:
    """Bytes that the broker's side took of so many requests before nothing more went in."""
    peer.setblocking(False)
    data, sent = memoryview(request * count), 0
    while sent < len(data) and select.select([], [peer], [], 0.3)[1]:
        sent += peer.send(data[sent:])
    return sent


def serves(broker: Broker) -> bool:
    with WireConnection(broker.port) as connection:
        return bool(connection.call(m.MetadataRequest(topics=None), 12).topics)


@pytest.fixture
def filled(rig: Rig) -> Broker:
    """A broker with TOPIC_BYTES in the first partition of a topic, which takes kilobytes to describe."""
    broker = rig.broker()
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(TOPIC_BYTES // RECORD_BYTES):
        producer.produce(TOPIC, bytes(RECORD_BYTES), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return broker


@pytest.mark.timeout(240)  # most of it is waiting for the idle limit
def test_five_thousand_idle_connections_cost_little_and_expire(rig: Rig) -> None:
    count = 5000
    broker = rig.broker({"connections.max.idle.ms": "20000"})
    assert serves(broker) is False
    before = broker.rss_bytes()
    command = [sys.executable, "-m", "e2e.workloads.idle_connections", str(broker.port), str(count)]
    clients = rig.program("clients", command, {"PYTHONPATH": str(ROOT)})
    clients.launch()
    clients.wait_until(lambda: f"open {count}" in clients.said(), PATIENCE_S)
    cost = broker.rss_bytes() - before
    print(f"{count} idle connections: {cost / MIB:.1f} MiB, {cost / count:.0f} bytes each")
    assert cost <= 128 * MIB
    assert clients.wait(PATIENCE_S * 2) == 0, clients.tail()
    assert f"closed {count}" in clients.said()
    assert not serves(broker)


@pytest.mark.parametrize("request_of, count", [(fetch, 50), (metadata, 5)])
def test_a_client_that_reads_no_answer_costs_no_memory(
    filled: Broker, request_of: Callable[[int], bytes], count: int
) -> None:
    requests = 3000
    before = filled.rss_bytes()
    with peers(filled.port, count) as greedy:
        taken = [send_until_full(peer, request_of(1), requests) for peer in greedy]
        assert all(serves(filled) for _ in range(20))  # the others have their turns meanwhile
        cost = filled.rss_bytes() - before
    print(f"{count} clients, {sum(taken) / MIB:.1f} MiB of requests taken: {cost / MIB:.1f} MiB")
    assert cost <= 32 * MIB


def test_slow_readers_get_what_is_theirs_and_hold_up_nobody(filled: Broker) -> None:
    count = 30
    before = filled.rss_bytes()
    with peers(filled.port, count) as slow:
        for peer in slow:
            peer.sendall(fetch(1))
        sizes = {int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big") for peer in slow}
        assert min(sizes) > 8 * MIB
        for _ in range(20):
            for peer in slow:
                assert peer.recv(1000)
            assert serves(filled)
        cost = filled.rss_bytes() - before
        left = min(sizes) - 20 * 1000
        for peer in slow[:3]:  # the pace does not matter
            received = 0
            while received < left:
                received += len(peer.recv(MIB))
    print(f"{count} slow readers of {min(sizes) / MIB:.0f} MiB each: {cost / MIB:.1f} MiB")
    assert cost <= 32 * MIB


def test_half_a_frame_costs_what_was_sent_of_it_and_expires(rig: Rig) -> None:
    count, claimed, sent = 200, 90 * MIB, 1000
    broker = rig.broker({"connections.max.idle.ms": "15000"})
    before = broker.rss_bytes()
    with peers(broker.port, count) as halves:
        for peer in halves:
            peer.sendall(claimed.to_bytes(4, "big") + bytes(sent))
        assert not serves(broker)
        cost = broker.rss_bytes() - before
        print(f"{count} half frames of {claimed // MIB} MiB: {cost / MIB:.1f} MiB")
        assert cost <= 48 * MIB
        for peer in halves:
            peer.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b""
    assert not serves(broker)
