"""A range of a segment that is sent to a consumer."""

from logfleet.io.files import File
from logfleet.types import Position


class FileSlice:
    """Whole batches in a file.

    The file stays open and readable while the slice exists, whatever happens to the segment.

    position: where the range begins, in bytes; `len` is its length, never 0. Nothing is read before
    it is sent or `read`. is_cut: more could be read behind it, were it not for a limit or the
    segment's end.
    """

    __slots__ = ("_length", "file", "is_cut", "position")

    def __init__(
        self, file: File, position: Position, length: int, *, is_cut: bool = False
    ) -> None:
        self.file = file
        self.is_cut = is_cut
        self.position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    @property
    def fd(self) -> int:
        """Descriptor for sendfile."""
        return self.file.fileno()

    def read(self) -> bytes:
        """The bytes, for connections without sendfile and for readers within the broker."""
        return self.file.pread(self._length, self.position)
