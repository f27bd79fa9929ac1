"""`logfleet broker` as a person runs it: what it takes, what it says when it cannot start, how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from logfleet.wire import messages as m

from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import Disconnected, WireConnection

COMMAND = [sys.executable, "-m", "logfleet", "broker"]
ANY_PORTS = ["--override", "listeners=PLAINTEXT://127.0.0.1:0"]
ANY_PORTS += ["--override", "logfleet.admin.listener=127.0.0.1:0"]
WITHIN_S = 30.0
MIB = 1 << 20
RESOURCE_BROKER = 4
LATEST, EARLIEST = -1, -2


def run_in_vain(directory: Path, *arguments: str) -> str:
    """What a broker says that does not start: one line of its own, beside warnings about keys."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=directory,
        check=False,
    )
    assert done.returncode in {1, 2}, done
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if '"level": "warning"' not in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end, f"not true in {WITHIN_S} s"
        time.sleep(0.02)


def test_nothing_given_is_a_broker_for_a_laptop(tmp_path: Path) -> None:
    """In a network namespace of its own, where the well-known ports are free whatever else runs on this machine."""
    script = """
import json, pathlib, signal, subprocess, sys, time
from e2e.harness.wire_connection import WireConnection
from logfleet.wire import messages as m
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
broker = subprocess.Popen([sys.executable, "-m", "logfleet", "broker"])
while broker.poll() is None:
    try:
        connection = WireConnection(9092)
    except ConnectionRefusedError:
        time.sleep(0.05)
        continue
    answer = connection.call(m.MetadataRequest(topics=None), 12)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", 9092)]
    assert pathlib.Path("logfleet-data/meta.properties").exists()
    for question in (["events", "--kind", "registered"], ["may-i", "stop", "1"]):
        told = subprocess.run([sys.executable, "-m", "logfleet", *question, "-o", "json"], capture_output=True, text=True)
        assert (told.returncode, told.stderr) == (0, ""), told
        assert json.loads(told.stdout), told
    broker.send_signal(signal.SIGTERM)
    break
sys.exit(broker.wait())
"""
    own = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    done = subprocess.run(
        ["unshare", *own, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["logfleet-data"]


def test_a_file_of_kafkas_keys_and_overrides_on_top(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    broker = rig.program("from-file", [*COMMAND, str(file), "--override", "num.partitions=6"])
    port, admin_port = broker.ports.reserve(), broker.ports.reserve()
    file.write_text(
        f"# ours\nlisteners = PLAINTEXT://127.0.0.1:{port}\n"
        f"logfleet.admin.listener=127.0.0.1:{admin_port}\nlog.dirs=data\n"
        "num.partitions=5\nlog.retention.hours: 2\nnode.id 7\n"
    )
    broker.launch()
    broker.wait_until(lambda: '"broker_started"' in broker.said())
    keys = ["num.partitions", "log.retention.hours", "node.id"]
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=RESOURCE_BROKER, resource_name="7", configuration_keys=keys
    )
    with WireConnection(port) as connection:
        (answer,) = connection.call(m.DescribeConfigsRequest(resources=[resource]), 4).results
    told = {config.name: config.value for config in answer.configs}
    assert told == {"num.partitions": "6", "log.retention.hours": "2", "node.id": "7"}
    assert broker.terminate() == 0


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--override", "num.partitions=many"], "num.partitions"),
        (["no-such-file"], "no-such-file"),
        (["malformed"], "Malformed"),
        ([*ANY_PORTS, "--override", "log.dirs=file"], "file"),
        ([*ANY_PORTS, "--override", "log.dirs=/proc/none"], "/proc/none"),
        ([*ANY_PORTS, "--override", "log.dirs=a,file"], "file"),
    ],
    ids=lambda value: value.replace("/", "") if isinstance(value, str) else "",
)
def test_what_cannot_be_used_is_said_in_one_line(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "malformed").write_text("# \xe9\nbroker.rack=\\u00e\n", encoding="latin-1")
    assert words in run_in_vain(tmp_path, *arguments)


def test_a_port_or_a_directory_in_use_is_said_in_one_line(rig: Rig, tmp_path: Path) -> None:
    broker = rig.broker()
    admin = ("--override", "logfleet.admin.listener=127.0.0.1:0")
    port = ("--override", f"listeners=PLAINTEXT://{broker.bootstrap}")
    said = run_in_vain(tmp_path, *port, *admin)
    assert broker.bootstrap in said
    assert "in use" in said
    free = ("--override", "listeners=PLAINTEXT://127.0.0.1:0")
    said = run_in_vain(tmp_path, *free, *admin, "--override", f"log.dirs={broker.data}")
    assert str(broker.data) in said
    assert "in use" in said
    taken = ("--override", f"logfleet.admin.listener=127.0.0.1:{broker.admin_port}")
    assert "logfleet.admin.listener" in run_in_vain(tmp_path, *free, *taken)
    assert broker.running


def test_sigterm_ends_it_in_order_whatever_clients_wait_for(rig: Rig) -> None:
    broker = rig.broker()
    topic_id = make_topic(broker)
    waiting = [WireConnection(broker.port) for _ in range(20)]
    for connection in waiting:
        connection.send(long_poll(topic_id), 13)
    assert broker.terminate() == 0
    assert (broker.data / ".kafka_cleanshutdown").exists()
    assert '"level": "error"' not in broker.said()
    for connection in waiting:
        connection.socket.close()
    broker.start()
    assert '"was_clean": true' in broker.said()


def test_an_interrupt_ends_it_as_sigterm_does(rig: Rig) -> None:
    broker = rig.broker()
    broker.send(signal.SIGINT)
    assert broker.wait() == 0
    assert (broker.data / ".kafka_cleanshutdown").exists()


def test_the_admin_port_tells_health_readiness_and_metrics(rig: Rig) -> None:
    broker = rig.broker()
    assert broker.get("/healthz") == (200, "ok\n")
    assert broker.get("/readyz") == (200, "ok\n")
    with WireConnection(broker.port) as connection:
        connection.call(m.MetadataRequest(topics=None), 12)
        assert broker.metric('logfleet_requests_total{api="Metadata"}') == 1
    assert broker.get("/nothing")[0] == 404


def test_a_broker_that_stands_still_answers_no_probe(rig: Rig) -> None:
    """What makes Kubernetes restart it: a probe's timeout, as an event loop that stands still cannot say so."""
    broker = rig.broker()
    broker.pause()
    assert broker.get("/healthz", timeout_s=1) == (0, "")
    broker.resume()
    assert broker.get("/healthz") == (200, "ok\n")


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(rig: Rig) -> None:
    broker = rig.broker({"connections.max.idle.ms": "10000"})  # no less: the machine may stall
    topic_id = make_topic(broker)
    with WireConnection(broker.port) as idle, WireConnection(broker.port) as waiting:
        waiting.send(long_poll(topic_id, max_wait_ms=25_000), 13)
        with pytest.raises(Disconnected):
            idle.frame()
        assert waiting.receive(m.FetchRequest, 13).error_code == 0


def test_a_frame_beyond_the_limit_is_refused_before_it_is_there(rig: Rig) -> None:
    broker = rig.broker({"socket.request.max.bytes": str(100 * MIB)})
    for size in (100 * MIB + 1, 2**31 - 1, 2**31, 2**32 - 1, 0):
        with WireConnection(broker.port) as connection:
            connection.socket.sendall(size.to_bytes(4, "big"))
            with pytest.raises(Disconnected):
                connection.frame()
    before = broker.rss_bytes()
    announced = [WireConnection(broker.port) for _ in range(50)]
    for connection in announced:
        connection.socket.sendall((100 * MIB).to_bytes(4, "big") + b"\0\x03")
    with WireConnection(broker.port) as connection:  # all of them were read by now
        connection.call(m.ApiVersionsRequest(client_software_name="a"), 0)
    assert broker.rss_bytes() - before < 32 * MIB
    for connection in announced:
        connection.socket.close()


def test_pipelined_requests_are_answered_in_their_order(rig: Rig) -> None:
    broker = rig.broker()
    topic_id = make_topic(broker)
    with WireConnection(broker.port) as connection:
        kinds = []
        for number in range(200):
            slow = number % 50 == 10
            request = (
                long_poll(topic_id, max_wait_ms=200) if slow else m.MetadataRequest(topics=None)
            )
            version = 13 if slow else 12
            connection.send(request, version)
            kinds.append((type(request), version))
        for kind, version in kinds:
            connection.receive(kind, version)


def test_a_hundred_waiting_readers_cost_no_processor(rig: Rig) -> None:
    broker = rig.broker()
    topic_id = make_topic(broker)
    waiting = [WireConnection(broker.port) for _ in range(100)]
    for connection in waiting:
        connection.send(long_poll(topic_id, max_wait_ms=60_000), 13)
    with WireConnection(broker.port) as connection:
        connection.call(m.ApiVersionsRequest(client_software_name="a"), 0)
        # the time itself is what is measured: an idle broker may use 5 % of a processor
        began, used = time.monotonic(), broker.cpu_seconds()
        until(lambda: time.monotonic() - began > 4)
        assert broker.cpu_seconds() - used < 0.05 * (time.monotonic() - began)
        connection.call(produce_one(topic_id), 13)
    for connection in waiting:
        answer = connection.receive(m.FetchRequest, 13)
        assert answer.responses[0].partitions[0].high_watermark == 1
        connection.socket.close()


def make_topic(broker: Broker, **configs: str) -> bytes:
    kind = m.CreateTopicsRequest
    rows = [
        kind.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()
    ]
    topic = kind.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=rows)
    with WireConnection(broker.port) as connection:
        (made,) = connection.call(kind(topics=[topic], timeout_ms=30_000), 7).topics
        assert made.error_code == 0, made
        # the answer comes when the topic is decided; clients try again until its leader leads
        until(lambda: offset_of(connection, EARLIEST) == 0)
    topic_id: bytes = made.topic_id
    return topic_id


def offset_of(connection: WireConnection, timestamp: int) -> int:
    """What ListOffsets says for partition 0 of the topic; -1 for nothing or an error."""
    partition = m.ListOffsetsRequest.ListOffsetsPartition(timestamp=timestamp)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    (found,) = connection.call(m.ListOffsetsRequest(topics=[topic]), 7).topics[0].partitions
    offset: int = found.offset
    return offset


def long_poll(topic_id: bytes, *, max_wait_ms: int = 60_000) -> m.FetchRequest:
    partition = m.FetchRequest.FetchPartition(partition_max_bytes=MIB)
    topic = m.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
    return m.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=MIB, topics=[topic])


def produce_one(
    topic_id: bytes, value: bytes = b"v", timestamp_ms: int = 1_700_000_000_000
) -> m.ProduceRequest:
    from logfleet.records.record import Record, build_batch

    batch = bytes(build_batch([Record(None, value, timestamp_ms)]))
    partition = m.ProduceRequest.PartitionProduceData(records=batch)
    topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[partition])
    return m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


@pytest.mark.parametrize(
    "configs, old_ms",
    [({"retention_bytes": str(2 * MIB)}, 0), ({"retention_ms": "3600000"}, 7_200_000)],
    ids=["by size", "by time"],
)
def test_what_is_too_much_or_too_old_is_deleted(
    rig: Rig, configs: dict[str, str], old_ms: int
) -> None:
    broker = rig.broker(
        {"log.retention.check.interval.ms": "100", "log.segment.delete.delay.ms": "0"}
    )
    topic_id = make_topic(broker, segment_bytes=str(MIB), **configs)
    now_ms = time.time_ns() // 1_000_000
    with WireConnection(broker.port) as connection:
        for number in range(24):  # of 256 KiB: the last eight are of now
            age_ms = old_ms if number < 16 else 0
            answer = connection.call(produce_one(topic_id, bytes(MIB // 4), now_ms - age_ms), 13)
            assert answer.responses[0].partition_responses[0].base_offset == number
        # Segments of three records at most: retention that runs beside the writes also ends an expired active one early, and
        # which one holds the first record of now depends on that.
        until(lambda: offset_of(connection, EARLIEST) in (14, 15, 16))
        first = offset_of(connection, EARLIEST)
        until(lambda: log_files(broker)[0] == f"{first:020}.log")
        until(lambda: not list((broker.data / "t-0").glob("*.deleted")))
        assert offset_of(connection, LATEST) == 24


def log_files(broker: Broker) -> list[str]:
    return sorted(path.name for path in (broker.data / "t-0").glob("*.log"))


def test_on_a_terminal_the_start_ends_with_one_plain_line(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with (
        os.fdopen(ours, "rb") as terminal,
        subprocess.Popen(
            [*COMMAND, *ANY_PORTS], cwd=tmp_path, stdout=theirs, stderr=theirs
        ) as broker,
    ):
        os.close(theirs)
        try:
            line = b""
            while not line.startswith(b"ready: "):
                assert broker.poll() is None
                line = terminal.readline()
        finally:
            broker.terminate()
    ready, data, admin, stop = line.decode().strip().split("  ")
    assert ready.startswith("ready: 127.0.0.1:")
    assert (data, stop) == ("data ./logfleet-data", "Ctrl-C stops")
    assert admin.startswith("admin http://127.0.0.1:")


def test_without_a_terminal_every_line_is_json(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, *ANY_PORTS], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as broker:
        assert broker.stderr is not None
        assert broker.stdout is not None
        event: dict[str, str] = {}
        while event.get("event") != "broker_started":
            event = json.loads(broker.stderr.readline())
        broker.terminate()
        rest = [json.loads(line)["event"] for line in broker.stderr]
        assert rest[-1] == "broker_stopped"
        assert broker.stdout.read() == b""
    assert event["admin"].startswith("http://127.0.0.1:")
