"""When a log directory takes no more records because its disk is nearly full, and when it does again.

A full disk is not a failed one: what is there can be read, and what makes room (retention, deletes, their checkpoints) has to go on.
For these a reserve is kept, a file that holds space; it is given up when the rest is gone, and made again before records are taken.
"""

import enum
from typing import Final

import msgspec

RESERVE_SHARE_MAX: Final = 20
"""A reserve takes a 20th of its disk at most."""
FLOOR_BYTES: Final = 256 * 1024
"""The least free space at which records are taken, with however small a reserve."""


class Room(msgspec.Struct, frozen=True):
    """A disk as it is, in bytes. free_bytes: what may still be written, the reserve not counted. reserve_bytes: what that holds now."""

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
    """What is to be done. STOP: take no records, give up the reserve. RESUME: make the reserve anew, then take records."""

    NONE = "none"
    STOP = "stop"
    RESUME = "resume"


def wanted_reserve(configured_bytes: int, total_bytes: int) -> int:
    """How much the reserve shall hold; small disks keep less than is configured."""
    return min(configured_bytes, total_bytes // RESERVE_SHARE_MAX)


def disk_step(room: Room, reserve_bytes: int, *, is_full: bool) -> DiskStep:
    """What a look at the disk leads to. reserve_bytes: what the reserve shall hold.

    Records stop when less than half a reserve is free beside it, and go on when it and a whole one more are: in between nothing changes.
    """
    stop_below = max(reserve_bytes // 2, FLOOR_BYTES)
    free = room.free_bytes + room.reserve_bytes - reserve_bytes
    if not is_full:
        return DiskStep.STOP if free < stop_below else DiskStep.NONE
    return DiskStep.RESUME if free >= 2 * stop_below else DiskStep.NONE


def room_to_compact(room: Room) -> int:
    """Bytes that compaction may take of a full disk, as it makes room; as many are left for deletes and their checkpoints."""
    return room.free_bytes // 2
