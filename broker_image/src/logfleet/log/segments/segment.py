"""One segment of a partition's log: a file of batches and its sidecars (`sidecars`)."""

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from logfleet.io.files import File, remove_if_there
from logfleet.log.config import LONG_MAX
from logfleet.log.names import LOG, offset_file
from logfleet.log.segments.index_check import time_entries_match
from logfleet.log.segments.index_entries import RELATIVE_OFFSET_MAX, offset_entries, time_entries
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.roll import ActiveSegment
from logfleet.log.segments.sidecars import Sidecars
from logfleet.log.segments.sparse_indexes import OffsetIndex, TimeIndex
from logfleet.log.segments.transaction_index import TransactionIndex
from logfleet.log.segments.valid_batches import scan_batches, scan_markers
from logfleet.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    parse_header,
)
from logfleet.records.control import Marker
from logfleet.types import FILE_START, Position

_UNKNOWN = NO_TIMESTAMP - 1

RESUMPTIONS_MAX = 64
"""Cached positions at which readers of a segment will go on; a new one replaces the oldest."""

_OFFSET = struct.Struct(">q")


class Segment:
    """Batches from `base_offset` on. Nothing is opened or read before it is needed.

    size: bytes of the log file that are batches; anything behind is overwritten by the next append.
    interval_bytes: about how many bytes lie between two index entries. created_ms: wall clock.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_files",
        "_first_timestamp",
        "_interval_bytes",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_resumptions",
        "base_offset",
        "created_ms",
        "has_new_times",
        "log_path",
        "sidecars",
        "size",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        size: int,
        interval_bytes: int,
        created_ms: int,
        is_new: bool = False,
        suffix: str = "",
    ) -> None:
        """is_new: it has no files yet. suffix: of its file names."""
        self.base_offset = base_offset
        self.size = Position(size)
        self.created_ms = created_ms
        self._files = files
        self._interval_bytes = interval_bytes
        stem = f"{directory}/{offset_file(base_offset, '')}"
        self.log_path = stem + LOG + suffix
        self.sidecars = Sidecars(files, stem, base_offset, is_new=is_new, suffix=suffix)
        self._first_timestamp = _UNKNOWN
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = base_offset
        self._bytes_since_entry = 0
        self.has_new_times = False  # the time index was rebuilt in memory, as its file is wrong
        self._resumptions: dict[int, Position] = {}  # base offset -> position of the batch

    @classmethod
    def create(
        cls,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        interval_bytes: int,
        created_ms: int,
        suffix: str = "",
    ) -> "Segment":
        """Create an empty segment, replacing leftovers. suffix: of its file names."""
        segment = cls(
            files,
            directory,
            base_offset,
            size=0,
            interval_bytes=interval_bytes,
            created_ms=created_ms,
            is_new=True,
            suffix=suffix,
        )
        for path in segment.paths:
            files.drop(path)
            remove_if_there(files.files, path)
        segment._max_timestamp = segment._first_timestamp = NO_TIMESTAMP
        files.get(segment.log_path, create=True)
        return segment

    def successor(self, size: int) -> "Segment":
        """The segment whose files are about to replace this one's."""
        return self._of(self._files, size)

    def _of(self, files: OpenFiles, size: int) -> "Segment":
        """Another segment of the same name, with nothing but its size."""
        return Segment(
            files,
            self.log_path.rpartition("/")[0],
            self.base_offset,
            size=size,
            interval_bytes=self._interval_bytes,
            created_ms=self.created_ms,
        )

    def copy(self, files: OpenFiles) -> "Segment":
        """A copy of the present segment, for another thread with its own open files."""
        copied = self._of(files, self.size)
        copied.sidecars = self.sidecars.copy(files)
        copied.copy_times(self)
        return copied

    @property
    def file(self) -> File:
        return self._files.get(self.log_path)

    @property
    def offset_index(self) -> OffsetIndex:
        return self.sidecars.offset_index

    @property
    def time_index(self) -> TimeIndex:
        return self.sidecars.time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        return self.sidecars.transaction_index

    @property
    def paths(self) -> list[str]:
        """All files that a segment may have."""
        return [self.log_path, *(sidecar.path for sidecar in self.sidecars)]

    def moved_to(self, directory: str) -> None:
        """Use the new path of the directory, which was renamed."""
        self._files.drop(self.log_path)
        self.log_path = f"{directory}/{offset_file(self.base_offset, LOG)}"
        self.sidecars.moved_to(directory)

    # Writing

    def append(
        self, data: bytes | bytearray | memoryview, header: BatchHeader, base_offset: int
    ) -> None:
        """Write one batch at the end; its index entry, if it gets one, is kept in memory.

        After an OSError the segment is unchanged, and the next append overwrites what is left.
        """
        file = self._files.get(self.log_path)
        try:
            file.pwrite(data, self.size)
            self.account(header, base_offset)
        except OSError:
            self._give_up(file)
            raise

    def append_all(self, data: memoryview, headers: Iterable[BatchHeader]) -> Iterator[BatchHeader]:
        """Write several batches that have their offsets with one call.

        Each counts once its header is yielded. After an OSError the others do not count.
        """
        file = self._files.get(self.log_path)
        try:
            file.pwrite(data, self.size)
            for header in headers:
                self.account(header, header.base_offset)
                yield header
        except OSError:
            self._give_up(file)
            raise

    def _give_up(self, file: File) -> None:
        """Cut off what a failed append left, such as the part for which a full disk had room."""
        with contextlib.suppress(OSError):
            file.truncate(self.size)

    def account(self, header: BatchHeader, base_offset: int) -> None:
        """Account for the batch at position `size`. After an OSError nothing has changed."""
        last_offset = base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        # Reads of the time index come first, as they may fail. The property is asked only if it has
        # to read the index; compaction leaves batches without records, whose timestamp is that of
        # no record.
        is_newest = (
            timestamp > self._max_timestamp
            and header.record_count
            and timestamp > self.max_timestamp
        )
        needs_entry = self._bytes_since_entry > self._interval_bytes
        indexed_time = self.time_index.newest if needs_entry else NO_TIMESTAMP
        if self.size == 0:
            self._first_timestamp = timestamp
        if is_newest:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset
        if needs_entry:
            self.offset_index.append(last_offset - self.base_offset, self.size)
            self._index_time(indexed_time)
            self._bytes_since_entry = 0
        for sidecar in self.sidecars.others:
            sidecar.add(header, base_offset, self.size)
        size = LENGTH_OVERHEAD + header.batch_length
        self._bytes_since_entry += size
        self.size += size

    def _index_time(self, indexed_time: int) -> None:
        """Add the largest timestamp so far to the time index, unless it is there already."""
        if self.max_timestamp > indexed_time:
            relative = self._max_timestamp_offset - self.base_offset
            self.time_index.append(self._max_timestamp, relative)

    def finish(self) -> None:
        """Complete and write the sidecars: the segment stops being active, or the log closes."""
        file = self.file
        if file.size() > self.size:  # a failed append left something behind the end
            file.truncate(self.size)
        if self.max_timestamp > NO_TIMESTAMP:  # the property rebuilds a time index that is missing
            self._index_time(self.time_index.newest)
        self.sidecars.write()

    def take_changed(self) -> list[File]:
        """Files to sync for the present segment; the sidecars count as durable from here on."""
        return [self.file, *self.sidecars.take_changed()]

    def truncate(self, position: Position) -> int:
        """Cut at `position`, a batch's beginning or the end; returns the new end offset."""
        file = self.file
        if file.size() > position:
            file.truncate(position)
        self.size = position
        self._resumptions.clear()
        self.sidecars.keep_entries(self.offset_index.floor(position - 1, 1) + 1)
        return self.restore(verify=False)

    # Restoring a segment's state after a restart

    def restore(
        self,
        *,
        verify: bool,
        distrust_offset: int = 0,
        end_offset: int = LONG_MAX,
        on_batch: Callable[[BatchHeader], None] | None = None,
    ) -> int:
        """Find the end of the batches, and rebuild the sidecars, from the last index entry on.

        verify: the log was not closed properly; check the sidecars, drop what they have from
        `distrust_offset` on (what lies before is durable) and check the checksum of each batch
        after it. No batch may reach beyond `end_offset`. on_batch is called with each batch that
        is read. Returns the offset after the last batch; `size` is where it ends, which may be
        before the end of the file.
        """
        end = self.file.size()
        if verify:
            self.sidecars.distrust(distrust_offset - self.base_offset, end)
            self.transaction_index.cut(distrust_offset)
        position, offset = self._last_entry(end)

        def scan(position: Position, offset: int) -> int:
            batches = scan_batches(
                self.file.pread,
                position,
                end,
                next_offset=offset,
                verify=verify,
                end_offset=min(end_offset, self.base_offset + RELATIVE_OFFSET_MAX + 1),
            )
            return self._account_from(position, offset, batches, on_batch)

        next_offset = scan(position, offset)
        if self.size == position and position:  # the batch that the index leads to is damaged
            self.sidecars.keep_entries(0)
            next_offset = scan(FILE_START, self.base_offset)
        self.transaction_index.cut(next_offset)
        return next_offset

    def _account_from(
        self,
        position: Position,
        offset: int,
        batches: Iterable[tuple[Position, BatchHeader]],
        on_batch: Callable[[BatchHeader], None] | None,
    ) -> int:
        last = self.time_index[-1] if len(self.time_index) else (NO_TIMESTAMP, 0)
        self._max_timestamp, self._max_timestamp_offset = last[0], self.base_offset + last[1]
        self._first_timestamp = _UNKNOWN if position else NO_TIMESTAMP
        self._bytes_since_entry = 0
        self.size = position
        for _, header in batches:
            self.account(header, header.base_offset)
            offset = header.next_offset
            if on_batch is not None:
                on_batch(header)
        return offset

    def _last_entry(self, end: int) -> tuple[Position, int]:
        """(position, base offset) of the last entry's batch; the segment's start if it is wrong."""
        if not self.offset_index and self._time_index_matches(None):
            return FILE_START, self.base_offset
        relative, position = self.offset_index[-1] if self.offset_index else (0, 0)
        if 0 < position <= end - HEADER_SIZE:
            header = parse_header(self.file.pread(HEADER_SIZE, position))
            if header.last_offset == self.base_offset + relative and self._time_index_matches(
                header
            ):
                return Position(position), header.base_offset
        self.sidecars.keep_entries(0)
        return FILE_START, self.base_offset

    # Reading

    def headers(self, position: Position = FILE_START) -> Iterator[tuple[Position, BatchHeader]]:
        """(position, header) of the batches from `position` on."""
        return scan_batches(
            self.file.pread, position, self.size, next_offset=self.base_offset, verify=False
        )

    def markers(
        self, position: Position = FILE_START
    ) -> Iterator[tuple[BatchHeader, Marker | None]]:
        """(header, its marker if it is one) of the batches from `position` on."""
        return scan_markers(self.file.pread, position, self.size, next_offset=self.base_offset)

    def end_before(self, position: Position) -> int:
        """Offset after the last batch before `position`, a batch's beginning or the end."""
        end = self.base_offset
        for at, header in self.headers(self.boundary_before(Position(max(position - 1, 0)))):
            if at >= position:
                break
            end = header.next_offset
        return end

    def position_of(self, offset: int) -> Position:
        """Position of the first batch that holds `offset` or a later one; else the end."""
        if offset <= self.base_offset:
            return FILE_START
        cached = self._resumptions.get(offset)
        if cached is not None:
            return cached
        # The entry's own batch ends at or before the offset, so the scan begins there.
        start = self._indexed_position(offset - self.base_offset, 0)
        for position, header in self.headers(start):
            if header.last_offset >= offset:
                return position
        return self.size

    def add_resumption(self, position: Position) -> None:
        """Cache the position of this batch: a reader that got the ones before asks for it."""
        (offset,) = _OFFSET.unpack(self.file.pread(_OFFSET.size, position))
        if len(self._resumptions) >= RESUMPTIONS_MAX:
            del self._resumptions[next(iter(self._resumptions))]
        self._resumptions[offset] = position

    def boundary_before(self, position: Position) -> Position:
        """A batch's beginning at or before `position`, at most about one index interval away."""
        if position >= self.size:
            return self.size
        return self._indexed_position(position, 1)

    def _indexed_position(self, key: int, field: int) -> Position:
        """Position in the last offset index entry whose `field` is <= `key`; 0 if there is none.

        An index that points outside the segment is rebuilt from all headers, in memory at first.
        """
        entry = self.offset_index.floor(key, field)
        if entry < 0:
            return FILE_START
        position = Position(self.offset_index[entry][1])
        if 0 <= position < self.size:
            return position
        self.offset_index.replace(
            offset_entries(self.headers(), self.base_offset, self._interval_bytes)
        )
        return self._indexed_position(key, field)

    @property
    def has_times(self) -> bool:
        """Whether `max_timestamp` is in memory; otherwise its first use reads the time index."""
        return self._max_timestamp != _UNKNOWN

    def copy_times(self, other: "Segment") -> None:
        """Copy cached times of a copy or original; only appends may lie between the two."""
        if other.has_times and not self.has_times:
            self._max_timestamp = other.max_timestamp
            self._max_timestamp_offset = other.max_timestamp_offset
            if other.has_new_times:
                self.time_index.replace(other.time_index)
                self.has_new_times = True

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the batches, NO_TIMESTAMP if none has one.

        Read from the time index on first use; rebuilt from all headers if the log contradicts it.
        """
        if self._max_timestamp == _UNKNOWN:
            if not self._time_index_matches(self._last_batch()):
                entries = time_entries(self.headers(), self.base_offset, self._interval_bytes)
                self.time_index.replace(entries)
                self.has_new_times = True
            last = self.time_index[-1] if len(self.time_index) else (NO_TIMESTAMP, 0)
            self._max_timestamp, self._max_timestamp_offset = last[0], self.base_offset + last[1]
        return self._max_timestamp

    def _time_index_matches(self, later: BatchHeader | None) -> bool:
        """Whether log and `later` confirm the time index's last entry, which retention uses."""
        newest = NO_TIMESTAMP
        if len(self.time_index):
            newest, relative = self.time_index[-1]
            offset = self.base_offset + relative
            batches = self.headers(self.position_of(offset))
            if not all(time_entries_match([(newest, offset)], batches)):
                return False
        return later is None or not later.record_count or later.max_timestamp <= newest

    def _last_batch(self) -> BatchHeader | None:
        batches = [header for _, header in self.headers(self.boundary_before(self.size - 1))]
        return batches[-1] if batches else None

    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the batch that has the largest timestamp."""
        assert self.max_timestamp >= NO_TIMESTAMP
        return self._max_timestamp_offset

    def largest_timestamp(self) -> int:
        """The largest timestamp, for retention; without any, the time of the file's last write."""
        if self.max_timestamp > NO_TIMESTAMP:
            return self.max_timestamp
        return self._files.files.status(self.log_path).modified_ms

    def as_active(self) -> ActiveSegment:
        """The segment's state, as `roll.should_roll` needs it."""
        if self._first_timestamp == _UNKNOWN:
            header = parse_header(self.file.pread(HEADER_SIZE, 0))
            self._first_timestamp = header.max_timestamp
        return ActiveSegment(
            self.base_offset,
            self.size,
            len(self.offset_index),
            len(self.time_index),
            self._first_timestamp,
            self.created_ms,
        )


def segment_number(segments: Sequence[Segment], offset: int) -> int:
    """Number of the segment that holds `offset`; 0 for an offset before all of them."""
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)
