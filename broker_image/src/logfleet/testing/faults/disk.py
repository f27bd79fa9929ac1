"""A disk that is full, or slow, for as long as a test wants."""

import errno
import os
import time
from typing import Final

from logfleet.io.files import Entry, File, Files, Lock, Space, Status, Writable

LOG: Final = ".log"
"""The end of the names of files with records."""


class FaultyFiles:
    """The files of `inner`, until one of these is set.

    is_full: nothing more can be written. slow_s: each write of records, and each time that one
    waits for the disk, takes so many seconds longer. A write takes place on the broker's loop, so
    everything waits for it, as for a disk that stalls.
    """

    def __init__(self, inner: Files) -> None:
        self.is_full = False
        self.slow_s = 0.0
        self._inner = inner

    def open(self, path: str, *, create: bool = False) -> File:
        return _FaultyFile(self._inner.open(path, create=create), self)

    def status(self, path: str) -> Status:
        return self._inner.status(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._inner.set_modified(path, modified_ms)

    def list_directory(self, path: str) -> list[Entry]:
        return self._inner.list_directory(path)

    def make_directory(self, path: str) -> None:
        self.check_room(path)
        self._inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._inner.remove_directory(path)

    def remove(self, path: str) -> None:
        self._inner.remove(path)

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)

    def fsync_directory(self, path: str) -> None:
        self._inner.fsync_directory(path)

    def space(self, path: str) -> Space:
        space = self._inner.space(path)
        return Space(space.total_bytes, 0) if self.is_full else space

    def file_identity(self, path: str) -> str | None:
        return self._inner.file_identity(path)

    def lock(self, path: str, holder: str) -> Lock:
        return self._inner.lock(path, holder)

    def check_room(self, path: str) -> None:
        """Raises OSError if the disk is full."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def wait(self, path: str) -> None:
        """Take as long as the disk does now."""
        if self.slow_s and path.endswith(LOG):
            time.sleep(self.slow_s)


class _FaultyFile:
    """A file of a disk that may be full or slow."""

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, file: File, disk: FaultyFiles) -> None:
        self.path = file.path
        self._file = file
        self._disk = disk

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._file.size()

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(length, position)

    def pwrite(self, data: Writable, position: int) -> None:
        self._disk.check_room(self.path)
        self._disk.wait(self.path)
        self._file.pwrite(data, position)

    def truncate(self, length: int) -> None:
        self._file.truncate(length)

    def fsync(self) -> None:
        self._disk.wait(self.path)
        self._file.fsync()
