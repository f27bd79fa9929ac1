"""Names a file within one mount of its file system, so that a copy or an older state of it is not mistaken for it.

A process that was killed lost nothing of what it wrote if the same file system has stayed mounted,
as the page cache is still there. That does not hold of a copy, of a volume that was restored from a
snapshot, or of a disk that was detached and attached again, though the machine did not restart.

sysfs shows a directory for each mounted ext4 (`/sys/fs/ext4/sda1`) and XFS file system. The kernel
makes it at the mount and removes it at the unmount, and gives each one an inode number that it does
not use again before the next boot (kernfs, Linux 4.14). No other file system has such a number: for
NFS, overlayfs, btrfs, ZFS, tmpfs and others there is no name.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

SYSFS = Path("/sys")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
FILE_SYSTEMS: Final = ("ext4", "xfs")
_FS_IOC_GETVERSION: Final = 0x80087601
"""Of linux/fs.h; despite its size the kernel fills 4 bytes."""
_GENERATION: Final = struct.Struct("I4x")


def life_of(path: str) -> str | None:
    """Equal to what an earlier call returned only if it is the same file in the same mount and boot.

    None if the kernel does not say which mount this is: then nothing may be concluded. Raises
    OSError if the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        mount = _mount(found.st_dev)
        generation = _generation(descriptor)
    finally:
        os.close(descriptor)
    if mount is None or generation is None:
        return None
    boot = BOOT_ID.read_text().strip()
    return f"{boot} {mount} {found.st_dev}:{found.st_ino}.{generation}"


def _mount(device: int) -> str | None:
    """Of the file system that is mounted from this block device."""
    number = f"{os.major(device)}:{os.minor(device)}"
    name = (SYSFS / "dev/block" / number).resolve().name
    for kind in FILE_SYSTEMS:
        try:
            node = (SYSFS / "fs" / kind / name).stat()
        except OSError:
            continue
        return f"{kind}/{name}:{node.st_ino}"
    return None


def _generation(descriptor: int) -> int | None:
    """It tells apart files that had the same inode number one after the other.

    None if the file system keeps none.
    """
    try:
        answer = fcntl.ioctl(descriptor, _FS_IOC_GETVERSION, bytes(_GENERATION.size))
    except OSError:
        return None
    return int(_GENERATION.unpack(answer)[0])
