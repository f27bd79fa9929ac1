"""How the logs of a directory are opened at a start.

So many at a time, each in a thread, while the loop goes on.
"""

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.files import Entry, PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir, LogDirRefused
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.node.broker import Broker
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.io.descriptors import open_files

pytestmark = pytest.mark.asyncio

ID = "bQrxV1XaQAyDOV5OYVsTsQ"
LOGS = 8
NOW = 1_700_000_000_000
WAIT_S = 20.0


class Gate(PosixFiles):
    """Blocks listings of a partition's directory until `may_go` allows one.

    errors: what they get instead of a look.
    """

    def __init__(self) -> None:
        self.may_go = threading.Semaphore(0)
        self.errors: dict[str, int] = {}
        self.waiting = self.peak = self.begun = 0
        self._lock = threading.Lock()

    def list_directory(self, path: str) -> list[Entry]:
        name = Path(path).name
        if name.startswith("t-"):
            with self._lock:
                self.begun += 1
                self.waiting += 1
                self.peak = max(self.peak, self.waiting)
            assert self.may_go.acquire(timeout=WAIT_S), "nobody let it go"
            with self._lock:
                self.waiting -= 1
            if name in self.errors:
                raise OSError(self.errors[name], "it was told to", path)
        return super().list_directory(path)


def written(path: Path, *, clean: bool) -> str:
    """A directory with LOGS logs of as many records as their number says."""
    log_dir = LogDir(OpenFiles(PosixFiles()), str(path), "cluster", 1)
    for _ in log_dir.load(lambda _topic: LogConfig(), NOW):
        pass
    for index in range(LOGS):
        log = log_dir.create(TopicPartition("t", index), ID, LogConfig(), NOW)
        for _ in range(index):
            log.append_as_leader(build_batch([Record(None, b"v", NOW)]), LeaderEpoch(0), NOW)
    if clean:
        log_dir.close({})
    else:
        log_dir.abandon()
    return str(path)


def opened(gate: Gate, *paths: str) -> LogDirs:
    cache = OpenFiles(gate, limit=5)
    return LogDirs(cache, [LogDir(cache, path, "cluster", 1) for path in paths])


def loading(dirs: LogDirs, threads: int) -> "asyncio.Future[None]":
    return asyncio.ensure_future(dirs.load(lambda _topic: LogConfig(), NOW, threads))


def ends(log_dir: LogDir) -> list[int]:
    return [log_dir.logs[TopicPartition("t", index)].log_end_offset for index in range(LOGS)]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("threads", [1, 3, LOGS])
async def test_a_limited_number_of_logs_is_opened_at_a_time(
    tmp_path, until, threads, clean
) -> None:
    gate = Gate()
    dirs = opened(gate, written(tmp_path / "a", clean=clean))
    load = loading(dirs, threads)
    await until(lambda: gate.waiting == threads)
    gate.may_go.release(LOGS)
    await load
    (log_dir,) = dirs
    assert (gate.peak, gate.begun) == (threads, LOGS)
    assert log_dir.is_loaded
    assert ends(log_dir) == list(range(LOGS))
    assert list(log_dir.logs) == sorted(log_dir.logs)


async def test_directories_are_loaded_at_the_same_time(tmp_path, until) -> None:
    gate = Gate()
    dirs = opened(gate, *(written(tmp_path / name, clean=False) for name in "ab"))
    load = loading(dirs, 2)
    await until(lambda: gate.waiting == 4)
    gate.may_go.release(2 * LOGS)
    await load
    assert [ends(log_dir) for log_dir in dirs] == [list(range(LOGS))] * 2


async def test_a_log_that_cannot_be_opened_ends_its_directory_and_no_other(tmp_path, until) -> None:
    gate = Gate()
    bad, good = written(tmp_path / "a", clean=False), str(tmp_path / "b")
    gate.errors = {f"t-{index}": errno.EIO for index in range(LOGS)}
    dirs = opened(gate, bad, good)
    load = loading(dirs, 2)
    await until(lambda: gate.waiting == 2)
    gate.may_go.release(LOGS)
    await load
    assert gate.begun == 2, "nobody goes on in a directory that has failed"
    assert [log_dir.path for log_dir in dirs] == [good]
    assert dirs.failed == [bad]


async def test_nothing_of_a_directory_that_failed_stays_open(tmp_path) -> None:
    gate = Gate()
    bad = tmp_path / "a"
    gate.errors = {"t-7": errno.EIO}
    gate.may_go.release(LOGS)
    dirs = opened(gate, written(bad, clean=False), str(tmp_path / "b"))
    await loading(dirs, 1)
    assert (gate.begun, dirs.failed) == (LOGS, [str(bad)])
    assert open_files(bad) == []


async def test_without_a_directory_that_can_be_read_there_is_no_start(tmp_path) -> None:
    gate = Gate()
    gate.errors = {"t-0": errno.EIO}
    gate.may_go.release(LOGS)
    with pytest.raises(LogDirRefused, match="it was told to"):
        await loading(opened(gate, written(tmp_path / "a", clean=False)), 2)


async def test_a_failed_start_leaves_no_thread_in_the_directory(tmp_path, until) -> None:
    gate = Gate()
    dirs = opened(gate, written(tmp_path / "a", clean=False))
    load = loading(dirs, 2)
    await until(lambda: gate.waiting == 2)
    load.cancel()
    threading.Timer(0.05, gate.may_go.release, (LOGS,)).start()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert (gate.waiting, gate.begun) == (0, 2)
    assert not next(iter(dirs)).is_loaded


async def test_the_broker_obeys_the_key(tmp_path, until) -> None:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "logfleet.admin.listener": "127.0.0.1:0",
        "num.recovery.threads.per.data.dir": "5",
    }
    async with Broker(broker_config(config)) as broker:
        (log_dir,) = broker.rooms.disks.log_dirs
        for index in range(LOGS):
            log_dir.create(TopicPartition("t", index), ID, LogConfig(), NOW)
    gate = Gate()
    start = asyncio.ensure_future(Broker(broker_config(config), gate).__aenter__())
    await until(lambda: gate.waiting == 5)
    gate.may_go.release(LOGS)
    await (await start).__aexit__()
    assert (gate.peak, gate.begun) == (5, LOGS)
