"""A disk that fills up: producers are refused, all else goes on, nothing acknowledged is lost, and it ends by itself.

The disk is a tmpfs of 64 MiB, which takes root to mount.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logfleet.records.record import Record, build_batch, read_records
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.harness.command_line import said
from e2e.harness.kafka import run_tool
from e2e.harness.processes import Broker
from e2e.harness.wire_connection import WireConnection

pytestmark = pytest.mark.timeout(300)
DISK_MIB = 64
BATCH_BYTES = 256 * 1024
ROOM_S = 60.0
"""Files are removed every 10 s, and a busy machine takes its time."""
REFUSED_S = 1.0
REFUSALS = 10
"""The quickest of so many must take less than REFUSED_S: a busy machine may hold up one of them, hardly all."""
REQUEST_TIMEOUT_MS = 120_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and a file system cannot be mounted: {mounted.stderr}")
        pytest.skip(f"needs root to mount a small file system: {mounted.stderr}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def broker(tmp_path: Path, disk: Path) -> Iterator[Broker]:
    config = {
        "log.dirs": str(disk / "data"),
        "log.segment.delete.delay.ms": "0",
        "log.cleaner.backoff.ms": "500",
    }
    broker = Broker(tmp_path / "broker", config)
    broker.start()
    yield broker
    print(broker.tail())
    broker.close()


class Writer:
    """Sends batches to topics' partition 0 and remembers what was acknowledged."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.acknowledged: dict[str, list[bytes]] = {}

    def create(self, topic: str, *configs: str) -> None:
        given = [part for each in ("segment.bytes=4194304", *configs) for part in ("-c", each)]
        said(self.broker, "topic", "create", topic, "-p", "1", *given)
        self.acknowledged[topic] = []

    def send(self, topic: str, size: int = BATCH_BYTES, key: bytes | None = None) -> ErrorCode:
        value = os.urandom(size)
        batch = bytes(build_batch([Record(key, value, time.time_ns() // 1_000_000)]))
        kind = m.ProduceRequest
        data = kind.TopicProduceData(
            name=topic, partition_data=[kind.PartitionProduceData(records=batch)]
        )
        request = kind(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[data])
        with WireConnection(self.broker.port) as connection:
            answer = connection.call(request, 12)
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self.acknowledged[topic].append(value)
        return error

    def fill(self, topic: str, key: bytes | None = None) -> None:
        """Send until that is refused."""
        for _ in range(DISK_MIB * 1024 * 1024 // BATCH_BYTES):
            error = self.send(topic, key=key)
            if error is not ErrorCode.NONE:
                assert error is ErrorCode.KAFKA_STORAGE_ERROR
                return
        raise AssertionError("more than the disk holds was acknowledged")

    def read(self, topic: str) -> list[bytes | None]:
        kind = m.FetchRequest
        values: list[bytes | None] = []
        offset = 0
        with WireConnection(self.broker.port) as connection:
            while True:
                partition = kind.FetchPartition(fetch_offset=offset, partition_max_bytes=8 << 20)
                wanted = kind.FetchTopic(topic=topic, partitions=[partition])
                request = kind(
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=8 << 20,
                    session_epoch=-1,
                    topics=[wanted],
                )
                row = connection.call(request, 12).responses[0].partitions[0]
                assert row.error_code == ErrorCode.NONE
                if not row.records:
                    return values
                for record in read_records(bytes(row.records)):
                    values.append(record.value)
                    offset = record.offset + 1


def refusal_s(writer: Writer, topic: str) -> float:
    """Seconds until a batch is refused, which waits for no part of its request's own two minutes."""
    start = time.monotonic()
    assert writer.send(topic) is ErrorCode.KAFKA_STORAGE_ERROR
    return time.monotonic() - start


def until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + ROOM_S
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_records_are_refused_until_there_is_room(broker: Broker, disk: Path) -> None:
    reserve = disk / "data" / ".logfleet-reserve"
    writer = Writer(broker)
    writer.create("kept")
    writer.create("filler")
    assert reserve.stat().st_blocks * 512 >= DISK_MIB * 1024 * 1024 // 20 - 4096
    assert writer.send("kept") is ErrorCode.NONE
    assert broker.metric("logfleet_disk_full") == 0
    writer.fill("filler")
    until(lambda: not reserve.exists())
    # refused at once, the other partition too; all else goes on
    took = [refusal_s(writer, "kept") for _ in range(REFUSALS)]
    print(f"refused within {min(took):.3f} to {max(took):.3f} s, load average {os.getloadavg()}")
    assert min(took) < REFUSED_S
    assert broker.get("/readyz")[0] == 200
    assert broker.metric("logfleet_disk_full") == 1
    used_over_80 = f'logfleet_disk_used_over{{path="{disk / "data"}",percent="80"}}'
    until(lambda: broker.metric(used_over_80) == 1)
    for topic in ("kept", "filler"):
        assert writer.read(topic) == writer.acknowledged[topic]
    # deleting makes room, and nobody has to start anything
    said(broker, "topic", "delete", "--yes", "filler")
    until(lambda: writer.send("kept") is ErrorCode.NONE)
    assert reserve.exists()
    assert writer.read("kept") == writer.acknowledged["kept"]
    assert broker.metric("logfleet_disk_full") == 0


def test_compaction_makes_room_on_a_disk_that_is_full(broker: Broker) -> None:
    """Nobody deletes anything: the logs themselves hold next to nothing that is still wanted."""
    writer = Writer(broker)
    writer.create("t", "min.cleanable.dirty.ratio=0.01")
    writer.fill("t", b"key")
    until(lambda: broker.metric("logfleet_disk_full") == 1)
    said(broker, "config", "set", "topic", "t", "cleanup.policy=compact")
    until(lambda: broker.metric("logfleet_disk_full") == 0)
    assert broker.metric("logfleet_log_cleaner_uncleanable_partitions") == 0
    assert writer.read("t")[-1] == writer.acknowledged["t"][-1]
    until(lambda: writer.send("t", key=b"key") is ErrorCode.NONE)


def take_all(path: Path) -> None:
    """Fill a disk up with a file of somebody else's."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(65_536)):
            pass


def test_a_batch_that_finds_no_room_is_cut_off(broker: Broker, disk: Path) -> None:
    """Also for a broker that is killed then: what was acknowledged is there, and the log is whole."""
    writer = Writer(broker)
    writer.create("t")
    for _ in range(20):
        assert writer.send("t") is ErrorCode.NONE
    take_all(disk / "others")
    # the last reserve is given up for this one, and the others take that too
    until(lambda: writer.send("t", 900_000) is ErrorCode.KAFKA_STORAGE_ERROR)
    assert writer.read("t") == writer.acknowledged["t"]
    broker.kill()
    (disk / "others").unlink()
    take_all(disk / "others")
    with (disk / "others").open("r+b") as file:  # a start needs a little
        file.truncate(file.seek(0, os.SEEK_END) - 1_000_000)
    broker.start()
    assert writer.send("t") is ErrorCode.KAFKA_STORAGE_ERROR
    assert writer.read("t") == writer.acknowledged["t"]
    (disk / "others").unlink()
    until(lambda: writer.send("t") is ErrorCode.NONE)
    assert writer.read("t") == writer.acknowledged["t"]
    assert broker.terminate() == 0
    for segment in sorted((disk / "data" / "t-0").glob("*.log")):
        dumped = run_tool(
            "org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", str(segment)]
        )
        assert "isvalid: false" not in dumped
        assert "Found" not in dumped
