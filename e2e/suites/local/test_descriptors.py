"""A broker that may open few files, and peers that connect as often as they can: they are refused, the logs have what they need.

The limit is given as a service manager would: hard and soft, before the broker starts.
"""

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest
from logfleet.io.descriptors import shares_of
from logfleet.records.record import Record, build_batch, read_records
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.harness.command_line import said
from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import Disconnected, WireConnection

pytestmark = pytest.mark.timeout(240)
LIMIT = 200
TOPIC = "t"
VALUE_BYTES = 200_000
SEGMENT_BYTES = 1 << 20


@pytest.fixture
def broker(rig: Rig) -> Broker:
    limited = rig.own(Broker(rig.directory / "limited", name="limited"))
    limited.prefix = ["prlimit", f"--nofile={LIMIT // 2}:{LIMIT}"]
    limited.start()
    said(limited, "topic", "create", TOPIC, "-p", "1", "-c", f"segment.bytes={SEGMENT_BYTES}")
    return limited


def produce(connection: WireConnection) -> tuple[ErrorCode, bytes]:
    """One record of VALUE_BYTES; what was answered, and the record's value."""
    value = os.urandom(VALUE_BYTES)
    batch = bytes(build_batch([Record(None, value, time.time_ns() // 1_000_000)]))
    kind = m.ProduceRequest
    data = kind.TopicProduceData(
        name=TOPIC, partition_data=[kind.PartitionProduceData(records=batch)]
    )
    answer = connection.call(kind(acks=-1, timeout_ms=5_000, topic_data=[data]), 12)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code), value


def fetch(connection: WireConnection, offset: int) -> list[bytes | None]:
    """The values of the records from an offset on, of one segment at most."""
    kind = m.FetchRequest
    partition = kind.FetchPartition(fetch_offset=offset, partition_max_bytes=8 << 20)
    request = kind(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=8 << 20,
        session_epoch=-1,
        topics=[kind.FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    row = connection.call(request, 12).responses[0].partitions[0]
    assert row.error_code == ErrorCode.NONE
    return [record.value for record in read_records(bytes(row.records))] if row.records else []


def everything(broker: Broker) -> list[bytes | None]:
    values: list[bytes | None] = []
    with WireConnection(broker.port) as connection:
        while more := fetch(connection, len(values)):
            values += more
    return values


@contextlib.contextmanager
def flood(port: int, count: int) -> Iterator[list[socket.socket]]:
    made = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(count)]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def closed(sockets: list[socket.socket]) -> list[socket.socket]:
    """Those that the broker has closed."""
    poll = select.poll()
    by_fd = {each.fileno(): each for each in sockets}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(0)]


def logged(broker: Broker, event: str) -> list[dict[str, object]]:
    lines = map(json.loads, broker.said().splitlines())
    return [line for line in lines if line["event"] == event]


def test_connections_do_not_take_what_the_logs_need(broker: Broker) -> None:
    broker.wait_until(lambda: bool(logged(broker, "broker_started")))
    (started,) = logged(broker, "broker_started")
    shares = shares_of(LIMIT)
    assert started["descriptors"] == msgspec.structs.asdict(shares)
    assert shares.limit == LIMIT
    acknowledged = []
    with WireConnection(broker.port) as established, flood(broker.port, 2 * LIMIT) as peers:
        broker.wait_until(lambda: len(closed(peers)) > 2 * LIMIT - shares.connections)
        for _ in range(12):  # several segments
            error, value = produce(established)
            assert error is ErrorCode.NONE
            acknowledged.append(value)
        read = fetch(established, 0)
        assert read == acknowledged[: len(read)]
        assert read
        assert len(list((broker.data / f"{TOPIC}-0").glob("*.log"))) > 1
        refused = broker.metric("logfleet_connections_refused_total")
        assert refused == len(closed(peers))
        with pytest.raises(Disconnected), WireConnection(broker.port) as late:
            late.call(m.MetadataRequest(topics=None), 12)
        assert len(logged(broker, "connections_refused")) < refused / 10
    broker.wait_until(lambda: broker.metric("logfleet_connections") == 0)
    assert everything(broker) == acknowledged
    assert broker.metric("logfleet_offline_log_directories") == 0
    assert logged(broker, "out_of_descriptors") == []
    broker.restart()
    assert everything(broker) == acknowledged
