"""The nodes' disks: one sparse file, mounted as a file system of its own.

Images and volumes are gigabytes in many small files. On the machine's file system every fsync of a container runtime
reaches the real disk and stalls who else uses it, and to remove them takes minutes where freed blocks are discarded; one
file is removed at once. Nobody wants a lab back after a power cut of the host: no journal, no barriers.
"""

import os
import shutil

from e2e.lab.commands import run, succeeds, wait_until
from e2e.lab.settings import Settings

GIB = 1 << 30
SIZE_MAX = 64 * GIB
# Of the free space, in percent: the file must be full before the machine's disk is, so that pods see it coming.
SHARE_MAX = 80
UNMOUNT_WITHIN_S = 20.0
FORMAT = ("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1")
OPTIONS = "loop,noatime,barrier=0"


def size_for(free: int) -> int:
    """Bytes of the file, from the bytes that are free where it lies."""
    return min(SIZE_MAX, free * SHARE_MAX // 100)


def mount_disks(settings: Settings) -> bool:
    """The folder of the nodes' disks is there, with what it held before; False if only as a plain folder.

    That is where the machine has no loop devices: everything works, but slower.
    """
    settings.disks.mkdir(parents=True, exist_ok=True)
    if os.path.ismount(settings.disks):
        return True
    file = settings.run / "disks.ext4"
    if not file.exists():
        fresh = file.with_suffix(".new")
        with fresh.open("wb") as sparse:
            sparse.truncate(size_for(shutil.disk_usage(settings.run).free))
        run(*FORMAT, fresh)
        fresh.rename(file)
    return succeeds("mount", "-o", OPTIONS, file, settings.disks)


def unmount_disks(settings: Settings) -> None:
    """The disks are not mounted any more; no process of the lab is left that uses them."""

    def is_free() -> bool:
        # a mount namespace goes a little after its last process
        return not os.path.ismount(settings.disks) or succeeds("umount", settings.disks)

    wait_until("the nodes' disks to be free", is_free, UNMOUNT_WITHIN_S)
