"""A range of a segment that is sent to a consumer."""

import struct
from typing import Final

from logfleet.io.files import File
from logfleet.log.config import LONG_MAX
from logfleet.types import Position

_OFFSET: Final = struct.Struct(">q")


class FileSlice:
    """Whole batches in a file.

    The file stays open and readable while the slice exists, whatever happens to the segment.

    position: where the range begins, in bytes; `len` is its length, never 0. Nothing is read before
    it is sent or `read`. is_cut: more could be read behind it, were it not for a limit or the
    segment's end.
    """

    __slots__ = ("_end_offset", "_length", "file", "is_cut", "position")

    def __init__(
        self,
        file: File,
        position: Position,
        length: int,
        *,
        is_cut: bool = False,
        end_offset: int | None = None,
    ) -> None:
        """end_offset: None if another batch is behind the range, in the file."""
        self.file = file
        self._end_offset = end_offset
        self.is_cut = is_cut
        self.position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    @property
    def fd(self) -> int:
        """Descriptor for sendfile."""
        return self.file.fileno()

    @property
    def end_offset(self) -> int:
        """No batch begins from the end of the range to there (exclusive). Raises OSError."""
        if self._end_offset is None:
            found = self.file.pread(_OFFSET.size, self.position + self._length)
            is_there = len(found) == _OFFSET.size  # else the log was truncated meanwhile
            self._end_offset = _OFFSET.unpack(found)[0] if is_there else LONG_MAX
        return self._end_offset

    def read(self) -> bytes:
        """The bytes, for connections without sendfile and for readers within the broker."""
        return self.file.pread(self._length, self.position)
