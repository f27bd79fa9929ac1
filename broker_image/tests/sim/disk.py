"""A disk in memory that forgets at a power loss what was not synced, as real ones do.

A file is what the process sees, plus the writes since its last fsync. At a power loss each of these is there, lost, or there in part
(a prefix, or any of its 512-byte sectors), whatever the others are; the file may have grown without its data, which then is zeros. Names
are journalled: of the creations, renames and removals that no fsync of their directory covers, some first ones survive.
"""

import errno
import random
from collections.abc import Callable

from logfleet.io.files import Entry, File, FileLocked, Lock, Space, Status, Writable

SECTOR_BYTES = 512


class PowerLoss(BaseException):
    """The machine stops here; no handler of the program's may run."""


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []  # (position, data), or (length, None)

    def apply(self, data: bytearray, position: int, written: bytes | None) -> None:
        if written is None:
            if position < len(data):
                del data[position:]
            else:
                data.extend(bytes(position - len(data)))
            return
        if position > len(data):
            data.extend(bytes(position - len(data)))
        data[position : position + len(written)] = written

    def lose_power(self, dice: random.Random) -> None:
        data = bytearray(self.durable)
        for position, written in self.pending:
            fate = dice.choice(["kept", "kept", "lost", "prefix", "sectors"])
            if written is None or fate == "kept":
                if fate != "lost":
                    self.apply(data, position, written)
            elif fate == "prefix":
                self.apply(data, position, written[: dice.randrange(len(written) + 1)])
            elif fate == "sectors":
                for start in range(0, len(written), SECTOR_BYTES):
                    if dice.random() < 0.5:
                        sector = written[start : start + SECTOR_BYTES]
                        self.apply(data, position + start, sector)
            if written is not None and dice.random() < 0.2:  # the size is there, the data is not
                missing = position + len(written) - len(data)
                data.extend(bytes(max(missing, 0)))
        self.data, self.durable, self.pending = data, bytes(data), []


class SimFile:
    def __init__(self, disk: "SimDisk", path: str, inode: Inode) -> None:
        self.path = path
        self._disk, self._inode = disk, inode

    def fileno(self) -> int:
        raise NotImplementedError("there is no descriptor behind a simulated file")

    def size(self) -> int:
        return len(self._inode.data)

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self._inode.data[position : position + length])

    def pwrite(self, data: Writable, position: int) -> None:
        self._change(position, bytes(data))

    def truncate(self, length: int) -> None:
        self._change(length, None)

    def _change(self, position: int, written: bytes | None) -> None:
        inode = self._inode
        inode.pending.append((position, written))
        inode.apply(inode.data, position, written)
        self._disk.step()

    def fsync(self) -> None:
        self._disk.step()
        self._inode.durable, self._inode.pending = bytes(self._inode.data), []


class SimLock:
    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimDisk:
    """Implements `Files`. fuse: after so many changes and syncs the power fails, None: never by itself."""

    def __init__(self, seed: int) -> None:
        self.fuse: int | None = None
        self.locks: set[str] = set()
        self._dice = random.Random(seed)
        self._names: dict[str, Inode] = {}
        self._directories: set[str] = set()
        # what the names would be without the changes that are not durable, and those changes
        self._durable_names: dict[str, Inode] = {}
        self._journal: list[tuple[str, Callable[[dict[str, Inode]], object]]] = []

    def step(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                raise PowerLoss

    def lose_power(self) -> None:
        """The next thing that happens is a start of the machine."""
        for _, change in self._journal[: self._dice.randrange(len(self._journal) + 1)]:
            change(self._durable_names)
        self._journal = []
        for inode in {id(inode): inode for inode in self._durable_names.values()}.values():
            inode.lose_power(self._dice)
        self._names = dict(self._durable_names)
        self.locks.clear()
        self.fuse = None

    def _rename(self, directory: str, change: Callable[[dict[str, Inode]], object]) -> None:
        change(self._names)
        self._journal.append((directory, change))
        self.step()

    def open(self, path: str, *, create: bool = False) -> File:
        if path not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            inode = Inode()
            self._rename(_parent(path), lambda names: names.__setitem__(path, inode))
        return SimFile(self, path, self._names[path])

    def status(self, path: str) -> Status:
        return Status(self.open(path).size(), 0)

    def set_modified(self, path: str, modified_ms: int) -> None:  # noqa: ARG002  it keeps no times
        self.open(path)

    def list_directory(self, path: str) -> list[Entry]:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        files = [
            Entry(name.rpartition("/")[2], False) for name in self._names if _parent(name) == path
        ]
        inner = [
            Entry(name.rpartition("/")[2], True)
            for name in self._directories
            if _parent(name) == path
        ]
        return files + inner

    def make_directory(self, path: str) -> None:
        self._directories.add(path)

    def remove_directory(self, path: str) -> None:
        self._directories.discard(path)

    def remove(self, path: str) -> None:
        self.open(path)
        self._rename(_parent(path), lambda names: names.pop(path, None))

    def rename(self, source: str, target: str) -> None:
        self.open(source)

        def move(names: dict[str, Inode]) -> None:
            if source in names:
                names[target] = names.pop(source)

        self._rename(_parent(target), move)

    def fsync_directory(self, path: str) -> None:
        self.step()
        for directory, change in self._journal:
            if directory == path:
                change(self._durable_names)
        self._journal = [entry for entry in self._journal if entry[0] != path]

    def space(self, path: str) -> Space:  # noqa: ARG002  it is never full
        return Space(1 << 40, 1 << 40)

    def lock(self, path: str, holder: str) -> Lock:
        if path in self.locks:
            raise FileLocked(path, holder)
        self.open(path, create=True)
        self.locks.add(path)
        return SimLock(self, path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
