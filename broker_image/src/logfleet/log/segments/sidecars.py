"""The files beside a segment's log file, each declared once in KINDS.

A sidecar follows from the segment's batches; the transaction index (`transaction_index`) also from
those before. The log treats all of them alike: it makes them with
the segment, cuts them with it, rebuilds them after a crash, writes and syncs them, renames them in
a swap or a move, and removes them with the segment. Producer snapshots are no sidecars: they hold
the state before an offset, which need not be a segment's (`log.producers`).
"""

from collections.abc import Callable, Container, Iterator
from enum import Enum
from typing import Final, Protocol

import msgspec

from logfleet.io.files import File
from logfleet.log.names import INDEX, TIME_INDEX, TRANSACTION_INDEX
from logfleet.log.segments.index_entries import OFFSET_ENTRY, TIME_ENTRY
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.sparse_indexes import OffsetIndex, TimeIndex
from logfleet.log.segments.transaction_index import TransactionIndex
from logfleet.records.batch import BatchHeader
from logfleet.types import Position

NOTHING: Final = -1
"""For `Sidecar.keep_up_to`: keep nothing."""


class Sidecar(Protocol):
    """One sidecar of one segment: its file, and what is not written to it yet.

    Nothing is opened or read before it is needed. path: of the file. is_durable: set by the segment
    at a sync; the sidecar clears it at each change.
    """

    path: str
    is_durable: bool

    def add(self, header: BatchHeader, base_offset: int, position: Position, /) -> None:
        """Add the batch that the segment has at `position`, in memory.

        Batches come in order. After a restart or a cut some come again that the sidecar has already
        added: it ignores them.
        """

    def drop_unsound(self, log_bytes: int, /) -> None:
        """Drop what a power loss has left in the file and what cannot be true.

        log_bytes: size of the log file.
        """

    def keep_up_to(self, last: int, /) -> None:
        """Keep what is about batches that end at the offset base + `last` or before, or NOTHING."""

    def write(self) -> None:
        """Write what is in memory to the file. Not durable before an fsync."""

    def file(self) -> File | None:
        """The open file, for an fsync; None if there is none. Call `write` before."""
        ...

    def copy(self, files: OpenFiles, /) -> "Sidecar":
        """A copy of the present sidecar that reads through other open files."""
        ...

    def moved_to(self, path: str, /) -> None:
        """Use the new path of the file, which was renamed."""


class IfMissing(Enum):
    """What is done for a segment whose sidecar is not there at a start."""

    READ_SEGMENT = "all batches are read again"
    REBUILD = "the segment rebuilds it when it is next used or written"
    IS_EMPTY = "nothing: the file is made with its first entry"


class SidecarKind(msgspec.Struct, frozen=True):
    """The declaration of one sidecar.

    suffix: of its file's name. open: called with the open files, the path, the segment's base
    offset, and whether the segment is new, so that there is no file yet.
    """

    suffix: str
    open: Callable[[OpenFiles, str, int, bool], Sidecar]
    if_missing: IfMissing


def _offset_index(files: OpenFiles, path: str, _base_offset: int, is_new: bool) -> OffsetIndex:  # noqa: FBT001
    return OffsetIndex(files, path, OFFSET_ENTRY, written=0 if is_new else -1)


def _time_index(files: OpenFiles, path: str, _base_offset: int, is_new: bool) -> TimeIndex:  # noqa: FBT001
    return TimeIndex(files, path, TIME_ENTRY, written=0 if is_new else -1)


def _transaction_index(
    files: OpenFiles,
    path: str,
    _base_offset: int,
    is_new: bool,  # noqa: FBT001
) -> TransactionIndex:
    return TransactionIndex.open(files, path, is_new=is_new)


KINDS: tuple[SidecarKind, ...] = (
    SidecarKind(INDEX, _offset_index, IfMissing.READ_SEGMENT),
    SidecarKind(TIME_INDEX, _time_index, IfMissing.REBUILD),
    SidecarKind(TRANSACTION_INDEX, _transaction_index, IfMissing.IS_EMPTY),
)
"""All of them. The first three are those in which the segment looks things up."""


def suffixes() -> tuple[str, ...]:
    """The suffixes of their names."""
    return tuple(kind.suffix for kind in KINDS)


def optional() -> tuple[str, ...]:
    """The suffixes of those that a segment may lack."""
    return tuple(kind.suffix for kind in KINDS if kind.if_missing is IfMissing.IS_EMPTY)


def missing(base_offset: int, names: Container[tuple[int, str]]) -> frozenset[IfMissing]:
    """What to do for a segment's sidecars that are not among the (offset, suffix) of `names`."""
    return frozenset(kind.if_missing for kind in KINDS if (base_offset, kind.suffix) not in names)


class Sidecars:
    """The sidecars of one segment.

    others: all but its three indexes.
    """

    __slots__ = ("offset_index", "others", "time_index", "transaction_index")

    def __init__(
        self, files: OpenFiles, stem: str, base_offset: int, *, is_new: bool, suffix: str
    ) -> None:
        """stem: of the paths, before what each kind adds and `suffix`."""
        offset_index, time_index, transaction_index, *others = (
            kind.open(files, stem + kind.suffix + suffix, base_offset, is_new) for kind in KINDS
        )
        assert isinstance(offset_index, OffsetIndex)
        assert isinstance(time_index, TimeIndex)
        assert isinstance(transaction_index, TransactionIndex)
        self.offset_index, self.time_index = offset_index, time_index
        self.transaction_index, self.others = transaction_index, tuple(others)

    def __iter__(self) -> Iterator[Sidecar]:
        yield self.offset_index
        yield self.time_index
        yield self.transaction_index
        yield from self.others

    def copy(self, files: OpenFiles) -> "Sidecars":
        """A copy of the present sidecars that reads through other open files."""
        copied = Sidecars.__new__(Sidecars)
        copied.offset_index = self.offset_index.copy(files)
        copied.time_index = self.time_index.copy(files)
        copied.transaction_index = self.transaction_index.copy(files)
        copied.others = tuple(sidecar.copy(files) for sidecar in self.others)
        return copied

    def moved_to(self, directory: str) -> None:
        """Use the new path of the directory, which was renamed."""
        for sidecar in self:
            sidecar.moved_to(f"{directory}/{sidecar.path.rpartition('/')[2]}")

    def keep_entries(self, count: int) -> None:
        """Keep this many entries of the offset index.

        The others keep what is about batches up to the last of these.
        """
        last = self.offset_index[count - 1][0] if count else NOTHING
        for sidecar in self:
            sidecar.keep_up_to(last)

    def distrust(self, distrust_offset: int, log_bytes: int) -> None:
        """Keep what is true about batches before `distrust_offset`, which counts from the base."""
        for sidecar in self:
            sidecar.drop_unsound(log_bytes)
        self.keep_entries(self.offset_index.floor(distrust_offset - 1) + 1)

    def write(self) -> None:
        """Write all of them. Not durable before an fsync."""
        for sidecar in self:
            sidecar.write()

    def take_changed(self) -> Iterator[File]:
        """Write those that are not durable, and return the files to sync: they count as durable."""
        for sidecar in self:
            if not sidecar.is_durable:
                sidecar.write()
                sidecar.is_durable = True
                file = sidecar.file()
                if file is not None:
                    yield file

    def distrust_durability(self) -> None:
        """Let the next flush sync all of them."""
        for sidecar in self:
            sidecar.is_durable = False
