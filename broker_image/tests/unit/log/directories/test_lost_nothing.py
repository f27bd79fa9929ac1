"""What log directories know of the end before.

Closed properly and by whom, a process killed, a machine that lost power.
"""

import errno

import pytest
from logfleet.io.files import PosixFiles, remove_if_there
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.record import Record, build_batch
from logfleet.types import BrokerEpoch

from broker_image.tests.sim.disk import FSYNC, NEEDS_ROOM, SimDisk

NOW = 1_700_000_000_000
NAME = TopicPartition("topic", 0)
SMALL = LogConfig(segment_bytes=400)

pytestmark = pytest.mark.asyncio


async def start(disk, paths=("/a",), *, distrusts=False) -> LogDirs:
    disk.locks.clear()  # their holder is dead
    found = LogDirs(OpenFiles(disk), [])
    list(found.open_each(paths, "cluster", 1))
    if distrusts:
        found.distrust()
    await found.load(lambda _: SMALL, NOW, 1)
    return found


def close(dirs, epoch: int | None = None) -> None:
    """epoch: of a registration that is active by now, None without one."""
    if epoch is not None:
        dirs.settle(epoch)
    for log_dir in dirs:
        log_dir.close({})


def settle(dirs, epoch: int) -> None:
    """A registration of this epoch is active, and the directories name it."""
    dirs.settle(epoch)
    dirs.record_running()


def append(dirs, count=1, epoch=0) -> None:
    log = dirs.log_of(NAME) or dirs.create(NAME, "bQrxV1XaQAyDOV5OYVsTsQ", SMALL, NOW)
    for _ in range(count):
        log.append_as_leader(build_batch([Record(None, bytes(50), NOW)]), epoch, NOW)


async def known(disk, paths=("/a",)) -> LogDirs:
    """Active as broker epoch 5, with ten durable records."""
    dirs = await start(disk, paths)
    settle(dirs, 5)
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


async def test_the_marker_has_the_broker_epoch_that_closed_the_directory(disk) -> None:
    close(await known(disk), 77)
    marker = disk.open("/a/.kafka_cleanshutdown")
    assert marker.pread(100, 0) == b'{"version":0,"brokerEpoch":77}'
    again = await start(disk)
    assert (again.previous_epoch, again.lost_nothing) == (77, True)
    close(again)  # no registration of it was active
    assert (await start(disk)).previous_epoch == 77


@pytest.mark.parametrize("content", [b"", b"{}", b"no json", b'{"version":0,"brokerEpoch":-1}'])
async def test_a_marker_without_an_epoch_proves_nothing(disk, content) -> None:
    dirs = await known(disk)
    close(dirs, 5)
    file = disk.open("/a/.kafka_cleanshutdown")
    file.truncate(0)
    file.pwrite(content, 0)
    again = await start(disk)
    assert (again.previous_epoch, again.lost_nothing) == (-1, False)
    assert again.dirs[0].was_clean


async def test_a_new_directory_may_stand_for_one_that_was_lost(disk) -> None:
    dirs = await start(disk)
    assert not dirs.lost_nothing
    assert not (await start(disk)).lost_nothing, "killed before it was active"
    close(await start(disk))
    assert not (await start(disk)).lost_nothing, "closed before it was active"


async def test_a_process_that_was_killed_has_lost_nothing(disk) -> None:
    append(await known(disk), 30)
    again = await start(disk)
    assert (again.lost_nothing, again.previous_epoch) == (True, 5)
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
    settle(dirs, 6)
    assert dirs.lost_nothing
    again = await start(disk)
    assert (again.lost_nothing, again.previous_epoch) == (True, 6)


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


async def test_a_disk_without_room_proves_nothing_and_is_used(disk) -> None:
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


async def test_the_torn_end_of_an_unacknowledged_write_is_no_loss(disk) -> None:
    dirs = await known(disk)
    log = dirs.log_of(NAME)
    assert log is not None
    log.segments[-1].file.pwrite(b"half a batch", log.segments[-1].size)
    assert (await start(disk)).lost_nothing


async def test_directories_closed_under_different_epochs_are_not_believed(disk) -> None:
    close(await known(disk, ("/a", "/b")), 5)
    alone = await start(disk, ("/a",))
    close(alone, 6)
    both = await start(disk, ("/a", "/b"))
    assert (both.previous_epoch, both.lost_nothing) == (-1, False)
    assert not (await start(disk, ("/a", "/b"))).lost_nothing
    assert not (await start(disk, ("/a",), distrusts=True)).lost_nothing


async def test_a_directory_that_cannot_be_opened_is_missed(disk, tmp_path) -> None:
    (tmp_path / "file").write_text("no directory")
    found = LogDirs(OpenFiles(PosixFiles()), [])
    paths = [str(tmp_path / "good"), str(tmp_path / "file")]
    list(found.open_each(paths, "cluster", 1))
    await found.load(lambda _: SMALL, NOW, 1)
    assert (found.previous_epoch, found.lost_nothing) == (-1, False)
    found.settle(BrokerEpoch(3))
    assert found.lost_nothing
    close(found)


async def test_the_directory_names_the_last_registration_that_was_active(disk) -> None:
    dirs = await known(disk)
    assert (await start(disk)).previous_epoch == 5
    assert (await start(disk)).previous_epoch == 5, "killed before the next one was active"
    settle(dirs := await start(disk), 9)
    append(dirs)
    assert (await start(disk)).previous_epoch == 9
    dirs = await start(disk)
    dirs.settle(BrokerEpoch(12))  # and is killed before that is on the disk
    assert (await start(disk)).previous_epoch == 9
    dirs = await start(disk)
    dirs.settle(BrokerEpoch(15))
    close(dirs)
    assert (await start(disk)).previous_epoch == 15, "a stop in order names it all the same"


async def test_a_copy_of_a_directory_in_use_is_not_believed(disk) -> None:
    dirs = await known(disk)
    append(dirs, 5)
    disk.copy_directory("/a", "/copy")
    append(dirs, 20)
    disk.replace_directory("/copy", "/a")
    again = await start(disk)
    assert (again.previous_epoch, again.lost_nothing) == (-1, False)
    assert not (await start(disk)).lost_nothing, "killed before it was active"


async def test_a_copy_of_a_closed_directory_names_the_life_that_closed_it(disk) -> None:
    close(await known(disk), 7)
    disk.copy_directory("/a", "/copy")
    settle(dirs := await start(disk), 9)
    append(dirs, 20)
    disk.replace_directory("/copy", "/a")
    assert (await start(disk)).previous_epoch == 7


async def test_another_mount_of_the_file_system_may_be_of_an_older_state(disk) -> None:
    append(await known(disk), 5)
    disk.mounts += 1
    again = await start(disk)
    assert (again.previous_epoch, again.lost_nothing) == (-1, False)


async def test_without_mount_identities_a_kill_is_not_believed(disk) -> None:
    disk.tells_mounts = False
    dirs = await known(disk)
    assert not (await start(disk)).lost_nothing
    close(dirs)
    again = await start(disk)
    assert (again.previous_epoch, again.lost_nothing) == (5, True), "a stop in order is"


async def test_the_running_file_of_an_older_version_is_not_believed(disk) -> None:
    await known(disk)
    note = disk.open("/a/.logfleet-boot")
    note.truncate(0)
    note.pwrite(b"8bd43e7a-9a9d-4f8c-a7a5-b4ac33d4dc1e", 0)
    assert not (await start(disk)).lost_nothing


@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_log_that_ends_before_its_last_flush_has_lost_records(disk, is_closed) -> None:
    dirs = await known(disk)
    log = dirs.log_of(NAME)
    assert log is not None
    assert log.recovery_point == 10
    if is_closed:
        close(dirs)
    for segment in log.segments[1:]:
        for path in segment.paths:
            remove_if_there(disk, path)
    log.segments[0].file.truncate(0)
    again = await start(disk)
    assert not again.lost_nothing


async def test_directories_that_a_killed_process_left_with_different_epochs_are_not_believed(
    disk,
) -> None:
    dirs = await known(disk, ("/a", "/b"))
    dirs.settle(BrokerEpoch(9))
    dirs.dirs[0].record_running()  # and is killed before the other one names it
    again = await start(disk, ("/a", "/b"))
    assert (again.previous_epoch, again.lost_nothing) == (-1, False)


async def test_one_directory_may_be_closed_and_the_other_not(disk) -> None:
    dirs = await known(disk, ("/a", "/b"))
    dirs.dirs[0].close({})
    again = await start(disk, ("/a", "/b"))
    assert (again.previous_epoch, again.lost_nothing) == (5, True)
