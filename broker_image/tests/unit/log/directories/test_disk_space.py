import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.files import PosixFiles, Space
from logfleet.log.config import LogConfig
from logfleet.log.directories.disk_failure import DiskFailure
from logfleet.log.directories.disk_space import RESERVE, DiskSpace
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024


class Disk(PosixFiles):
    """Real files on a disk whose free space the test sets."""

    def __init__(self) -> None:
        self.usable_bytes = 500 * MIB
        self.asked: OSError | None = None

    def space(self, path: str) -> Space:
        if self.asked is not None:
            raise self.asked
        reserve = Path(path) / RESERVE
        held = reserve.stat().st_size if reserve.exists() else 0
        return Space(1_000 * MIB, max(0, self.usable_bytes - held))


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest_asyncio.fixture
async def space(disk: Disk) -> AsyncIterator[DiskSpace]:
    flusher = Flusher(disk)
    yield DiskSpace(disk, flusher, LogDirs(OpenFiles(disk), []), 4 * MIB)
    flusher.stop()


def reserve_of(path: Path) -> int | None:
    reserve = path / RESERVE
    return reserve.stat().st_size if reserve.exists() else None


async def test_a_reserve_is_kept_given_up_and_made_again(
    disk: Disk, space: DiskSpace, tmp_path: Path
) -> None:
    path = str(tmp_path)
    await space.check(path)
    assert reserve_of(tmp_path) == 4 * MIB
    reserve = tmp_path / RESERVE
    assert reserve.stat().st_blocks * 512 >= 4 * MIB  # held, not only named
    disk.usable_bytes = 5 * MIB
    await space.check(path)
    assert space.full == {path}
    assert reserve_of(tmp_path) is None
    disk.usable_bytes = 7 * MIB
    await space.check(path)
    assert space.full == {path}
    disk.usable_bytes = 8 * MIB
    await space.check(path)
    assert space.full == set()
    assert reserve_of(tmp_path) == 4 * MIB
    await space.check(path)
    assert space.full == set()
    space.remove_reserve(path)
    assert reserve_of(tmp_path) is None


async def test_a_write_without_room_stops_records_at_once(space: DiskSpace, tmp_path: Path) -> None:
    await space.check(str(tmp_path))
    space.on_full(str(tmp_path))
    assert space.full == {str(tmp_path)}
    assert reserve_of(tmp_path) is None


async def test_compaction_may_take_half_of_what_room_a_full_directory_has(
    disk: Disk, space: DiskSpace, tmp_path: Path
) -> None:
    path = str(tmp_path)
    await space.check(path)
    assert space.room_to_compact(path) is None
    disk.usable_bytes = 5 * MIB
    await space.check(path)
    assert space.full == {path}
    await space.check(path)  # now that the reserve is given up
    assert space.room_to_compact(path) == 5 * MIB // 2
    space.rooms.clear()
    assert space.room_to_compact(path) == 0


async def test_a_reserve_of_another_size_is_made_again(space: DiskSpace, tmp_path: Path) -> None:
    (tmp_path / RESERVE).write_bytes(bytes(100))
    await space.check(str(tmp_path))
    assert reserve_of(tmp_path) == 4 * MIB


async def test_a_reserve_that_cannot_be_made_leaves_nothing_behind(
    space: DiskSpace, tmp_path: Path
) -> None:
    path = str(tmp_path)
    space.on_full(path)
    (tmp_path / RESERVE).mkdir()
    await space.check(path)
    assert space.full == {path}  # nor are records taken


async def test_a_disk_that_cannot_be_asked_changes_nothing(
    disk: Disk, space: DiskSpace, tmp_path: Path
) -> None:
    disk.asked = OSError(errno.EIO, "gone")
    await space.check(str(tmp_path))
    assert (space.full, space.rooms) == (set(), {})


async def test_the_disks_are_checked_again_and_again(
    disk: Disk, space: DiskSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logfleet.log.directories.disk_space.PERIOD_S", 0)
    looked = asyncio.Event()

    class Directory:
        path = str(tmp_path)

    async def check(path: str) -> None:
        assert path == str(tmp_path)
        looked.set()

    monkeypatch.setattr(space, "_log_dirs", [Directory()])
    monkeypatch.setattr(space, "check", check)
    running = asyncio.ensure_future(space.run())
    await looked.wait()
    running.cancel()
    await asyncio.wait([running])


async def test_a_failed_directory_is_neither_full_nor_checked(
    space: DiskSpace, tmp_path: Path
) -> None:
    """A look that was under way when it failed changes nothing either."""
    path = str(tmp_path)
    log_dir = LogDir(space._log_dirs.open_files, path, "cluster", 1)
    space._log_dirs.dirs.append(log_dir)
    log_dir.create(TopicPartition("t", 0), "bQrxV1XaQAyDOV5OYVsTsQ", LogConfig(), 0)
    reasons: list[str] = []
    failure = DiskFailure(space._log_dirs, space, fail=reasons.append)
    await space.check(path)
    failure(TopicPartition("t", 0), OSError(errno.ENOSPC, "full"))
    assert space.full == {path}
    checking = asyncio.ensure_future(space.check(path))
    await asyncio.sleep(0)
    failure(TopicPartition("t", 0), OSError(errno.EIO, "broken"))
    assert (space.full, space.rooms) == (set(), {})
    await checking
    assert (space.full, space.rooms) == (set(), {})
    assert reasons == ["no log directory is left: [Errno 5] broken"]
