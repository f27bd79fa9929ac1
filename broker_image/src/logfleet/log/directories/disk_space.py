"""Watches the free space of the log directories' disks, and keeps a reserve on each.

Rules: `logfleet.log.directories.free_space`. While a directory is full its partitions refuse
producers with KAFKA_STORAGE_ERROR, which clients retry. Everything else goes on.
"""

import asyncio
import contextlib
from typing import Final

import structlog

from logfleet.io.files import Files, allocate, remove_if_there
from logfleet.log.directories.free_space import (
    DiskRoom,
    DiskStep,
    disk_step,
    room_to_compact,
    wanted_reserve,
)
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.partition_log import PartitionLog

log = structlog.get_logger(__name__)

PERIOD_S: Final = 0.5
"""Interval between checks of the disks: producers are refused within a second."""
RESERVE: Final = ".logfleet-reserve"
WARN_PERCENT: Final = (80, 95)


class DiskSpace:
    """One per broker. full: paths of the directories that take no records now.

    rooms: last measured space, by path.
    """

    def __init__(
        self, files: Files, flusher: Flusher, log_dirs: LogDirs, reserve_bytes: int
    ) -> None:
        self.full: set[str] = set()
        self.rooms: dict[str, DiskRoom] = {}
        self._files = files
        self._flusher = flusher
        self._log_dirs = log_dirs
        self._reserve_bytes = reserve_bytes
        self._warned: dict[str, int] = {}

    def refuses(self, partition_log: PartitionLog) -> bool:
        """Whether the log's directory takes no records now."""
        return partition_log.directory.rpartition("/")[0] in self.full

    def room_to_compact(self, path: str) -> int | None:
        """Bytes that compaction may add to a full directory; None if the directory is not full."""
        if path not in self.full:
            return None
        room = self.rooms.get(path)
        return room_to_compact(room) if room is not None else 0

    async def run(self) -> None:
        """Check all disks until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            for log_dir in self._log_dirs:
                await self.check(log_dir.path)

    async def check(self, path: str) -> None:
        """Measure the space of one directory and act on it.

        A disk that cannot be measured is left to others to report.
        """
        try:
            room = await self._flusher.run(self._room, path)
        except OSError as error:
            log.warning("disk_space_unknown", path=path, error=str(error))
            return
        if path in self._log_dirs.failed:
            return
        self.rooms[path] = room
        self._warn(path, room)
        reserve_bytes = wanted_reserve(self._reserve_bytes, room.total_bytes)
        match disk_step(room, reserve_bytes, is_full=path in self.full):
            case DiskStep.STOP:
                self._stop(path)
            case DiskStep.RESUME:
                if await self._resize_reserve(path, reserve_bytes):
                    self.full.discard(path)
                    log.info("disk_has_room", path=path, free_bytes=room.free_bytes)
            case DiskStep.NONE if path not in self.full and room.reserve_bytes != reserve_bytes:
                await self._resize_reserve(path, reserve_bytes)

    def on_full(self, path: str) -> None:
        """A write found no room: take no records until there is some."""
        self._stop(path)

    def drop(self, path: str) -> None:
        """The directory failed and is not used any more: drop its state."""
        self.full.discard(path)
        self.rooms.pop(path, None)

    def remove_reserve(self, path: str) -> None:
        """Remove the reserve: the directory is being closed."""
        with contextlib.suppress(OSError):
            remove_if_there(self._files, f"{path}/{RESERVE}")

    def _stop(self, path: str) -> None:
        if path not in self.full:
            self.full.add(path)
            log.error(
                "disk_full",
                path=path,
                note="records are refused until there is room: delete topics, lower retention "
                "or make the disk larger",
            )
        self.remove_reserve(path)

    def _room(self, path: str) -> DiskRoom:
        space = self._files.space(path)
        try:
            reserve = self._files.status(f"{path}/{RESERVE}").size
        except FileNotFoundError:
            reserve = 0
        return DiskRoom(space.total_bytes, space.usable_bytes, reserve)

    async def _resize_reserve(self, path: str, reserve_bytes: int) -> bool:
        """Make the reserve file this large; returns whether that worked."""
        try:
            await self._flusher.run(self._make_reserve, f"{path}/{RESERVE}", reserve_bytes)
        except OSError as error:
            log.warning("reserve_not_made", path=path, error=str(error))
            self.remove_reserve(path)
            return False
        return True

    def _make_reserve(self, name: str, reserve_bytes: int) -> None:
        remove_if_there(self._files, name)
        if reserve_bytes:
            allocate(self._files.open(name, create=True), reserve_bytes)

    def _warn(self, path: str, room: DiskRoom) -> None:
        percent = max((p for p in WARN_PERCENT if 100 * room.used_ratio >= p), default=0)
        if percent > self._warned.get(path, 0):
            log.warning("disk_filling", path=path, percent=percent, free_bytes=room.free_bytes)
        self._warned[path] = percent
