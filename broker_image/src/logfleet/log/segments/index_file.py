"""One index of a segment: entries on disk, and the newest ones in memory until they are written.

Nothing is mapped into memory, and nothing is read before it is needed, so that a partition without
readers costs a few hundred bytes. Indexes may lag behind the log on disk: recovery rebuilds what is
missing.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Self, TypeVar, cast, overload

from logfleet.io.files import File, is_shortage
from logfleet.log.segments.index_entries import sound_length, unpack_entries
from logfleet.log.segments.open_files import OpenFiles

PENDING_BYTES_MAX = 4096
"""Entries in memory before they are written; at the usual density that is 2 MiB of log, or 32
MiB in large batches."""

BLOCK_BYTES = 4080
"""Bytes per read: whole entries of all kinds, within a page's size."""

Fields = TypeVar("Fields", bound=tuple[int, ...])


class IndexFile(Sequence[Fields], Generic[Fields]):
    """Entries of one index file, in order. entry: their format.

    written: how many entries the file has, -1 if that is not known yet. pending: packed entries
    behind these. is_durable: set by the owner after a sync; cleared by each change.
    """

    __slots__ = (
        "_block",
        "_block_start",
        "_entry",
        "_files",
        "_pending",
        "_written",
        "is_durable",
        "path",
    )

    def __init__(
        self,
        files: OpenFiles,
        path: str,
        entry: struct.Struct,
        *,
        written: int = -1,
        pending: bytes | bytearray = b"",
    ) -> None:
        self.path = path
        self._files = files
        self._entry = entry
        self._written = written  # entries on disk; -1: not determined yet
        self._pending = bytearray(pending)
        self._block = b""
        self.is_durable = written < 0
        self._block_start = 0  # number of the entry that the block begins with

    def __len__(self) -> int:
        return self._on_disk() + len(self._pending) // self._entry.size

    @overload
    def __getitem__(self, number: int) -> Fields: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Fields]: ...
    def __getitem__(self, number: int | slice) -> Fields | Sequence[Fields]:
        assert isinstance(number, int), "entries are read one by one"
        size = self._entry.size
        written = self._on_disk()
        if number < 0:
            number += len(self)
        if number >= written:
            if (number - written) * size >= len(self._pending):
                raise IndexError(number)
            return self._unpack(self._pending, (number - written) * size)
        at = (number - self._block_start) * size
        if not 0 <= at < len(self._block):
            self._read_block(number)
            at = (number - self._block_start) * size
        return self._unpack(self._block, at)

    def _unpack(self, data: bytes | bytearray, at: int) -> Fields:
        return cast("Fields", self._entry.unpack_from(data, at))

    def _read_block(self, number: int) -> None:
        """Cache the block that holds an entry on disk."""
        size, written = self._entry.size, self._on_disk()
        per_block = BLOCK_BYTES // size
        start = number - number % per_block
        self._block = self._file().pread(min(per_block, written - start) * size, start * size)
        self._block_start = start  # last: a failed read leaves the old block in place

    def floor(self, key: int, field: int = 0) -> int:
        """Number of the last entry whose `field` is <= `key`, or -1.

        It ascends in the entries, as both fields of the sparse indexes do.

        Needs no read if the cached block is the right one, as it is for a reader that goes on.
        """
        written = self._on_disk()
        if self._pending and self._unpack(self._pending, 0)[field] <= key:
            return written + self._floor_in(self._pending, key, field)
        if not self._is_in_block(key, field):
            per_block = BLOCK_BYTES // self._entry.size
            blocks = range(0, written, per_block)
            block = bisect_right(blocks, key, key=lambda number: self._read_entry(number)[field])
            if block == 0:
                return -1
            self._read_block(blocks[block - 1])
        return self._block_start + self._floor_in(self._block, key, field)

    def _is_in_block(self, key: int, field: int) -> bool:
        """Whether the last entry up to `key` is certainly in the cached block."""
        block = self._block
        if not block or self._unpack(block, 0)[field] > key:
            return False
        size = self._entry.size
        is_last = self._block_start + len(block) // size == self._on_disk()
        return is_last or self._unpack(block, len(block) - size)[field] >= key

    def _floor_in(self, data: bytes | bytearray, key: int, field: int) -> int:
        """Number within `data` of the last entry up to `key`; the first entry is one."""
        size, unpack = self._entry.size, self._entry.unpack_from
        numbers = range(len(data) // size)
        return bisect_right(numbers, key, key=lambda number: unpack(data, number * size)[field]) - 1

    def _read_entry(self, number: int) -> Fields:
        size = self._entry.size
        return self._unpack(self._file().pread(size, number * size), 0)

    def append(self, first: int, second: int) -> None:
        """Add an entry. It reaches the disk with `write`, or once enough entries are pending."""
        self.is_durable = False
        self._pending += self._entry.pack(first, second)
        if len(self._pending) >= PENDING_BYTES_MAX:
            self._write_many()

    def _write_many(self) -> None:
        try:
            self.write()
        except OSError as error:
            # the batch of this entry is written; the entries wait until there is room, or a
            # descriptor
            if not is_shortage(error):
                raise

    def write(self) -> None:
        """Write all entries to the file, which is created if absent.

        Not durable before an fsync.
        """
        written = self._on_disk()
        file = self._file(create=True)
        if not written:
            file.truncate(0)  # entries that `replace` dropped
        if self._pending:
            file.pwrite(self._pending, written * self._entry.size)
            self._written = written + len(self._pending) // self._entry.size
            self._pending.clear()
            self._block = b""

    def replace(self, entries: Iterable[Fields]) -> None:
        """Hold these entries and no others; the next `write` replaces those on disk."""
        self._pending = bytearray().join(self._entry.pack(*entry) for entry in entries)
        self._written, self._block, self.is_durable = 0, b"", False

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        written = self._on_disk()
        self.is_durable = False
        if count >= written:
            del self._pending[(count - written) * self._entry.size :]
            return
        self._pending.clear()
        self._block = b""
        self._file().truncate(count * self._entry.size)
        self._written = count

    def keep_sound(self, *, first_max: int, second_min: int, second_max: int) -> None:
        """Cut off entries that cannot be true after a power loss; see `sound_length`."""

        def count(entries: Iterable[tuple[int, int]]) -> int:
            return sound_length(
                entries, first_max=first_max, second_min=second_min, second_max=second_max
            )

        self._keep_leading(count)

    def _keep_leading(self, count: Callable[[Iterable[Any]], int]) -> None:
        written = self._on_disk()
        if written == 0:
            return
        file = self._file()
        self.truncate(count(unpack_entries(self._entry, file.pread(written * self._entry.size, 0))))
        if file.size() != self._written * self._entry.size:  # a torn entry
            file.truncate(self._written * self._entry.size)

    def file(self) -> File | None:
        """The open file, for an fsync; call `write` before. None: a kind that has none yet."""
        return self._file()

    def copy(self, files: OpenFiles) -> Self:
        """A copy of the present index that reads through other open files."""
        return type(self)(
            files, self.path, self._entry, written=self._written, pending=self._pending
        )

    def moved_to(self, path: str) -> None:
        """Use the new path of the index file, which was renamed."""
        self._files.drop(self.path)
        self.path = path

    def _on_disk(self) -> int:
        if self._written < 0:
            try:
                self._written = self._files.files.status(self.path).size // self._entry.size
            except FileNotFoundError:
                self._written = 0
        return self._written

    def _file(self, *, create: bool = False) -> File:
        return self._files.get(self.path, create=create)
