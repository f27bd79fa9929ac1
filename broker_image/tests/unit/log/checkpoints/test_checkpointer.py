import asyncio
import threading
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.files import PosixFiles, write_file
from logfleet.io.slices import Slices
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.checkpoints.files import parse_offsets
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
NAME = TopicPartition("topic", 0)


class Disk:
    """A log directory with five records; its checkpoints wait for `may_go`, and are counted."""

    def __init__(self, path, monkeypatch) -> None:
        self.files = PosixFiles()
        self.flusher = Flusher(self.files)
        self.log_dir = LogDir(OpenFiles(self.files), str(path), "cluster", 1)
        self.log = self.log_dir.create(NAME, "A" * 22, LogConfig(), NOW)
        for _ in range(5):
            self.log.append_as_leader(build_batch([Record(None, b"v", NOW)]), LeaderEpoch(0), NOW)
        self.checkpointer = Checkpointer(self.files, self.flusher)
        self.writing, self.may_go = asyncio.Event(), threading.Event()
        self.writes = 0
        self.written: list[str] = []
        self.error: OSError | None = None
        self.failing = ""
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr("logfleet.log.checkpoints.job.write_file", self.write_file)

    def write_file(self, files, path, content, *, durable) -> None:
        self._loop.call_soon_threadsafe(self.writing.set)
        self.may_go.wait(60)
        self.written.append(path.rpartition("/")[2])
        self.writes += path.endswith(LOG_STARTS)
        if self.error is not None and path.endswith(self.failing):
            raise self.error
        write_file(files, path, content, durable=durable)

    def begins(self) -> int | None:
        return parse_offsets(Path(self.log_dir.path, LOG_STARTS).read_bytes()).get(NAME)


@pytest_asyncio.fixture
async def disk(tmp_path, monkeypatch):
    made = Disk(tmp_path / "data", monkeypatch)
    yield made
    made.may_go.set()
    made.flusher.stop()
    made.log_dir.abandon()


def later(work) -> "asyncio.Task[None]":
    return asyncio.ensure_future(work)


async def test_log_starts_that_wait_for_one_another_share_a_write(disk) -> None:
    disk.log.delete_records_before(1)
    first = later(disk.checkpointer.write_log_starts(disk.log_dir))
    await disk.writing.wait()
    others = []
    for offset in (2, 3, 4):
        disk.log.delete_records_before(offset)
        others.append(later(disk.checkpointer.write_log_starts(disk.log_dir)))
    await asyncio.sleep(0)
    disk.may_go.set()
    await first
    await asyncio.gather(*others)
    assert (disk.begins(), disk.writes) == (4, 2)


async def test_an_older_state_never_replaces_a_newer_one(disk) -> None:
    """Two writers of the file: the second one reads the log's state later."""
    disk.log.delete_records_before(1)
    first = later(disk.checkpointer.write(disk.log_dir, {}.get))
    await disk.writing.wait()
    second = later(disk.checkpointer.write_log_starts(disk.log_dir))
    await asyncio.sleep(0)
    disk.log.delete_records_before(2)
    disk.may_go.set()
    await asyncio.gather(first, second)
    assert disk.begins() == 2


async def test_a_running_write_is_waited_for_though_its_caller_is_cancelled(disk) -> None:
    disk.log.delete_records_before(3)
    asked = later(disk.checkpointer.write_log_starts(disk.log_dir))
    await disk.writing.wait()
    asked.cancel()
    await asyncio.wait([asked])
    idle = later(disk.checkpointer.until_idle())
    await asyncio.sleep(0)
    assert not idle.done()
    disk.may_go.set()
    await idle
    assert disk.begins() == 3
    await disk.checkpointer.until_idle()


async def test_an_error_of_the_disk_reaches_all_waiters(disk) -> None:
    disk.error = OSError(5, "bad sector")
    disk.may_go.set()
    asked = [later(disk.checkpointer.write_log_starts(disk.log_dir)) for _ in range(2)]
    for each in asked:
        with pytest.raises(OSError, match="bad sector"):
            await each


async def test_a_departed_log_is_in_no_checkpoint_and_callers_share_a_write(disk) -> None:
    """One that was decided on before it left is under way."""
    disk.log.delete_records_before(1)
    before = later(disk.checkpointer.write(disk.log_dir, {}.get))
    await disk.writing.wait()
    disk.log_dir.delete(NAME, NOW)
    asked = [later(disk.checkpointer.record_departures(disk.log_dir, {}.get)) for _ in range(3)]
    await asyncio.sleep(0)
    disk.may_go.set()
    await before
    await asyncio.gather(*asked)
    assert (disk.begins(), disk.writes) == (None, 2)
    await disk.checkpointer.record_departures(disk.log_dir, {}.get)
    assert disk.writes == 2


@pytest.mark.parametrize("what", ["all", "log starts"])
async def test_others_may_have_their_turn_after_each_log(disk, monkeypatch, what) -> None:
    turns = 0

    async def pause_if_due(_self) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(Slices, "pause_if_due", pause_if_due)
    for index in range(1, 20):
        disk.log_dir.create(TopicPartition("topic", index), "A" * 22, LogConfig(), NOW)
    disk.may_go.set()
    if what == "all":
        await disk.checkpointer.write(disk.log_dir, {}.get)
    else:
        await disk.checkpointer.write_log_starts(disk.log_dir)
    assert turns == (40 if what == "all" else 20), "once decided, and once done"


async def test_a_log_that_leaves_during_a_write_is_left_out_and_counts_as_departed(
    disk, monkeypatch
) -> None:
    """Its own entry may be among them already; the next write is without."""
    other = TopicPartition("topic", 1)
    disk.log_dir.create(other, "A" * 22, LogConfig(), NOW)
    marks = {NAME: 3, other: 4}

    async def pause_if_due(_self) -> None:
        if other in disk.log_dir.logs:
            disk.log_dir.delete(other, NOW)

    monkeypatch.setattr(Slices, "pause_if_due", pause_if_due)
    disk.may_go.set()
    await disk.checkpointer.write(disk.log_dir, marks.get)
    assert disk.log_dir.high_watermarks == {NAME: 3}
    assert parse_offsets(Path(disk.log_dir.path, HIGH_WATERMARKS).read_bytes()) == {NAME: 3}
    assert disk.log_dir.has_departed


async def test_a_file_with_the_same_content_is_not_written_again(disk) -> None:
    disk.may_go.set()
    await disk.checkpointer.write(disk.log_dir, {NAME: 3}.get)
    assert disk.written == [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS]
    disk.log.delete_records_before(2)
    await disk.checkpointer.write(disk.log_dir, {NAME: 4}.get)
    assert disk.written[3:] == [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS]
    await disk.checkpointer.write(disk.log_dir, {NAME: 4}.get)
    assert disk.written[6:] == [RECOVERY_POINTS]


async def test_a_log_that_no_checkpoint_has_named_leaves_durably(disk, monkeypatch) -> None:
    """Its new name has to be durable, too, before its deletion is confirmed."""
    disk.may_go.set()
    await disk.checkpointer.write(disk.log_dir, {}.get)
    other = TopicPartition("topic", 1)
    disk.log_dir.create(other, "A" * 22, LogConfig(), NOW)
    disk.log_dir.delete(other, NOW)
    synced = []
    monkeypatch.setattr(PosixFiles, "fsync_directory", lambda _files, path: synced.append(path))
    await disk.checkpointer.record_departures(disk.log_dir, {}.get)
    assert synced == [disk.log_dir.path]
    assert not disk.log_dir.has_departed


async def test_a_file_whose_writing_failed_is_written_again(disk) -> None:
    disk.may_go.set()
    await disk.checkpointer.write(disk.log_dir, {NAME: 3}.get)
    disk.error, disk.failing = OSError(28, "no room"), HIGH_WATERMARKS
    with pytest.raises(OSError, match="no room"):
        await disk.checkpointer.write(disk.log_dir, {NAME: 4}.get)
    disk.error = None
    await disk.checkpointer.write(disk.log_dir, {NAME: 3}.get)
    assert disk.written[3:] == 2 * [RECOVERY_POINTS, HIGH_WATERMARKS]
