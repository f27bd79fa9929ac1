"""Identifies a file within one mount of its file system: copies and older states differ.

A killed process has lost nothing of what it wrote if the file system has stayed mounted,
as the page cache is still there. That does not hold for a copy, for a volume restored from a
snapshot, or for a disk that was detached and attached again without a restart of the machine.

sysfs has a directory for each mounted ext4 (`/sys/fs/ext4/sda1`) and XFS file system. The kernel
creates it at the mount and removes it at the unmount; its inode number is not used again before the
next boot (kernfs, Linux 4.14). Other file systems (NFS, overlayfs, btrfs, ZFS, tmpfs ...) have no
such number, and their files no identity.
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
"""The ioctl for an inode's generation (linux/fs.h); the kernel fills only 4 bytes."""
_GENERATION: Final = struct.Struct("I4x")


def file_identity(path: str) -> str | None:
    """An identity that equals an earlier result only for the same file in the same mount and boot.

    None if the kernel does not show which mount this is: then nothing may be concluded. Raises
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
    """Identifies the mount of the file system on this block device."""
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
    """Distinguishes files that had the same inode number one after the other.

    None if the file system has no generations.
    """
    try:
        result = fcntl.ioctl(descriptor, _FS_IOC_GETVERSION, bytes(_GENERATION.size))
    except OSError:
        return None
    return int(_GENERATION.unpack(result)[0])
