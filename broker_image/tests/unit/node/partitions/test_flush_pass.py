"""How many logs are made durable at a time, and what the checkpoints say meanwhile."""

import asyncio
import errno
import threading
from typing import Any

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.files import PosixFiles, read_file
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.checkpoints.files import parse_offsets
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing import job as flush_job
from logfleet.log.flushing.flusher import THREADS, Flusher
from logfleet.log.names import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS, TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.image import ClusterImage
from logfleet.node.broker import Broker
from logfleet.node.partitions import maintenance
from logfleet.node.partitions.maintenance import Maintenance
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
LOGS = 2 * THREADS


class Disk:
    """Syncs of segments wait for `may_go`, one at a time; `errors`: their outcome by partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go = threading.Semaphore(0)
        self.begun = self.in_flight = self.peak = 0
        self.errors: dict[str, int] = {}
        self._lock = threading.Lock()
        monkeypatch.setattr(flush_job, "_sync", self._sync)

    def _sync(self, file: Any) -> None:
        if file.path.endswith(".log"):
            with self._lock:
                self.begun += 1
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
            self.may_go.acquire(timeout=60)
            with self._lock:
                self.in_flight -= 1
            error = self.errors.get(file.path.split("/")[-2])
            if error is not None:
                raise OSError(error, "it was told to", file.path)
        file.fsync()


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


class Node:
    """A log directory with LOGS logs of a record each, and its maintenance.

    failed: partitions whose disk failed.
    """

    def __init__(self, path: str) -> None:
        self.files = PosixFiles()
        self.flusher = Flusher(self.files)
        self.log_dir = LogDir(OpenFiles(self.files), path, "cluster", 1)
        self.log_dirs = LogDirs(OpenFiles(self.files), [self.log_dir])
        for index in range(LOGS):
            log = self.log_dir.create(TopicPartition("t", index), "A" * 22, LogConfig(), NOW)
            log.append_as_leader(build_batch([Record(None, b"v", NOW)]), LeaderEpoch(0), NOW)
        self.failed: list[int] = []
        self.table = PartitionTable(ClusterImage)
        self.maintenance = Maintenance(
            self.files,
            broker_config({}),
            table=self.table,
            log_dirs=self.log_dirs,
            flusher=self.flusher,
            checkpointer=Checkpointer(self.files, self.flusher),
            on_disk_failure=self.on_disk_failure,
        )

    def on_disk_failure(self, name: TopicPartition, error: OSError) -> None:
        self.failed.append(name.partition)
        if error.errno == errno.EIO and self.log_dir in self.log_dirs.dirs:
            self.log_dirs.take_out(self.log_dir)

    def checkpointed(self) -> dict[int, int] | None:
        data = read_file(self.files, f"{self.log_dir.path}/{RECOVERY_POINTS}")
        if data is None:
            return None
        return {name.partition: point for name, point in parse_offsets(data).items()}


@pytest.fixture
def node(tmp_path, disk):
    made = Node(str(tmp_path / "logs"))
    yield made
    disk.may_go.release(1000)
    made.flusher.stop()


async def test_as_many_logs_are_flushed_at_a_time_as_there_are_threads(node, disk, until) -> None:
    flush = asyncio.ensure_future(node.maintenance.flush())
    await until(lambda: disk.in_flight == THREADS)
    for done in range(1, LOGS - THREADS + 1):
        disk.may_go.release()
        await until(lambda done=done: disk.begun == THREADS + done)
    disk.may_go.release(LOGS)
    await flush
    assert (disk.peak, disk.begun) == (THREADS, LOGS)
    assert node.checkpointed() == dict.fromkeys(range(LOGS), 1)


async def test_a_long_pass_brings_checkpoints_of_what_it_has_done(
    node, disk, until, monkeypatch
) -> None:
    monkeypatch.setattr(maintenance, "FLUSH_PERIOD_S", 0)
    flush = asyncio.ensure_future(node.maintenance.flush())
    await until(lambda: disk.in_flight == THREADS)
    disk.may_go.release()
    await until(lambda: disk.begun == THREADS + 1)
    points = node.checkpointed()
    assert sorted(points.values()) == [0] * (LOGS - 1) + [1]
    assert points == {n.partition: log.recovery_point for n, log in node.log_dir.logs.items()}
    disk.may_go.release(LOGS)
    await flush


async def test_what_followers_commit_after_a_flush_is_checkpointed_too(node, disk) -> None:
    """Else a crash would bring back the high watermark of the last flush, however old."""
    name = TopicPartition("t", 0)
    node.table.add(Replica("t", bytes(16), 0, node.log_dir.logs[name]))
    disk.may_go.release(LOGS)
    await node.maintenance.flush()
    node.table.add(Replica("t", bytes(16), 0, node.log_dir.logs[name], high_watermark=1))
    await node.maintenance.flush()
    data = read_file(node.files, f"{node.log_dir.path}/{HIGH_WATERMARKS}")
    assert parse_offsets(data or b"") == {name: 1}


async def deleted_and_made_anew(node: Node) -> None:
    """As a deletion does it: while no flush of the log is running."""
    name = TopicPartition("t", 0)
    await node.flusher.until_idle(node.log_dir.logs[name])
    node.log_dir.delete(name, NOW)
    node.log_dir.create(name, "B" * 22, LogConfig(), NOW)


@pytest.mark.parametrize("waits_for", ["a slot", "a flush of the same log"])
async def test_a_log_that_left_while_its_flush_was_waiting_is_not_flushed(
    node, disk, until, waits_for
) -> None:
    """Its epochs and index entries would be written into the directory of a new log of its name."""
    old = node.log_dir.logs[TopicPartition("t", 0)]
    slots = node.maintenance._slots
    if waits_for == "a slot":
        for _ in range(THREADS):
            await slots.acquire()
        flush = asyncio.ensure_future(node.maintenance.flush())
        await until(lambda: slots._waiters)
        await deleted_and_made_anew(node)
        for _ in range(THREADS):
            slots.release()
    else:
        first = asyncio.ensure_future(node.flusher.flush(old))
        await until(lambda: disk.in_flight == 1)
        old.append_as_leader(build_batch([Record(None, b"v", NOW)]), 0, NOW)
        made_anew = asyncio.ensure_future(deleted_and_made_anew(node))
        await asyncio.sleep(0)  # so that it is the first that waits
        flush = asyncio.ensure_future(node.maintenance.flush())
        await until(lambda: disk.in_flight == THREADS)
        disk.may_go.release()
        await asyncio.gather(first, made_anew)
    disk.may_go.release(LOGS)
    await flush
    assert old.recovery_point == int(waits_for != "a slot")
    assert node.failed == []


async def test_a_log_that_finds_no_room_holds_up_no_other(node, disk) -> None:
    disk.errors["t-1"] = errno.ENOSPC
    disk.may_go.release(LOGS)
    await node.maintenance.flush()
    assert node.failed == [1]
    assert node.checkpointed() == {index: int(index != 1) for index in range(LOGS)}
    assert node.log_dir.logs[TopicPartition("t", 1)].unflushed
    disk.errors.clear()
    disk.may_go.release()
    await node.maintenance.flush()
    assert node.checkpointed() == dict.fromkeys(range(LOGS), 1)


async def test_on_a_directory_that_failed_nothing_is_begun(node, disk, until) -> None:
    disk.errors = {f"t-{index}": errno.EIO for index in range(LOGS)}
    flush = asyncio.ensure_future(node.maintenance.flush())
    await until(lambda: disk.in_flight == THREADS)
    disk.may_go.release(LOGS)
    await flush
    assert disk.begun == THREADS
    assert node.checkpointed() is None


async def test_logs_are_closed_as_many_at_a_time_as_there_are_threads(node, disk, until) -> None:
    threads = THREADS + 3
    close = asyncio.ensure_future(node.flusher.close(node.log_dir.logs.values(), threads))
    await until(lambda: disk.in_flight == threads)
    disk.may_go.release(LOGS)
    await close
    assert (disk.peak, disk.begun) == (threads, LOGS)
    node.log_dir.close({})
    assert disk.begun == LOGS, "what is closed is not closed again"
    assert node.checkpointed() == dict.fromkeys(range(LOGS), 1)


async def test_a_log_that_cannot_be_closed_is_reported_when_the_others_are(node, disk) -> None:
    disk.errors["t-1"] = errno.EIO
    disk.may_go.release(LOGS)
    with pytest.raises(OSError, match="it was told to"):
        await node.flusher.close(node.log_dir.logs.values(), 4)
    durable = [log.recovery_point for log in node.log_dir.logs.values()]
    assert durable == [int(index != 1) for index in range(LOGS)]


async def test_a_broker_closes_its_logs_at_the_same_time(tmp_path, disk, until) -> None:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "logfleet.admin.listener": "127.0.0.1:0",
        "num.recovery.threads.per.data.dir": str(THREADS + 3),
    }
    broker = await Broker(broker_config(config)).__aenter__()
    (log_dir,) = broker.rooms.disks.log_dirs
    for index in range(LOGS):
        log_dir.create(TopicPartition("t", index), "A" * 22, LogConfig(), NOW)
    stop = asyncio.ensure_future(broker.__aexit__())
    await until(lambda: disk.in_flight == THREADS + 3)
    disk.may_go.release(LOGS)
    await stop
    assert disk.peak == THREADS + 3
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
