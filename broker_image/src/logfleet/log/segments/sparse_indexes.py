"""The two sparse indexes of a segment, which get an entry every `index.interval.bytes`.

Their entries are in `log.segments.index_entries`. Offsets in them count from the segment's base.
"""

from logfleet.log.config import LONG_MAX
from logfleet.log.segments.index_entries import RELATIVE_OFFSET_MAX
from logfleet.log.segments.index_file import IndexFile
from logfleet.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from logfleet.types import Position


class SparseIndex(IndexFile[tuple[int, int]]):
    """What both have in common as sidecars; see `log.segments.sidecars.Sidecar`."""

    __slots__ = ()

    def add(self, header: BatchHeader, base_offset: int, position: Position) -> None:
        """Do nothing: the segment adds to both indexes itself, as few batches get an entry."""


class OffsetIndex(SparseIndex):
    """(offset of a batch's last record, position of the batch)."""

    __slots__ = ()

    def drop_unsound(self, log_bytes: int) -> None:
        self.keep_sound(
            first_max=RELATIVE_OFFSET_MAX,
            second_min=HEADER_SIZE,
            second_max=log_bytes - HEADER_SIZE,
        )

    def keep_up_to(self, last: int) -> None:
        self.truncate(self.floor(last) + 1 if last >= 0 else 0)


class TimeIndex(SparseIndex):
    """(largest timestamp so far, offset of the last record of its batch)."""

    __slots__ = ()

    @property
    def newest(self) -> int:
        """Timestamp of the last entry, NO_TIMESTAMP without any."""
        return self[-1][0] if len(self) else NO_TIMESTAMP

    def drop_unsound(self, log_bytes: int) -> None:
        del log_bytes
        self.keep_sound(first_max=LONG_MAX, second_min=0, second_max=RELATIVE_OFFSET_MAX)

    def keep_up_to(self, last: int) -> None:
        self.truncate(self.floor(last, 1) + 1 if last >= 0 else 0)
