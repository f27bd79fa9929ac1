"""The broker's side of compaction, with a real child process and real files."""

import asyncio
import errno
import sys
from typing import Any

import msgspec
import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.compaction import cleaner, job
from logfleet.log.compaction import process as cleaner_process
from logfleet.log.compaction.cleaner import Cleaner
from logfleet.log.compaction.process import CleanerProcess
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.node.metrics.storage import compaction
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.compaction.compaction_rig import SETTINGS, latest
from broker_image.tests.unit.log.log_rig import truncate
from broker_image.tests.unit.node.metrics.metric_values import metric_values

pytestmark = pytest.mark.asyncio
NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=3000, cleanup_policy=frozenset({"compact"}))


class Rig:
    """A cleaner over partitions whose logs are filled and durable."""

    def __init__(self, path, files=None):
        self.files: Any = files or PosixFiles()
        open_files = OpenFiles(self.files)
        self.log_dir = LogDir(open_files, str(path / "data"), "cluster", 1)
        assert list(self.log_dir.load(lambda _topic: CONFIG, NOW)) == []
        self.partitions: list[LeaderPartition] = []
        self.settings = msgspec.structs.replace(SETTINGS, backoff_s=0.02, threads=2)
        self.flusher = Flusher(self.files)
        self.failed = []
        self.room_bytes = None
        self.cleaner = Cleaner(
            lambda: self.settings,
            table=self.partitions,
            log_dirs=LogDirs(open_files, [self.log_dir]),
            flusher=self.flusher,
            checkpoint=self.checkpoint,
            room=lambda _path: self.room_bytes,
            on_disk_failure=self.fail,
        )

    def fail(self, name, error):
        self.failed.append((name, error))
        self.partitions.clear()

    async def checkpoint(self, log_dir):
        job = log_dir.checkpoint({})
        job.run(self.files)
        for _ in log_dir.complete_checkpoint(job):
            pass

    def add(self, index, count=100, stamp=None):
        name = TopicPartition("topic", index)
        log = self.log_dir.create(name, "bQrxV1XaQAyDOV5OYVsTsQ", CONFIG, NOW)
        partition = LeaderPartition("topic", bytes(16), index, log, LeaderEpoch(0))
        for n in range(count):
            key, value = b"%d" % (n % 5), b"%d" % n * 40
            partition.append(build_batch([Record(key, value, NOW)], producer=stamp), NOW)
            stamp = None
        flush = log.begin_flush()
        flush.run(self.files)
        log.complete_flush(flush)
        log.ends.checkpointed(log.recovery_point)
        self.partitions.append(partition)
        return partition

    async def clean_until(self, condition):
        """Let it work until then, and stop it."""
        running = asyncio.create_task(self.cleaner.run())
        try:
            while (
                not condition()
            ):  # pytest's timeout catches what hangs: a busy machine starts a process late
                await asyncio.sleep(0.005)
                assert not running.done(), running.result()
        finally:
            running.cancel()
            await asyncio.wait([running])
            self.flusher.stop()
        assert running.cancelled()
        left = self.files.list_directory(self.log_dir.path)
        for each in (e.name for e in left if e.is_directory and not e.name.endswith("-delete")):
            names = self.files.list_directory(f"{self.log_dir.path}/{each}")
            if self.failed:
                continue
            assert not [n.name for n in names if n.name.endswith((".cleaned", ".swap"))]


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


async def test_all_logs_that_are_due_are_cleaned_and_then_left_alone(rig):
    partitions = [rig.add(index) for index in range(3)]
    before = [latest(partition.log) for partition in partitions]
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings >= 3)
    assert rig.cleaner.stats.cleanings == 3
    assert [latest(partition.log) for partition in partitions] == before
    for partition in partitions:
        log = partition.log
        assert log.first_dirty_offset == log.segments[-1].base_offset
        assert sum(segment.size for segment in log.segments[:-1]) < 3000
    again = LogDir._read_offsets(rig.log_dir, "cleaner-offset-checkpoint")
    assert again == {TopicPartition("topic", p.index): p.log.first_dirty_offset for p in partitions}
    stats = rig.cleaner.stats
    assert stats.bytes_kept < stats.bytes_read / 2
    assert stats.failures == 0


async def test_one_process_cleans_one_log_after_another(rig, monkeypatch):
    started = []
    run = CleanerProcess.run

    def noting(self, job):
        started.append(self)
        return run(self, job)

    monkeypatch.setattr(CleanerProcess, "run", noting)
    rig.settings = msgspec.structs.replace(rig.settings, threads=1)
    for index in range(3):
        rig.add(index)
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings == 3)
    assert len(started) == 3
    assert len(set(started)) == 1


async def test_an_idle_process_is_ended_also_if_the_broker_stops_in_the_middle(rig, monkeypatch):
    """Also those behind the one that was being ended."""
    made, stopping = [], asyncio.Event()
    stop = CleanerProcess.stop

    async def slow(self):
        made.append(self)
        if not stopping.is_set():
            stopping.set()
            await asyncio.Event().wait()  # until it is cancelled
        await stop(self)

    monkeypatch.setattr(CleanerProcess, "stop", slow)
    for index in range(2):
        rig.add(index)
    await rig.clean_until(stopping.is_set)
    processes = {each._process for each in made}
    assert len(processes) == 2
    assert all(each.returncode is not None for each in processes)


async def test_a_topic_that_is_not_compacted_is_not_touched(rig):
    plain, compacted = rig.add(0), rig.add(1)
    plain.log.config = LogConfig(segment_bytes=3000)
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings == 1)
    assert plain.log.first_dirty_offset == 0
    assert compacted.log.first_dirty_offset > 0
    plain.log.config = CONFIG


async def test_a_log_that_is_led_elsewhere_ends_its_round(rig):
    partition = rig.add(0)
    rig.settings = msgspec.structs.replace(
        rig.settings, bytes_per_second=1.0
    )  # it would take for ever

    def is_gone():
        if rig.cleaner._rounds:
            rig.partitions.clear()
            rig.cleaner.abort_round(partition)
        return not rig.partitions and not rig.cleaner._rounds

    await rig.clean_until(is_gone)
    assert partition.log.first_dirty_offset == 0
    assert rig.cleaner.stats.failures == 0


PLAIN = LogConfig(segment_bytes=3000)


@pytest.mark.parametrize("event", [0, -1], ids=["with a segment", "at its end"])
async def test_what_a_round_found_is_not_put_in_place_once_the_log_is_not_to_be_compacted(
    rig, monkeypatch, event
):
    partition = rig.add(0)
    run, before = CleanerProcess.run, []

    async def changing(self, job):
        events = [each async for each in run(self, job)]
        for each in events:
            if each is events[event]:
                partition.log.config = PLAIN
                before.append([segment.size for segment in partition.log.segments])
            yield each

    monkeypatch.setattr(CleanerProcess, "run", changing)
    await rig.clean_until(lambda: before and not rig.cleaner._rounds)
    assert [segment.size for segment in partition.log.segments] == before[0]
    assert partition.log.first_dirty_offset == 0
    assert (rig.cleaner.stats.cleanings, rig.cleaner.stats.failures) == (0, 0)
    assert rig.failed == []


async def test_a_round_ends_soon_after_the_log_is_not_to_be_compacted_any_more(rig):
    partition = rig.add(0)
    rig.settings = msgspec.structs.replace(rig.settings, bytes_per_second=1.0)

    def is_given_up():
        if rig.cleaner._rounds:
            partition.log.config = PLAIN
        return partition.log.config is PLAIN and not rig.cleaner._rounds

    await rig.clean_until(is_given_up)
    assert partition.log.first_dirty_offset == 0
    assert rig.cleaner.stats.failures == 0


async def test_the_broker_may_stop_in_the_middle_of_a_round(rig):
    partition = rig.add(0)
    before = latest(partition.log)
    rig.settings = msgspec.structs.replace(rig.settings, bytes_per_second=1.0)
    await rig.clean_until(lambda: rig.cleaner._rounds)
    assert latest(partition.log) == before
    assert not rig.cleaner._rounds


async def test_a_log_that_is_truncated_meanwhile_is_not_given_old_segments(rig, monkeypatch):
    partition = rig.add(0)
    run = CleanerProcess.run

    async def truncating(self, job):
        async for event in run(self, job):
            if partition.log.truncations == 0:
                partition.log.ends.stop(partition)
                truncate(partition.log, 50)
            yield event

    monkeypatch.setattr(CleanerProcess, "run", truncating)
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings)
    assert partition.log.log_end_offset <= 50
    assert partition.log.first_dirty_offset <= 50
    assert set(latest(partition.log)) == {b"%d" % n for n in range(5)}


async def test_a_log_that_is_deleted_meanwhile_is_left_alone(rig, monkeypatch):
    rig.add(0)
    run = CleanerProcess.run

    async def deleting(self, job):
        async for event in run(self, job):
            if TopicPartition("topic", 0) in rig.log_dir.logs:
                rig.log_dir.delete(TopicPartition("topic", 0), NOW)
            rig.partitions.clear()
            yield event

    monkeypatch.setattr(CleanerProcess, "run", deleting)
    await rig.clean_until(lambda: not rig.partitions and not rig.cleaner._rounds)
    assert rig.failed == []
    assert rig.cleaner.stats.cleanings == 0


async def test_a_log_that_cannot_be_compacted_is_named_and_not_tried_again(rig):
    bad = rig.add(0)
    bad.log.segments[0].file.pwrite(b"\xff", bad.log.segments[0].size - 1)
    rig.add(1)
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings and rig.cleaner.uncleanable)
    assert "no whole valid batch" in rig.cleaner.uncleanable[bad.log]
    assert rig.cleaner.stats.failures == 1
    said = metric_values(compaction(rig.cleaner, LogDirs(OpenFiles(PosixFiles()), [rig.log_dir])))
    where = {"directory": rig.log_dir.path}
    assert said("logfleet_log_cleaner_uncleanable_partitions", **where) == 1
    assert said("logfleet_log_cleaner_uncleanable_bytes", **where) == bad.log.size
    assert said("logfleet_log_cleaner_cleanings_total") == 1
    assert said("logfleet_log_cleaner_failures_total") == 1
    assert (said("logfleet_log_cleaner_kept_bytes_total") or 0) > 0


KILLED = 4
STUCK = """
import signal
from logfleet.log.compaction import program as cleaner_program

def run(self, whole=cleaner_program.Cleaning.run):
    yield next(whole(self))
    signal.pause()

cleaner_program.Cleaning.run = run
cleaner_program.main()
"""
"""The cleaner's program, but it never comes beyond the first segment of a round."""


async def test_a_log_whose_process_was_killed_again_and_again_is_compacted_when_it_is_not(
    rig, monkeypatch
):
    partition = rig.add(0)
    run, command = CleanerProcess.run, cleaner_process.COMMAND

    async def killed(self, job):
        is_stuck = rig.cleaner.stats.failures < KILLED
        stuck = (sys.executable, "-c", STUCK)
        monkeypatch.setattr(cleaner_process, "COMMAND", stuck if is_stuck else command)
        async for event in run(self, job):
            if is_stuck:
                self.kill()
            yield event

    monkeypatch.setattr(CleanerProcess, "run", killed)
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings or rig.cleaner.uncleanable)
    assert rig.cleaner.uncleanable == {}
    assert rig.cleaner.stats.failures == KILLED
    assert partition.log.first_dirty_offset == partition.log.segments[-1].base_offset


async def test_a_process_that_cannot_be_started_is_no_failure_of_the_disk(rig, monkeypatch):
    rig.add(0)
    start = asyncio.create_subprocess_exec

    async def refuse(*args, **more):
        if rig.cleaner.stats.failures == 0:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return await start(*args, **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    await rig.clean_until(lambda: rig.failed or rig.cleaner.stats.cleanings)
    assert rig.failed == []
    assert rig.cleaner.stats.failures == 1


async def test_no_round_begins_in_a_directory_without_room_until_there_is_some(rig):
    partition = rig.add(0)
    looked = []

    def room(_path):
        looked.append(rig.cleaner.stats.cleanings + rig.cleaner.stats.failures)
        return 0 if len(looked) < 5 else None

    rig.cleaner._room = room
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings)
    assert looked[:5] == [0] * 5
    assert rig.cleaner.stats.failures == 0
    assert partition.log.first_dirty_offset > 0


async def test_a_full_directory_is_compacted_one_log_at_a_time_in_the_room_that_is_left(
    rig, monkeypatch
):
    partitions = [rig.add(index) for index in range(2)]
    jobs = []
    run = CleanerProcess.run

    async def noting(self, job):
        jobs.append((job, len(rig.cleaner._rounds)))
        async for event in run(self, job):
            yield event

    monkeypatch.setattr(CleanerProcess, "run", noting)
    rig.room_bytes = 1 << 20
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings == 2)
    assert [(job.room_bytes, rounds) for job, rounds in jobs] == [(1 << 20, 1)] * 2
    assert all(partition.log.first_dirty_offset for partition in partitions)


async def test_a_round_that_found_no_room_is_begun_again_when_there_is(rig):
    partition = rig.add(0)
    before = latest(partition.log)
    rig.room_bytes = 1

    def is_cleaned():
        if rig.cleaner.stats.failures == KILLED:
            rig.room_bytes = None
        return rig.cleaner.stats.cleanings or rig.cleaner.uncleanable

    await rig.clean_until(is_cleaned)
    assert rig.cleaner.uncleanable == {}
    assert rig.cleaner.stats.failures == KILLED
    assert rig.failed == []
    assert latest(partition.log) == before


class FullOfHoles(PosixFiles):
    """A disk that fails when directories are to be made durable."""

    broken = False

    def fsync_directory(self, path):
        if self.broken:
            raise OSError(errno.EIO, "broken", path)
        super().fsync_directory(path)


async def test_a_failing_disk_is_reported(tmp_path):
    rig = Rig(tmp_path, FullOfHoles())
    rig.add(0)
    rig.files.broken = True
    await rig.clean_until(lambda: rig.failed)
    ((name, error),) = rig.failed[:1]
    assert name == TopicPartition("topic", 0)
    assert error.errno == errno.EIO


class Starved(PosixFiles):
    """A process that has no descriptor for directories in the first `times` attempts."""

    left = 0

    def fsync_directory(self, path):
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files", path)
        super().fsync_directory(path)


async def test_a_segment_takes_its_place_once_there_are_descriptors(tmp_path):
    rig = Rig(tmp_path, Starved())
    told = []
    rig.cleaner._on_disk_failure = lambda _name, error: told.append(error.errno)
    partition = rig.add(0)
    before = latest(partition.log)
    rig.files.left = 3
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings)
    assert set(told) == {errno.EMFILE}
    assert rig.cleaner.stats.failures == 3
    assert latest(partition.log) == before
    assert rig.cleaner.uncleanable == {}


async def test_a_child_that_cannot_be_started_for_now_is_tried_again(rig, monkeypatch):
    partition = rig.add(0)
    told = []
    rig.cleaner._on_disk_failure = lambda _name, error: told.append(error.errno)
    run = CleanerProcess.run

    async def starved(self, job):
        if len(told) <= KILLED:
            raise OSError(errno.EMFILE, "Too many open files")
        async for event in run(self, job):
            yield event

    monkeypatch.setattr(CleanerProcess, "run", starved)
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings)
    assert set(told) == {errno.EMFILE}
    assert rig.cleaner.stats.failures == KILLED + 1
    assert partition.log not in rig.cleaner.uncleanable


async def test_a_log_that_cannot_be_read_again_does_not_end_the_cleaner(rig, monkeypatch):
    rig.add(0)
    told, looks = [], []
    rig.cleaner._on_disk_failure = lambda _name, error: told.append(error.errno)

    def find_cleanable(*args):
        looks.append(args)
        if len(looks) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return job.find_cleanable(*args)

    monkeypatch.setattr(cleaner, "find_cleanable", find_cleanable)
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings)
    assert told == [errno.EMFILE]


async def test_a_log_that_is_moved_is_not_compacted_and_its_round_ends(rig) -> None:
    moved, other = rig.add(0), rig.add(1)
    rig.cleaner._log_dirs.moving.add(moved.log.partition)
    before = [segment.size for segment in moved.log.segments]
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings)
    assert other.log.first_dirty_offset > 0
    assert (moved.log.first_dirty_offset, [s.size for s in moved.log.segments]) == (0, before)


async def test_nothing_is_put_in_place_once_the_log_is_moved(rig, monkeypatch) -> None:
    partition = rig.add(0)
    name = partition.log.partition
    before = [segment.size for segment in partition.log.segments]
    run = CleanerProcess.run

    async def moved_meanwhile(process, job):
        async for event in run(process, job):
            rig.cleaner._log_dirs.moving.add(name)
            yield event

    monkeypatch.setattr(CleanerProcess, "run", moved_meanwhile)
    await rig.clean_until(lambda: rig.cleaner._log_dirs.moving and name not in rig.cleaner._rounds)
    assert [segment.size for segment in partition.log.segments] == before
    assert rig.failed == []
