"""A disk in memory that forgets at a power loss what was not synced, as real ones do.

A file is what the process sees, plus the writes since its last fsync. At a power loss each of these is there, lost, or there in part
(a prefix, or any of its 512-byte sectors), whatever the others are; the file may have grown without its data, which then is zeros. Names
are journalled: of the creations, renames and removals that no fsync of their directory covers, some first ones survive.

Directories may be renamed: durable with the one they are in, and with what was done in them before. What lies below different first
directories ("/a", "/b") is on different file systems: of each some first changes survive, whatever the others do.

Threads may use it, as those do that open logs at a start: one operation is done after the other.

It can fail, too: `fail_after` lets operations end with an OSError. A write that fails has written a part. What a failed fsync was to
bring to the disk is lost at the next power loss, though later ones succeed, as on Linux.
"""

import errno
import random
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from logfleet.io.files import Entry, File, FileLocked, Lock, Space, Status, Writable

SECTOR_BYTES = 512
WRITE, CREATE, RENAME, REMOVE, TRUNCATE, FSYNC, FSYNC_DIRECTORY, READ = (
    "write", "create", "rename", "remove", "truncate", "fsync", "fsync_directory", "read",
)  # fmt: skip
CHANGES = frozenset({WRITE, CREATE, RENAME, REMOVE, TRUNCATE, FSYNC, FSYNC_DIRECTORY})
NEEDS_ROOM = frozenset({WRITE, CREATE})


class PowerLoss(BaseException):
    """The machine stops here; no handler of the program's may run."""


Change = Callable[[dict[str, "Inode"]], object]
P = ParamSpec("P")
T = TypeVar("T")


class _Locked(Protocol):
    turn: Any


L = TypeVar("L", bound=_Locked)


def in_turn(
    operation: Callable[Concatenate[L, P], T],
) -> Callable[Concatenate[L, P], T]:
    """An operation of the disk or of a file on it: no other thread's comes between."""

    @wraps(operation)
    def done(self: L, /, *arguments: P.args, **named: P.kwargs) -> T:
        with self.turn:
            return operation(self, *arguments, **named)

    return cast("Callable[Concatenate[L, P], T]", done)


class Inode:
    """number: of no other file that the disk ever had."""

    def __init__(self, number: int) -> None:
        self.number = number
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
        self.turn = disk.turn
        self._disk, self._inode = disk, inode

    def fileno(self) -> int:
        raise NotImplementedError("there is no descriptor behind a simulated file")

    @in_turn
    def size(self) -> int:
        return len(self._inode.data)

    @in_turn
    def pread(self, length: int, position: int) -> bytes:
        self._disk.may_fail(READ, self.path)
        return bytes(self._inode.data[position : position + length])

    @in_turn
    def pwrite(self, data: Writable, position: int) -> None:
        whole = bytes(data)
        try:
            self._disk.may_fail(WRITE, self.path)
        except OSError:
            self._change(position, whole[: self._disk.part_of(len(whole))])
            raise
        self._change(position, whole)

    @in_turn
    def truncate(self, length: int) -> None:
        self._disk.may_fail(TRUNCATE, self.path)
        self._change(length, None)

    def _change(self, position: int, written: bytes | None) -> None:
        inode = self._inode
        inode.pending.append((position, written))
        inode.apply(inode.data, position, written)
        self._disk.step()

    @in_turn
    def fsync(self) -> None:
        self._disk.step()
        inode = self._inode
        try:
            self._disk.may_fail(FSYNC, self.path)
        except OSError:
            inode.pending = []  # clean from now on, and not on the disk
            raise
        durable = bytearray(inode.durable)
        for position, written in inode.pending:
            inode.apply(durable, position, written)
        inode.durable, inode.pending = bytes(durable), []


class SimLock:
    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimDisk:
    """Implements `Files`. fuse: after so many changes and syncs the power fails, None: never by itself.

    mounts: how often it was mounted. tells_mounts: whether `file_identity` names anything.
    """

    def __init__(self, seed: int) -> None:
        self.turn = RLock()
        self.fuse: int | None = None
        self.locks: set[str] = set()
        self.boots = self.mounts = 1
        self.tells_mounts = True
        self._inodes = 0
        self.faults = 0  # operations that have failed
        self._fault: tuple[int, frozenset[str], str] = (0, frozenset(), "/")
        self._fault_in = self._faults_left = 0
        self._dice = random.Random(seed)
        self._names: dict[str, Inode] = {}
        self._directories = {"/"}
        # what the names would be without the changes that are not durable, and those changes
        self._durable_names: dict[str, Inode] = {}
        self._journal: list[tuple[str, Change]] = []
        self._renamed: list[tuple[str, str]] = []  # directories, since the last start

    def step(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                raise PowerLoss

    @in_turn
    def fail_after(
        self,
        operations: int,
        error: int,
        kinds: frozenset[str] = CHANGES,
        *,
        times: int = 1,
        below: str = "/",
    ) -> None:
        """After so many operations of these kinds on paths that begin with `below`, the next `times` of them fail with that errno; 0: none fails any more."""
        self._fault, self._fault_in, self._faults_left = (error, kinds, below), operations, times

    def may_fail(self, kind: str, path: str) -> None:
        error, kinds, below = self._fault
        if not self._faults_left or kind not in kinds or not path.startswith(below):
            return
        if self._fault_in:
            self._fault_in -= 1
            return
        self._faults_left -= 1
        self.faults += 1
        raise OSError(error, f"{kind} failed", path)

    def part_of(self, length: int) -> int:
        """How much of a write that fails is there."""
        return self._dice.randrange(length) if length else 0

    @in_turn
    def lose_power(self) -> None:
        """The next thing that happens is a start of the machine."""
        systems: dict[str, list[Change]] = {
            each.split("/")[1]: [] for each in sorted(self._directories - {"/"})
        }
        for directory, change in self._journal:
            systems[directory.split("/")[1]].append(change)
        for changes in systems.values():
            for change in changes[: self._dice.randrange(len(changes) + 1)]:
                change(self._durable_names)
        self._journal = []
        for inode in {id(inode): inode for inode in self._durable_names.values()}.values():
            inode.lose_power(self._dice)
        self._names = dict(self._durable_names)
        for directories in self._renamed:  # a directory has the name under which its files are
            in_use = {_parent(name) for name in self._names}
            self._directories -= {each for each in directories if each not in in_use}
        self._directories |= {_parent(name) for name in self._names}
        self._renamed = []
        self.boots += 1
        self.locks.clear()
        self.fuse = None

    def _rename(self, directory: str, change: Callable[[dict[str, Inode]], object]) -> None:
        change(self._names)
        self._journal.append((directory, change))
        self.step()

    @in_turn
    def open(self, path: str, *, create: bool = False) -> File:
        if path not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            self.may_fail(CREATE, path)
            inode = self._new_inode()
            self._rename(_parent(path), lambda names: names.__setitem__(path, inode))
        return SimFile(self, path, self._names[path])

    @in_turn
    def status(self, path: str) -> Status:
        return Status(self.open(path).size(), 0)

    def set_modified(self, path: str, modified_ms: int) -> None:  # noqa: ARG002  it keeps no times
        self.open(path)

    @in_turn
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

    @in_turn
    def make_directory(self, path: str) -> None:
        self._directories.add(path)

    @in_turn
    def remove_directory(self, path: str) -> None:
        self._directories.discard(path)

    @in_turn
    def remove(self, path: str) -> None:
        if path in self._directories:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        self.open(path)
        self.may_fail(REMOVE, path)
        self._rename(_parent(path), lambda names: names.pop(path, None))

    @in_turn
    def rename(self, source: str, target: str) -> None:
        if source in self._directories:
            self._rename_directory(source, target)
            return
        self.open(source)
        self.may_fail(RENAME, source)

        def move(names: dict[str, Inode]) -> None:
            if source in names:
                names[target] = names.pop(source)

        self._rename(_parent(target), move)

    def _rename_directory(self, source: str, target: str) -> None:
        assert target not in self._directories, f"{target} is there"
        self.may_fail(RENAME, source)
        inside = [change for directory, change in self._journal if directory == source]
        self._journal = [entry for entry in self._journal if entry[0] != source]

        def move(names: dict[str, Inode]) -> None:
            if names is self._durable_names:
                for change in inside:
                    change(names)
            for name in [name for name in names if _parent(name) == source]:
                names[target + name.removeprefix(source)] = names.pop(name)

        self._directories = (self._directories - {source}) | {target}
        self._renamed.append((source, target))
        self._rename(_parent(target), move)

    @in_turn
    def fsync_directory(self, path: str) -> None:
        self.step()
        self.may_fail(FSYNC_DIRECTORY, path)
        for directory, change in self._journal:
            if directory == path:
                change(self._durable_names)
        self._journal = [entry for entry in self._journal if entry[0] != path]

    def space(self, path: str) -> Space:  # noqa: ARG002  it is never full
        return Space(1 << 40, 1 << 40)

    @in_turn
    def file_identity(self, path: str) -> str | None:
        self.open(path)
        if not self.tells_mounts:
            return None
        return f"boot {self.boots} mount {self.mounts} inode {self._names[path].number}"

    @in_turn
    def copy_directory(self, source: str, target: str) -> None:
        """As `cp -a` and `sync` do: the files of the copy are other ones."""
        for name in [name for name in self._directories if f"{name}/".startswith(f"{source}/")]:
            self._directories.add(target + name.removeprefix(source))
        for name in [name for name in self._names if name.startswith(f"{source}/")]:
            copy = target + name.removeprefix(source)
            inode = self._new_inode()
            inode.data[:] = inode.durable = bytes(self._names[name].data)
            self._names[copy] = self._durable_names[copy] = inode

    @in_turn
    def replace_directory(self, source: str, target: str) -> None:
        """As `rm -r target; mv source target` do, and `sync`."""
        for names in (self._names, self._durable_names):
            for name in [name for name in names if name.startswith(f"{target}/")]:
                del names[name]
            for name in [name for name in names if name.startswith(f"{source}/")]:
                names[target + name.removeprefix(source)] = names.pop(name)
        self._journal = [each for each in self._journal if not each[0].startswith(target)]
        moved = {name for name in self._directories if f"{name}/".startswith(f"{source}/")}
        old = {name for name in self._directories if name.startswith(f"{target}/")}
        self._directories -= moved | old
        self._directories |= {target + name.removeprefix(source) for name in moved}

    def _new_inode(self) -> Inode:
        self._inodes += 1
        return Inode(self._inodes)

    @in_turn
    def lock(self, path: str, holder: str) -> Lock:
        if path in self.locks:
            raise FileLocked(path, holder)
        self.open(path, create=True)
        self.locks.add(path)
        return SimLock(self, path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
