"""When a log directory stops taking records because its disk is nearly full, and when it resumes.

A full disk has not failed: it can be read, and whatever makes room (retention, deletes, their
checkpoints) has to go on. A reserve is kept for that, a file that occupies space; it is removed
when the rest is used up, and made again before records are taken.
"""

import enum
from typing import Final

import msgspec

RESERVE_SHARE_MAX: Final = 20
"""The reserve is at most a 20th of its disk."""
FLOOR_BYTES: Final = 256 * 1024
"""The least free space at which records are taken, however small the reserve."""


class DiskRoom(msgspec.Struct, frozen=True):
    """Space on a disk, in bytes. free_bytes: can still be written, without the reserve.

    reserve_bytes: present size of the reserve.
    """

    total_bytes: int
    free_bytes: int
    reserve_bytes: int = 0

    @property
    def used_ratio(self) -> float:
        """Share of the disk that is in use; the reserve counts as free."""
        if not self.total_bytes:
            return 0.0
        return 1 - (self.free_bytes + self.reserve_bytes) / self.total_bytes


class DiskStep(enum.Enum):
    """The next step. STOP: take no records, remove the reserve.

    RESUME: make the reserve again, then take records.
    """

    NONE = "none"
    STOP = "stop"
    RESUME = "resume"


def wanted_reserve(configured_bytes: int, total_bytes: int) -> int:
    """The size that the reserve should have; less than configured on a small disk."""
    return min(configured_bytes, total_bytes // RESERVE_SHARE_MAX)


def disk_step(room: DiskRoom, reserve_bytes: int, *, is_full: bool) -> DiskStep:
    """Decide on a measurement. reserve_bytes: intended size of the reserve.

    Records stop when less than half a reserve is free besides it, and resume when a whole one is;
    in between nothing changes.
    """
    stop_below = max(reserve_bytes // 2, FLOOR_BYTES)
    free = room.free_bytes + room.reserve_bytes - reserve_bytes
    if not is_full:
        return DiskStep.STOP if free < stop_below else DiskStep.NONE
    return DiskStep.RESUME if free >= 2 * stop_below else DiskStep.NONE


def room_to_compact(room: DiskRoom) -> int:
    """Bytes that compaction may take of a full disk.

    As many are left for deletes and their checkpoints.
    """
    return room.free_bytes // 2
