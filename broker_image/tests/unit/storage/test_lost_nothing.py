"""What log directories know of the end before: closed properly and by whom, a process killed, a machine that lost power."""

import errno

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.records.record import Record, build_batch
from logfleet.storage.log_dirs import LogDirs
from logfleet.storage.open_files import OpenFiles

from broker_image.tests.sim.disk import FSYNC, NEEDS_ROOM, SimDisk

NOW = 1_700_000_000_000
NAME = TopicPartition("topic", 0)
SMALL = LogConfig(segment_bytes=400)

pytestmark = pytest.mark.asyncio


async def start(disk, paths=("/a",), *, distrusts=False) -> LogDirs:
    disk.locks.clear()  # whoever held them is gone
    found = LogDirs(OpenFiles(disk), [])
    list(found.open_each(paths, "cluster", 1))
    if distrusts:
        found.distrust()
    await found.load(lambda _: SMALL, NOW, 1)
    return found


def close(dirs, epoch: int | None) -> None:
    for log_dir in dirs:
        log_dir.close({}, epoch)


def append(dirs, count=1, epoch=0) -> None:
    log = dirs.log_of(NAME) or dirs.create(NAME, "bQrxV1XaQAyDOV5OYVsTsQ", SMALL, NOW)
    for _ in range(count):
        log.append_as_leader(build_batch([Record(None, bytes(50), NOW)]), epoch, NOW)


async def known(disk, paths=("/a",)) -> LogDirs:
    """As the cluster knows them: registered, active, ten records durable."""
    dirs = await start(disk, paths)
    dirs.settle()
    append(dirs, 10)
    for log_dir in dirs:
        for log in log_dir.logs.values():
            job = log.begin_flush()
            job.run(disk)
            log.complete_flush(job)
        log_dir.checkpoint({}).run(disk)
    return dirs


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(1)


async def test_the_marker_tells_which_broker_epoch_closed_the_directory(disk) -> None:
    close(await known(disk), 77)
    marker = disk.open("/a/.kafka_cleanshutdown")
    assert marker.pread(100, 0) == b'{"version":0,"brokerEpoch":77}'
    again = await start(disk)
    assert (again.closed_by, again.lost_nothing) == (77, True)
    close(again, None)  # it was never registered
    assert (await start(disk)).closed_by == 77


@pytest.mark.parametrize("content", [b"", b"{}", b"no json", b'{"version":0,"brokerEpoch":-1}'])
async def test_a_marker_without_an_epoch_says_nothing_of_what_was_lost(disk, content) -> None:
    dirs = await known(disk)
    close(dirs, 5)
    file = disk.open("/a/.kafka_cleanshutdown")
    file.truncate(0)
    file.pwrite(content, 0)
    again = await start(disk)
    assert (again.closed_by, again.lost_nothing) == (None, False)
    assert again.dirs[0].was_clean


async def test_a_new_directory_may_stand_for_one_that_was_lost(disk) -> None:
    dirs = await start(disk)
    assert not dirs.lost_nothing
    assert not (await start(disk)).lost_nothing, "killed before the cluster knew"
    close(await start(disk), 6)
    assert not (await start(disk)).lost_nothing, "registered, and never active"


async def test_a_process_that_was_killed_has_lost_nothing(disk) -> None:
    append(await known(disk), 30)
    again = await start(disk)
    assert (again.lost_nothing, again.closed_by) == (True, None)
    log = again.log_of(NAME)
    assert log is not None
    assert (log.log_end_offset, log.recovery_point) == (40, 40)
    disk.lose_power()
    log = (await start(disk)).log_of(NAME)
    assert log is not None
    assert log.log_end_offset == 40, "what a replica counts on is durable"


async def test_a_machine_that_lost_power_may_have_lost_what_was_not_durable(disk) -> None:
    append(await known(disk), 30)
    disk.lose_power()
    assert not (await start(disk)).lost_nothing
    assert not (await start(disk)).lost_nothing, "killed before the cluster knew"
    dirs = await start(disk)
    dirs.settle()
    assert dirs.lost_nothing
    assert (await start(disk)).lost_nothing


async def test_what_the_disk_did_not_take_fails_the_directory(disk) -> None:
    append(await known(disk, ("/a", "/b")), 30)
    disk.fail_after(0, errno.EIO, frozenset({FSYNC}), below=f"/a/{NAME}")
    again = await start(disk, ("/a", "/b"))
    assert again.failed == ["/a"]
    assert not again.lost_nothing
    later = await start(disk, ("/a", "/b"))
    assert not later.lost_nothing, "the next sync tells of no error"


async def test_a_directory_that_failed_while_it_was_used_is_not_believed(disk) -> None:
    dirs = await known(disk)
    dirs.take_out(dirs.dirs[0])
    assert not (await start(disk)).lost_nothing


async def test_a_disk_without_room_says_nothing_and_goes_on(disk) -> None:
    append(await known(disk), 1, epoch=9)  # which is to be written
    disk.fail_after(0, errno.ENOSPC, NEEDS_ROOM, times=1000)
    again = await start(disk)
    assert again.failed == []
    assert not again.lost_nothing


async def test_damage_is_a_loss_though_the_machine_runs_on(disk) -> None:
    dirs = await known(disk)
    append(dirs, 30)
    log = dirs.log_of(NAME)
    assert log is not None
    victim = log.segments[-3].file
    victim.truncate(victim.size() - 1)
    assert not (await start(disk)).lost_nothing
    assert not (await start(disk)).lost_nothing, "what is left is whole"


async def test_the_torn_end_of_a_write_that_nobody_was_told_of_is_none(disk) -> None:
    dirs = await known(disk)
    log = dirs.log_of(NAME)
    assert log is not None
    log.segments[-1].file.pwrite(b"half a batch", log.segments[-1].size)
    assert (await start(disk)).lost_nothing


async def test_directories_closed_under_different_epochs_are_not_believed(disk) -> None:
    close(await known(disk, ("/a", "/b")), 5)
    alone = await start(disk, ("/a",))
    alone.settle()
    close(alone, 6)
    both = await start(disk, ("/a", "/b"))
    assert (both.closed_by, both.lost_nothing) == (None, False)
    assert not (await start(disk, ("/a", "/b"))).lost_nothing
    assert not (await start(disk, ("/a",), distrusts=True)).lost_nothing


async def test_a_directory_that_cannot_be_opened_is_missed(disk, tmp_path) -> None:
    (tmp_path / "file").write_text("no directory")
    found = LogDirs(OpenFiles(PosixFiles()), [])
    paths = [str(tmp_path / "good"), str(tmp_path / "file")]
    list(found.open_each(paths, "cluster", 1))
    await found.load(lambda _: SMALL, NOW, 1)
    assert (found.closed_by, found.lost_nothing) == (None, False)
    found.settle()
    assert found.lost_nothing
    close(found, 3)


async def test_the_machine_says_which_run_it_is() -> None:
    assert len(PosixFiles().boot_id()) == 36
    assert PosixFiles().boot_id() == PosixFiles().boot_id()
