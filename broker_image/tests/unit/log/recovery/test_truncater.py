import asyncio
import errno
import threading
from pathlib import Path

import pytest
from logfleet.io.files import PosixFile, PosixFiles
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.truncater import Truncater
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.segment import Segment
from logfleet.records.record import ProducerStamp, Record, build_batch

NOW = 1_700_000_000_000
NAME = TopicPartition("topic", 0)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)

pytestmark = pytest.mark.asyncio


def append(log, count, epoch=0):
    for _ in range(count):
        stamp = ProducerStamp(7, 0, log.log_end_offset)
        log.append_as_leader(
            build_batch([Record(b"k", bytes(90), NOW)], producer=stamp), epoch, NOW
        )


class Rig:
    """A log of 50 records, durable and checkpointed as such.

    failures: what the disk was said to have failed with.
    """

    def __init__(self, path):
        self.path = path
        self.files = PosixFiles()
        self.log_dir = LogDir(OpenFiles(self.files), str(path), "cluster", 1)
        list(self.log_dir.load(lambda _: SMALL, NOW))
        self.log = self.log_dir.create(NAME, "bQrxV1XaQAyDOV5OYVsTsQ", SMALL, NOW)
        self.flusher = Flusher(self.files)
        self.checkpointer = Checkpointer(self.files, self.flusher)
        self.failures: list[int | None] = []
        self.truncater = Truncater(
            LogDirs(self.log_dir._open_files, [self.log_dir]),
            self.flusher,
            self.checkpointer,
            lambda _, error: self.failures.append(error.errno),
        )
        append(self.log, 30)
        append(self.log, 20, epoch=1)

    def make_durable(self):
        job = self.log.begin_flush()
        job.run(self.files)
        self.log.complete_flush(job)
        self.log_dir.checkpoint({}).run(self.files)

    def truncate(self, offset, is_wanted=lambda: True):
        return self.truncater.truncate(self.log, offset, is_wanted)

    def told(self, name):
        return Path(self.path, name).read_text().splitlines()[2:]

    def after_a_crash(self):
        self.log_dir.abandon()
        found = LogDir(OpenFiles(self.files), str(self.path), "cluster", 1)
        list(found.load(lambda _: SMALL, NOW))
        return found.logs[NAME]


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    made.make_durable()
    yield made
    made.flusher.stop()


async def begun(task):
    """The task has come to where it waits."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()


async def test_the_log_goes_back_and_on(rig):
    assert await rig.truncate(33)
    log = rig.log
    assert (log.log_end_offset, log.recovery_point) == (33, 33)
    assert log.producers.states.get(7).last_sequence == 32
    append(log, 3, epoch=4)
    assert [(each.epoch, each.start_offset) for each in log.epochs.entries] == [
        (0, 0),
        (1, 30),
        (4, 33),
    ]
    found = rig.after_a_crash()
    assert (found.log_end_offset, found.epochs.entries) == (36, log.epochs.entries)
    assert found.notes == []
    assert rig.failures == []


@pytest.mark.parametrize(
    "empties, offset, lowest", [(False, 31, 31), (True, 70, 0), (False, 50, None)]
)
async def test_all_listeners_are_called_with_the_lowest_offset_that_changed(
    rig, empties, offset, lowest
):
    """Each coordinator has one. Where nothing but an epoch goes, none is called."""
    calls: list[tuple[str, PartitionLog, int]] = []
    for name in ("one", "other"):
        rig.truncater.on_truncated.append(
            lambda log, end_offset, name=name: calls.append((name, log, end_offset))
        )
    act = rig.truncater.reset_to if empties else rig.truncater.truncate
    assert await act(rig.log, offset, lambda: True)
    expected = [] if lowest is None else [(name, rig.log, lowest) for name in ("one", "other")]
    assert calls == expected


async def test_the_disk_is_waited_for_in_threads(rig, monkeypatch):
    threads = set()
    for name in ("truncate", "position_of", "end_before"):
        method = getattr(Segment, name)

        def noting(self, *args, method=method):
            threads.add(threading.current_thread().name.partition("_")[0])
            return method(self, *args)

        monkeypatch.setattr(Segment, name, noting)
    assert await rig.truncate(12)
    assert threads == {"flush"}


async def test_checkpoints_are_lowered_before_anything_is_cut_off(rig, monkeypatch):
    assert rig.told("recovery-point-offset-checkpoint") == ["topic 0 50"]
    told = []
    truncate = PosixFile.truncate

    def noting(file, length):
        if file.path.endswith(".log"):
            told.extend(rig.told("recovery-point-offset-checkpoint"))
        truncate(file, length)

    monkeypatch.setattr(PosixFile, "truncate", noting)
    assert await rig.truncate(33)
    assert told == ["topic 0 33"]


async def test_an_epoch_without_batches_costs_no_write(rig, monkeypatch):
    rig.log.start_epoch(9)
    monkeypatch.setattr(rig.flusher, "run", None)
    assert await rig.truncate(50)
    assert (rig.log.log_end_offset, rig.log.epochs.latest) == (50, 1)


async def test_a_flush_is_waited_for_and_the_next_one_waits(rig, monkeypatch):
    running, may_go = threading.Event(), threading.Event()
    fsync = PosixFile.fsync

    def slow(file):
        running.set()
        assert may_go.wait(30)
        fsync(file)

    monkeypatch.setattr(PosixFile, "fsync", slow)
    append(rig.log, 5)
    first = asyncio.ensure_future(rig.flusher.flush(rig.log))
    await asyncio.to_thread(running.wait, 30)
    cut = asyncio.ensure_future(rig.truncate(33))
    await begun(cut)
    assert rig.log.truncations == 0
    second = asyncio.ensure_future(rig.flusher.flush(rig.log))
    await begun(second)
    may_go.set()
    await first
    assert await cut
    await second
    assert rig.log.recovery_point == rig.log.log_end_offset == 33
    assert not rig.log.unflushed


async def test_a_swap_is_waited_for(rig, monkeypatch):
    async with rig.flusher.holding(rig.log):
        assert rig.log.begin_swap([0], rig.log.truncations)
        cut = asyncio.ensure_future(rig.truncate(33))
        await begun(cut)
        rig.log.cancel_swap()
    assert await cut
    assert not rig.log.begin_swap([0], 0), "what was compacted before the log was cut"


async def test_the_log_is_left_alone_meanwhile(rig, monkeypatch):
    truncation = rig.log.begin_truncation(33, NOW, empties=False)
    rig.log.delete_records_before(20)
    assert rig.log.apply_retention(NOW, 50) is None
    with pytest.raises(AssertionError):
        append(rig.log, 1)
    rig.log.abandon_truncation()
    append(rig.log, 1)
    assert rig.log.apply_retention(NOW, 50) is not None
    assert not truncation.segments


async def test_what_is_no_longer_wanted_is_not_done(rig):
    asked = []

    def is_wanted():
        asked.append(1)
        return False

    async with rig.flusher.holding(rig.log):
        cut = asyncio.ensure_future(rig.truncate(33, is_wanted))
        await begun(cut)
        assert not asked
    assert not await cut
    assert (asked, rig.log.log_end_offset) == ([1], 50)
    rig.log_dir.delete(NAME, NOW)
    assert not await rig.truncate(33)


async def test_a_truncation_is_completed_though_its_caller_is_cancelled(rig, until):
    async with rig.flusher.holding(rig.log):
        cut = asyncio.ensure_future(rig.truncate(33))
        await begun(cut)
        cut.cancel()
    await asyncio.wait([cut])
    assert cut.cancelled()
    await until(lambda: rig.log.log_end_offset == 33)


async def test_a_shortage_before_anything_is_cut_off_changes_nothing(rig, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "position_of", refuse)
        assert not await rig.truncate(33)
    assert rig.failures == [errno.EMFILE]
    append(rig.log, 1, epoch=1)
    assert rig.log.log_end_offset == 51
    assert await rig.truncate(33)


async def test_a_truncation_half_way_fails_the_directory(rig, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "x")

    monkeypatch.setattr(Segment, "truncate", refuse)
    assert not await rig.truncate(12)
    assert rig.failures == [errno.EIO], "whatever it was: only a start finds out what there is"
    monkeypatch.undo()
    found = rig.after_a_crash()
    assert 12 <= found.log_end_offset < 30


async def test_a_log_is_emptied_and_begins_where_its_leaders_does(rig):
    assert await rig.truncater.reset_to(rig.log, 1000, lambda: True)
    log = rig.log
    assert (log.log_start_offset, log.log_end_offset, log.size) == (1000, 1000, 0)
    assert (log.epochs.entries, len(log.producers.states)) == ((), 0)
    names = {path.name for path in Path(log.directory).iterdir()}
    assert {name for name in names if name.endswith((".log", ".snapshot", ".index"))} == {
        f"{1000:020d}.log",
        f"{1000:020d}.snapshot",
    }
    append(log, 2, epoch=5)
    found = rig.after_a_crash()
    assert (found.log_start_offset, found.log_end_offset, found.epochs.latest) == (1000, 1002, 5)


async def test_a_log_whose_start_goes_back_has_all_that_is_appended_there_after_a_crash(rig):
    rig.log.delete_records_before(40)
    rig.make_durable()
    assert rig.told("log-start-offset-checkpoint") == ["topic 0 40"]
    assert await rig.truncate(25)
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (25, 25)
    append(rig.log, 3, epoch=5)
    found = rig.after_a_crash()
    assert (found.log_start_offset, found.log_end_offset) == (25, 28)
