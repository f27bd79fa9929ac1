"""Guarantees while the disk of a log directory is slow to write."""

import asyncio
import errno
import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from logfleet.io.files import File, PosixFile, PosixFiles, Writable
from logfleet.log.config import LogConfig
from logfleet.log.directories import disk as module
from logfleet.log.directories.disk import (
    CALM_S,
    HOLD_S_MAX,
    HOLD_S_MIN,
    REPORT_S,
    REST_BYTES_MAX,
    SLOW_S,
    Disk,
    DiskBusy,
    DiskFile,
)
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.log_rig import LogRig

pytestmark = pytest.mark.asyncio


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class SlowFile(PosixFile):
    """See SlowFiles."""

    disk: "SlowFiles"

    def pwrite(self, data: Writable, position: int) -> None:
        disk = self.disk
        if self.path.endswith(disk.stuck):
            assert disk.gate.wait(30), "nobody opened the gate"
        disk.clock.seconds += disk.takes_s
        if disk.errors:
            raise OSError(disk.errors.pop(0), "as the test wants it", self.path)
        super().pwrite(data, position)
        disk.written.append((self.path, position))


class SlowFiles(PosixFiles):
    """takes_s: what a write takes by the clock. errors: with which the next writes fail.

    gate: while it is closed, writes to files whose paths end in `stuck` wait.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stuck = ""
        self.takes_s = 0.0
        self.errors: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.written: list[tuple[str, int]] = []

    def open(self, path: str, *, create: bool = False) -> File:
        file = SlowFile(path, create=create)
        file.disk = self
        return file


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


@pytest.fixture
def slow(clock) -> SlowFiles:
    return SlowFiles(clock)


class Directory:
    """A log directory with files, on a disk that the test makes slow."""

    def __init__(self, path: Path, slow: SlowFiles) -> None:
        self.path = path
        self.slow = slow
        self.open_files = OpenFiles(slow)
        self.failures: list[tuple[str, OSError]] = []
        self.open_files.on_write_failed.append(
            lambda path, error: self.failures.append((path, error))
        )
        self.disk = self.open_files.disk(str(path))
        (path / "topic-0").mkdir(parents=True)

    def file(self, name: str = "a.log") -> File:
        return self.open_files.get(str(self.path / "topic-0" / name), create=True)

    def hold_up(self) -> None:
        """One write is slow."""
        self.slow.takes_s = 2 * SLOW_S
        self.file("first").pwrite(b".", 0)
        self.slow.takes_s = 0.0

    async def written(self) -> None:
        """All that waits now is written, and the loop knows it."""
        written = asyncio.Event()
        self.disk.when_written(written.set)
        await written.wait()
        await asyncio.sleep(0)  # the end of the last one is reported in the next step


@pytest.fixture
def directory(tmp_path, slow) -> Directory:
    return Directory(tmp_path / "data", slow)


async def test_a_stall_is_paid_once_then_writes_do_not_stop_the_loop(directory, slow) -> None:
    file = directory.file()
    file.pwrite(b"one", 0)
    assert not directory.disk.is_held_up
    directory.hold_up()
    assert directory.disk.is_held_up
    slow.gate.clear()  # from here on a write on the loop would end this test
    written: list[str] = []
    file.pwrite(b"two", 3)
    directory.disk.when_written(lambda: written.append("two"))
    file.pwrite(b"three", 6)
    directory.disk.when_written(lambda: written.append("three"))
    assert (file.pread(20, 0), file.size(), written) == (b"onetwothree", 11, [])
    slow.gate.set()
    await directory.written()
    assert Path(file.path).read_bytes() == b"onetwothree"
    assert written == ["two", "three"]


async def test_other_directories_go_on(directory, slow, tmp_path) -> None:
    (tmp_path / "other" / "topic-0").mkdir(parents=True)
    directory.hold_up()
    other = directory.open_files.get(str(tmp_path / "other/topic-0/a.log"), create=True)
    other.pwrite(b"at once", 0)
    assert slow.written[-1] == (other.path, 0)


async def test_a_slow_write_in_a_thread_does_not_block_the_loop(directory, slow) -> None:
    await asyncio.to_thread(directory.hold_up)
    assert not directory.disk.is_held_up


async def held_s(directory: Directory, clock: Clock) -> float:
    """How long the thread writes from now on, while no write is slow; in steps of half a second."""
    began = clock.seconds
    while directory.disk.is_held_up:
        clock.seconds += 0.5
        directory.file().pwrite(b"fast", 0)
        await directory.written()
    return clock.seconds - 0.5 - began


async def test_the_loop_writes_itself_again_a_second_after_one_stall(directory, clock) -> None:
    directory.hold_up()
    assert await held_s(directory, clock) == HOLD_S_MIN
    file = directory.file()
    file.pwrite(b"here", 0)
    assert Path(file.path).read_bytes() == b"here"


async def test_each_stall_of_the_loop_doubles_the_time_until_it_was_calm(directory, clock) -> None:
    times = []
    for _ in range(8):
        directory.hold_up()
        times.append(await held_s(directory, clock))
        clock.seconds += CALM_S - 2
    assert times == [1, 2, 4, 8, 16, 32, HOLD_S_MAX, HOLD_S_MAX]
    clock.seconds += 2
    directory.hold_up()
    assert await held_s(directory, clock) == HOLD_S_MIN


async def test_a_stall_of_the_thread_begins_the_time_again(directory, slow, clock) -> None:
    directory.hold_up()
    clock.seconds += HOLD_S_MIN - 0.5
    slow.takes_s = 2 * SLOW_S
    for _ in range(3):
        directory.file().pwrite(b"slow", 0)
        await directory.written()
    slow.takes_s = 0.0
    assert await held_s(directory, clock) == HOLD_S_MIN


async def test_a_stall_as_the_loop_begins_to_write_again_is_not_waited_for(
    directory, slow, clock
) -> None:
    """The rest of what waits is written by the thread, and until it is nothing overtakes it."""
    directory.hold_up()
    clock.seconds += 2 * HOLD_S_MIN
    slow.gate.clear()
    slow.stuck = "b.log"
    written: list[str] = []
    slow.takes_s = 2 * REPORT_S
    for name in ("a", "b", "c"):
        directory.file(f"{name}.log").pwrite(b"data", 0)
        directory.disk.when_written(partial(written.append, name))
    while not written:  # noqa: ASYNC110  then it has waited for the others in vain
        await asyncio.sleep(0)
    assert (written, directory.disk.is_held_up) == (["a"], True)
    directory.file("a.log").pwrite(b"waits as well", 0)
    slow.gate.set()
    await directory.written()
    assert (written, directory.disk.is_held_up) == (["a", "b", "c"], True)
    assert [Path(path).name[0] for path, _ in slow.written[-4:]] == ["a", "b", "c", "a"]


async def test_the_loop_does_not_wait_for_a_rest_that_is_large(
    directory, slow, clock, monkeypatch
) -> None:
    monkeypatch.setattr(Disk, "_end", lambda _: pytest.fail("it waits"))
    directory.hold_up()
    clock.seconds += 2 * HOLD_S_MIN
    slow.gate.clear()
    slow.stuck = "b.log"
    first = asyncio.Event()
    directory.file("a.log").pwrite(b"first", 0)
    directory.disk.when_written(first.set)
    directory.file("b.log").pwrite(bytes(REST_BYTES_MAX + 1), 0)
    await first.wait()
    slow.gate.set()
    directory.disk.drain()


async def test_a_write_from_a_callback_is_not_overtaken(directory, slow, clock) -> None:
    directory.hold_up()
    clock.seconds += 2 * HOLD_S_MIN
    slow.takes_s = 2 * REPORT_S
    slow.gate.clear()
    slow.stuck = "b.log"
    rest = directory.file("b.log")
    directory.file("a.log").pwrite(b"first", 0)
    directory.disk.when_written(slow.gate.set)
    heard = asyncio.Event()
    rest.pwrite(b"rest", 0)

    def answer() -> None:
        slow.gate.clear()
        rest.pwrite(b"answer", 4)
        heard.set()

    directory.disk.when_written(answer)
    await heard.wait()
    assert directory.disk.is_held_up
    slow.gate.set()
    await directory.written()
    assert Path(rest.path).read_bytes() == b"restanswer"


async def test_callers_hear_of_what_is_written_in_its_order(directory) -> None:
    directory.hold_up()
    heard: list[int] = []
    for number in range(3):
        directory.file().pwrite(b"data", 4 * number)
        directory.disk.when_written(partial(heard.append, number))
    directory.disk.drain()  # in this step: the loop has not heard of it yet
    directory.disk.when_written(partial(heard.append, 3))
    assert heard == []
    await directory.written()
    assert heard == [0, 1, 2, 3]


async def test_what_waits_goes_to_each_file_in_one_write(directory, slow) -> None:
    directory.hold_up()
    slow.written.clear()
    for number in range(10):
        for name in ("a", "b"):
            directory.file(name).pwrite(b"%d" % number, number)
    directory.file("a").pwrite(b"elsewhere", 20)
    await directory.written()
    a, b = directory.file("a"), directory.file("b")
    assert slow.written == [(a.path, 0), (b.path, 0), (a.path, 20)]
    assert Path(b.path).read_bytes() == b"0123456789"


async def test_of_a_slow_batch_each_part_is_acknowledged_once_it_is_written(
    directory, slow
) -> None:
    directory.hold_up()
    slow.takes_s = 2 * REPORT_S
    slow.gate.clear()
    slow.stuck = "b"
    written: list[str] = []
    for name in ("a", "b", "a2", "b2"):
        directory.file(name[0]).pwrite(b"data", 4 * len(name) - 4)
        directory.disk.when_written(partial(written.append, name))
    while not written:  # noqa: ASYNC110  the thread does it
        await asyncio.sleep(0)
    assert written == ["a"], "a2 is written as well, b before it is not"
    slow.gate.set()
    await directory.written()
    assert written == ["a", "b", "a2", "b2"]


async def test_what_threads_write_takes_its_turn(directory, slow) -> None:
    file = directory.file()
    assert not directory.disk.write(file, b"not held up", 0)
    directory.hold_up()
    slow.written.clear()
    file.pwrite(b"one", 0)
    await asyncio.to_thread(file.pwrite, b"two", 3)
    await asyncio.to_thread(file.fsync)
    assert Path(file.path).read_bytes() == b"onetwo"


async def test_reads_are_those_of_a_disk_that_is_not_held_up(directory, slow, clock) -> None:
    """Whatever is written, read and shortened, also as the thread begins and ends to write.

    A DiskFile behaves like an ordinary file.
    """
    dice = random.Random(7)
    spared = directory.file()
    held_up = Counter[bool]()
    plain = PosixFile(str(directory.path / "plain"), create=True)
    for _ in range(3_000):
        held_up[directory.disk.is_held_up] += 1
        match dice.randrange(14):
            case 0:
                slow.gate.set()
            case 1 if directory.disk.is_held_up:
                slow.gate.clear()
            case 2:
                slow.gate.set()
                length = dice.randrange(plain.size() + 1)
                spared.truncate(length)
                plain.truncate(length)
            case 3:
                await asyncio.sleep(0)
            case 12 if not directory.disk.is_held_up:
                slow.gate.set()
                directory.hold_up()
            case 13:
                clock.seconds += HOLD_S_MAX + 1
            case 4 | 5 | 6 | 7:
                if not directory.disk.is_held_up:
                    slow.gate.set()  # the loop would wait for ever
                at = dice.choice([plain.size(), dice.randrange(plain.size() + 1)])
                data = dice.randbytes(dice.randrange(1, 40))
                spared.pwrite(data, at)
                plain.pwrite(data, at)
            case _:
                length, at = dice.randrange(1, 60), dice.randrange(plain.size() + 10)
                assert spared.pread(length, at) == plain.pread(length, at)
                assert spared.size() == plain.size()
    slow.gate.set()
    await asyncio.to_thread(spared.fsync)
    assert Path(spared.path).read_bytes() == Path(plain.path).read_bytes()
    assert min(held_up.values()) > 300, held_up


async def test_other_open_files_of_the_same_disk_see_what_waits(directory, slow) -> None:
    directory.hold_up()
    slow.gate.clear()
    directory.file().pwrite(b"waits", 0)
    beside = directory.open_files.separate(4).get(directory.file().path)
    assert isinstance(beside, DiskFile)
    assert beside.pread(5, 0) == b"waits"
    slow.gate.set()


async def test_the_flush_of_a_new_log_begins_without_waiting_for_the_disk(tmp_path, slow) -> None:
    """Its indexes are written for the first time.

    Where the disk is full as well, who waits for it on the loop waits for ever.
    """
    rig = LogRig(str(tmp_path / "data"), slow)
    log = rig.open(LogConfig(index_interval_bytes=1))
    log.disk.on_slow_write(2 * SLOW_S)
    slow.gate.clear()
    slow.written.clear()
    for _ in range(3):
        log.append_as_leader(build_batch([Record(None, b"v", 1)]), LeaderEpoch(0), 1)
    job = log.begin_flush()
    assert slow.written == []
    slow.gate.set()
    await asyncio.to_thread(job.run, slow)
    log.complete_flush(job)
    index = log.segments[0].offset_index
    assert (len(index), Path(index.path).stat().st_size) == (2, 16)


async def test_what_waits_for_a_file_is_not_for_the_next_of_its_name(directory, slow) -> None:
    directory.hold_up()
    slow.gate.clear()
    file = directory.file()
    file.pwrite(b"old", 0)
    Path(file.path).rename(f"{file.path}.deleted")
    directory.open_files.drop(file.path)
    anew = directory.file()
    assert anew.pread(3, 0) == b""
    slow.gate.set()
    await asyncio.to_thread(anew.fsync)
    assert Path(f"{file.path}.deleted").read_bytes() == b"old"
    assert anew.pread(3, 0) == b""


async def test_a_write_that_finds_no_room_waits_for_it(directory, slow, monkeypatch, until) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    directory.hold_up()
    slow.errors = [errno.ENOSPC, errno.ENOSPC]
    file = directory.file()
    file.pwrite(b"kept", 0)
    await asyncio.to_thread(file.fsync)
    assert Path(file.path).read_bytes() == b"kept"
    await until(lambda: len(directory.failures) == 2)
    assert all(error.errno == errno.ENOSPC for _, error in directory.failures)


async def test_behind_a_write_that_failed_nothing_is_written(directory, slow, until) -> None:
    directory.hold_up()
    slow.gate.clear()
    slow.errors = [errno.EIO]
    file, written = directory.file(), []
    file.pwrite(b"lost", 0)
    file.pwrite(b"behind", 4)
    directory.disk.when_written(lambda: written.append("behind"))
    slow.gate.set()
    with pytest.raises(OSError, match="given up"):
        await asyncio.to_thread(file.fsync)
    await until(lambda: directory.failures)
    ((path, error),) = directory.failures
    assert (path, error.errno, written) == (file.path, errno.EIO, [])
    assert Path(file.path).read_bytes() == b""


async def test_no_more_waits_than_there_is_memory_for(directory, slow, monkeypatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 10)
    directory.hold_up()
    slow.gate.clear()
    directory.disk.require_room()
    directory.file().pwrite(b"eleven byte", 0)
    with pytest.raises(DiskBusy):
        directory.disk.require_room()
    slow.gate.set()
    await directory.written()
    directory.disk.require_room()
