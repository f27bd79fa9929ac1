"""The `.txnindex` of a segment: the transactions that markers in it have aborted (`log.aborted`).

Its entries follow from the state of the producers before the segment as well as from its batches.
So the log adds them, at an append and when it replays a segment, and the index drops only what is
not true: a reader to whom one entry is missing would take aborted records for committed ones.
"""

import struct
from collections.abc import Iterator
from typing import Final

from logfleet.io.files import File
from logfleet.log.aborted import (
    ABORTED_ENTRY,
    LAST_FIELD,
    AbortedEntry,
    Fields,
    overlapping,
    sound_count,
)
from logfleet.log.segments.index_file import BLOCK_BYTES, PENDING_BYTES_MAX, IndexFile
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.batch import BatchHeader
from logfleet.types import Position

_EMPTY: Final = 0
_UNKNOWN: Final = -1


class TransactionIndex(IndexFile[Fields]):
    """Its file is made with its first entry: without a file the segment has no aborted ones."""

    __slots__ = ()

    @classmethod
    def open(cls, files: OpenFiles, path: str, *, is_new: bool) -> "TransactionIndex":
        """The index of a segment. is_new: there is no file yet."""
        index = cls(files, path, ABORTED_ENTRY, written=_EMPTY if is_new else _UNKNOWN)
        index.is_durable = True
        return index

    def set_missing(self) -> None:
        """Record that there is no file, so that nobody has to ask for it."""
        self._written = _EMPTY

    @property
    def is_missing(self) -> bool:
        """Whether there certainly is no entry. It is false for a file that nobody has read."""
        return self._written == _EMPTY and not self._pending

    def add_entry(self, entry: AbortedEntry) -> None:
        """Add the next aborted transaction.

        One that is there already, as replay may find, is ignored. After an OSError it is in memory.
        """
        if len(self) and entry.last_offset <= self[-1][LAST_FIELD]:
            return
        self.is_durable = False
        self._pending += entry.pack()
        if len(self._pending) >= PENDING_BYTES_MAX:
            self._write_many()

    def overlapping(self, start: int, end: int) -> tuple[list[AbortedEntry], bool]:
        """The aborted transactions with records in [start, end); see `log.aborted.overlapping`."""
        try:
            return self._overlapping(start, end)
        except struct.error:
            # A truncation has cut the file, in its thread. What is left lies below the log's end.
            self._written, self._block = _UNKNOWN, b""
            return self._overlapping(start, end)

    def _overlapping(self, start: int, end: int) -> tuple[list[AbortedEntry], bool]:
        if not len(self):
            return [], False
        return overlapping(self._entries_from(self.floor(start - 1, LAST_FIELD) + 1), start, end)

    def _entries_from(self, number: int) -> Iterator[Fields]:
        """The entries from this one on: there may be many behind a transaction that was long."""
        size, written = ABORTED_ENTRY.size, self._on_disk()
        while number < written:
            count = min(BLOCK_BYTES // size, written - number)
            block = self._file().pread(count * size, number * size)
            yield from ABORTED_ENTRY.iter_unpack(block)
            number += count
        yield from ABORTED_ENTRY.iter_unpack(bytes(self._pending)[(number - written) * size :])

    def cut(self, end_offset: int) -> None:
        """Drop the transactions whose marker is at or behind `end_offset`."""
        count = self.floor(end_offset - 1, LAST_FIELD) + 1
        if count < len(self):
            self.truncate(count)

    def write_durably(self) -> None:
        """Write and sync the file, if there is one."""
        self.write()
        file = self.file()
        if file is not None:
            file.fsync()
        self.is_durable = True

    # As a sidecar

    def add(self, header: BatchHeader, base_offset: int, position: Position) -> None:
        """Do nothing: a batch alone does not tell what its transaction was."""

    def drop_unsound(self, log_bytes: int) -> None:
        del log_bytes
        self._keep_leading(sound_count)

    def keep_up_to(self, last: int) -> None:
        """Do nothing: batches that come again do not bring entries back; see `cut`."""

    def write(self) -> None:
        if self._pending:
            super().write()

    def file(self) -> File | None:
        try:
            return super().file()
        except FileNotFoundError:
            return None
