"""Files as the log needs them: positioned reads and writes, explicit durability, locks.

Everything the broker keeps on disk goes through `Files`, so that a simulated disk can replace it:
its guarantees are those of a POSIX file system. Data is durable after `fsync`, a name after
`fsync_directory` of its directory. Rename is atomic. Paths are absolute or relative strings;
nothing here depends on what the files mean.

Every failure is an OSError with the file's path; releasing a lock does not fail. A file is closed
when nothing refers to it any more: a fetch that is being sent keeps its segment readable, even if
the segment is meanwhile dropped from the cache of open files, renamed or removed.
"""

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec
import structlog

from logfleet.io.file_identity import file_identity

log = structlog.get_logger(__name__)

Writable = bytes | bytearray | memoryview

_OUT_OF_SPACE: Final = {errno.ENOSPC, errno.EDQUOT}
_OUT_OF_DESCRIPTORS: Final = {errno.EMFILE, errno.ENFILE}

_FLOCK = struct.Struct("@hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""


class FileLocked(OSError):
    """Another process holds the lock. holder: what it wrote into the file, "" if nothing."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(errno.EAGAIN, f"locked by {holder or 'another process'}", path)
        self.holder = holder


class Entry(msgspec.Struct, frozen=True):
    """One name in a directory. is_directory: also true for a link to one."""

    name: str
    is_directory: bool


class Status(msgspec.Struct, frozen=True):
    """Status of a file. size: bytes; modified_ms: wall clock in ms of the last write."""

    size: int
    modified_ms: int


class Space(msgspec.Struct, frozen=True):
    """Space of a file system, in bytes. usable_bytes: what this process may still write."""

    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """An open file, for reading and writing; closed when nothing refers to it."""

    path: str

    def fileno(self) -> int:
        """Descriptor for sendfile; valid while this object is referred to."""
        ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Writable, position: int) -> None:
        """Write all of `data`; after an OSError any part of it may be written."""
        ...

    def truncate(self, length: int) -> None: ...

    def fsync(self) -> None:
        """Make the file's data durable. After an OSError no earlier write is certain."""
        ...


class Lock(Protocol):
    """A held lock; it ends with the process at the latest."""

    def release(self) -> None:
        """Release the lock; never raises, even on a failed disk (Kafka: CoreUtils.swallow)."""
        ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def status(self, path: str) -> Status: ...
    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write; wall clock in ms."""
        ...

    def list_directory(self, path: str) -> list[Entry]: ...
    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; it may exist."""
        ...

    def remove_directory(self, path: str) -> None: ...
    def remove(self, path: str) -> None:
        """Remove a file or a link. Raises IsADirectoryError."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file (replacing the target) or a directory, atomically."""
        ...

    def fsync_directory(self, path: str) -> None: ...
    def space(self, path: str) -> Space:
        """Space on the file system that holds `path`."""
        ...

    def file_identity(self, path: str) -> str | None:
        """The file's identity within this mount and boot; None if mounts have no identity."""
        ...

    def lock(self, path: str, holder: str) -> Lock:
        """Lock the file at `path`, created if absent, and write `holder` into it if there is room.

        Raises FileLocked.
        """
        ...


class PosixFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, *, create: bool = False, writable: bool = True) -> None:
        self.path = path
        self._fd = -1
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        flags |= os.O_CREAT if create else 0
        self._fd = os.open(path, flags, 0o644)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        with self._named():
            return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        try:
            data = os.pread(self._fd, length, position)
            while len(data) < length:  # the read was interrupted, or reached the end of the file
                more = os.pread(self._fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            error.filename = self.path
            raise
        return data

    def pwrite(self, data: Writable, position: int) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                view = memoryview(data)
                while written < len(view):
                    written += os.pwrite(self._fd, view[written:], position + written)
        except OSError as error:
            error.filename = self.path
            raise

    def truncate(self, length: int) -> None:
        with self._named():
            os.ftruncate(self._fd, length)

    def fsync(self) -> None:
        with self._named():
            os.fsync(self._fd)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the path to errors of calls on the descriptor, which lack it."""
        try:
            yield
        except OSError as error:
            error.filename = self.path
            raise


class _OpenFileLock:
    """A lock on an open file description.

    It excludes a Java broker's FileLock on the same file (a lock of a process) as well as a second
    lock in this process.
    """

    def __init__(self, path: str, holder: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o644)
        try:
            self._take()
            self._name_holder(holder)
        except OSError as error:
            os.close(self._fd)
            error.filename = path
            raise

    def _take(self) -> None:
        whole_file = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, whole_file)
        except (BlockingIOError, PermissionError):
            held_by = os.pread(self._fd, 200, 0).decode("utf-8", "replace").strip()
            raise FileLocked(self._path, held_by) from None

    def _name_holder(self, holder: str) -> None:
        """Write the holder for people.

        A disk without room for it has not failed; the lock holds anyway (Kafka's FileLock writes
        nothing).
        """
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, holder.encode(), 0)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            log.warning("lock_holder_not_written", path=self._path, error=str(error))

    def release(self) -> None:
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            try:
                os.ftruncate(fd, 0)
            finally:
                os.close(fd)  # Linux releases descriptor and lock whatever it returns
        except OSError as error:
            log.warning("lock_released_with_error", path=self._path, error=str(error))


class PosixFiles:
    """The operating system's file system (Linux)."""

    def open(self, path: str, *, create: bool = False) -> File:
        return PosixFile(path, create=create)

    def status(self, path: str) -> Status:
        found = os.stat(path)
        return Status(found.st_size, found.st_mtime_ns // 1_000_000)

    def set_modified(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def list_directory(self, path: str) -> list[Entry]:
        with os.scandir(path) as entries:
            return [Entry(entry.name, entry.is_dir()) for entry in entries]

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def remove(self, path: str) -> None:
        os.remove(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def fsync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(fd)

    def space(self, path: str) -> Space:
        volume = os.statvfs(path)
        return Space(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)

    def file_identity(self, path: str) -> str | None:
        return file_identity(path)

    def lock(self, path: str, holder: str) -> Lock:
        return _OpenFileLock(path, holder)


def is_out_of_space(error: OSError) -> bool:
    return error.errno in _OUT_OF_SPACE


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether the process, or the system, has reached its limit of open files.

    That says nothing about the disk.
    """
    return error.errno in _OUT_OF_DESCRIPTORS


def is_shortage(error: OSError) -> bool:
    """Whether a retry may work once there is room or a descriptor: nothing is broken."""
    return is_out_of_space(error) or is_out_of_descriptors(error)


def allocate(file: File, length: int) -> None:
    """Reserve `length` bytes of the disk for a file of the operating system, without writing them.

    Raises OSError.
    """
    try:
        os.posix_fallocate(file.fileno(), 0, length)
    except OSError as error:
        error.filename = file.path
        raise


def process_name() -> str:
    """A name of this process, for people who find a locked directory."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def read_file(files: Files, path: str) -> bytes | None:
    """The content of a small file, or None if it does not exist."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    return file.pread(file.size(), 0)


def write_file(files: Files, path: str, data: Writable, *, durable: bool, writer: str = "") -> None:
    """Replace the file at `path` in one step: readers see the old bytes or the new ones.

    durable: after a power loss too. Blocks for as long as the disk takes, so run it in a thread.
    writer: a name that distinguishes concurrent writers of the same path.
    """
    temporary = f"{path}{writer}.tmp"
    file = files.open(temporary, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    if durable:
        file.fsync()
    files.rename(temporary, path)
    if durable:
        files.fsync_directory(path.rpartition("/")[0] or ".")


def make_durable_directory(files: Files, path: str) -> None:
    """Create the directory and its parents if absent.

    New ones survive a power loss (Kafka: createAndValidateLogDirs).
    """
    path = os.path.abspath(path)
    try:
        files.list_directory(path)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        make_durable_directory(files, parent)
        files.make_directory(path)
        files.fsync_directory(parent)


def remove_tree(files: Files, path: str) -> None:
    """Remove a file, or a directory and everything in it; what is already gone is no error.

    Of a link only the link itself, as Kafka does (Utils.delete): its target is not ours.
    """
    try:
        files.remove(path)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        for entry in files.list_directory(path):
            remove_tree(files, f"{path}/{entry.name}")
        files.remove_directory(path)


def remove_if_there(files: Files, path: str) -> None:
    """Remove a file; it is no error if it does not exist."""
    try:
        files.remove(path)
    except FileNotFoundError:
        return
