"""One round of compaction of one log, on closed files.

Reads the old segments, writes new ones beside them. It runs in a child process (`program`); memory
holds one batch at a time besides the map of keys. The broker puts each new segment in place
(`swap`); files that it does not use are removed. Source: Kafka's Cleaner.
"""

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from logfleet.io.files import File, Files, remove_if_there
from logfleet.log.compaction.batch_cleaning import CleaningRules, clean_batch, read_payload
from logfleet.log.compaction.due import SegmentFiles, group_segments
from logfleet.log.compaction.offset_map import OffsetMap
from logfleet.log.names import CLEANED, INDEX, LOG, TIME_INDEX, offset_file
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.segment import Segment
from logfleet.log.segments.valid_batches import read_batches
from logfleet.records.batch import BatchHeader, parse_header
from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords, RecordsError
from logfleet.records.spans import record_spans
from logfleet.types import FILE_START

WRITE_BYTES: Final = 1 << 20
"""Bytes per write to a new segment."""

OPEN_FILES_MAX: Final = 16

UNKNOWN: Final = -1


class CleaningJob(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a round.

    segments: (base offset, size) of all below first_uncleanable, where the last of them ends.
    producers: as in CleaningRules; UNKNOWN for one whose last durable batch has to be searched
    for. map_bytes_max and load_factor: of the map of keys. room_bytes: disk space that all new
    segments may take, None for no limit. bytes_per_second: limit of reads and writes together,
    enforced by `program`. Sizes in bytes, times in ms.
    """

    directory: str
    segments: tuple[tuple[int, int], ...]
    first_dirty: int
    first_uncleanable: int
    producers: dict[int, int]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    decompressed_bytes_max: int
    map_bytes_max: int
    load_factor: float
    bytes_per_second: float
    room_bytes: int | None = None


class CleanedSegment(msgspec.Struct, frozen=True, tag=True):
    """The files that replace the segments with these base offsets are durable, as .cleaned.

    size: of the log file.
    """

    base_offsets: tuple[int, ...]
    size: int


class Cleaned(msgspec.Struct, frozen=True, tag=True):
    """The round is over; everything below end_offset is clean.

    map_utilization: 0 to 1; cpu_s: processor time.
    """

    end_offset: int
    bytes_read: int
    bytes_kept: int
    records_read: int
    records_kept: int
    keyless: int
    map_utilization: float
    cpu_s: float


class Uncleanable(Exception):
    """The log cannot be compacted, now or later. The text says why."""


class _SourceSegment(msgspec.Struct, frozen=True):
    """A segment to compact. end_offset: exclusive."""

    base_offset: int
    size: int
    end_offset: int


class Cleaning:
    """One round.

    account: called with the number of bytes of each read and write, to slow the round down.
    """

    def __init__(
        self, files: Files, job: CleaningJob, *, salt: bytes, account: Callable[[int], None]
    ) -> None:
        self._files = files
        self._open_files = OpenFiles(files, OPEN_FILES_MAX)
        self._job = job
        self._account = account
        self._map = OffsetMap(job.map_bytes_max, load_factor=job.load_factor, salt=salt)
        ends = [*(base for base, _ in job.segments[1:]), job.first_uncleanable]
        self._sources = [
            _SourceSegment(base, size, end)
            for (base, size), end in zip(job.segments, ends, strict=True)
        ]
        self._producers = dict(job.producers)
        self._room_bytes = job.room_bytes
        self._bytes_read = self._bytes_kept = 0
        self._records_read = self._records_kept = self._keyless = 0

    def run(self) -> Iterator[CleanedSegment | Cleaned]:
        """Yield a CleanedSegment for each replacement, in order, then Cleaned.

        Raises Uncleanable, OSError.
        """
        started = time.process_time()
        try:
            mapped_end = self._build_map()
            for group in self._groups(mapped_end):
                cleaned = self._clean_group(group, self._rules(mapped_end))
                if cleaned is not None:
                    yield cleaned
        except RecordsError as error:
            raise Uncleanable(str(error)) from error
        yield Cleaned(
            mapped_end,
            self._bytes_read,
            self._bytes_kept,
            self._records_read,
            self._records_kept,
            self._keyless,
            len(self._map) / self._map.capacity,
            time.process_time() - started,
        )

    def _rules(self, mapped_end: int) -> CleaningRules:
        job = self._job
        return CleaningRules(
            newest_offset=self._map.get,
            mapped_end=mapped_end,
            upper_bound=job.first_uncleanable,
            producers=self._producers,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            decompressed_bytes_max=job.decompressed_bytes_max,
        )

    # Mapping the dirty part

    def _build_map(self) -> int:
        """Map each key to its newest offset, from the first dirty offset on.

        Returns the offset up to which the map is complete.
        """
        mapped_end = first_dirty = self._job.first_dirty
        for source in self._sources:
            if source.end_offset <= first_dirty:
                continue
            for header, batch in self._batches(source):
                if header.last_offset < first_dirty:
                    continue
                if not self._map_keys(header, batch):
                    if mapped_end == first_dirty:
                        raise Uncleanable(
                            f"the batch at {header.base_offset} has more keys than the "
                            f"{self._map.capacity} that log.cleaner.dedupe.buffer.size has room for"
                        )
                    return mapped_end
                if self._job.producers.get(header.producer_id) == UNKNOWN:
                    self._producers[header.producer_id] = header.last_offset
                mapped_end = header.next_offset
            mapped_end = source.end_offset
        return mapped_end

    def _map_keys(self, header: BatchHeader, batch: bytes) -> bool:
        """Record the keys of a batch; False if the map is full."""
        first_dirty, base_offset, put = self._job.first_dirty, header.base_offset, self._map.put
        payload = read_payload(batch, header, self._job.decompressed_bytes_max)
        for _, _, _, offset_delta, key, _ in record_spans(payload):
            offset = base_offset + offset_delta
            if key is not None and offset >= first_dirty and not put(key, offset):
                return False
        return True

    def _batches(self, source: _SourceSegment) -> Iterator[tuple[BatchHeader, bytes]]:
        """All batches of a segment. Raises CorruptRecords, Uncleanable, OSError."""
        file = self._files.open(self._path(source.base_offset, LOG))

        def read(length: int, position: int) -> bytes:
            self._account(length)
            return file.pread(length, position)

        for header, batch in read_batches(
            read, FILE_START, source.size, next_offset=source.base_offset
        ):
            if header.is_control or header.is_transactional:
                raise Uncleanable(
                    f"the batch at {header.base_offset} belongs to a transaction, and this version "
                    "does "
                    "not know which ones were aborted"
                )
            if header.last_offset >= source.end_offset:
                raise CorruptRecords(f"the batch at {header.base_offset} ends in the next segment")
            yield header, batch

    def _path(self, base_offset: int, suffix: str) -> str:
        return f"{self._job.directory}/{offset_file(base_offset, suffix)}"

    # Writing what is kept

    def _groups(self, mapped_end: int) -> list[list[_SourceSegment]]:
        """Group the segments to compact; each group becomes one segment."""
        sources = [source for source in self._sources if source.base_offset < mapped_end]
        by_base = {source.base_offset: source for source in sources}
        groups = group_segments(
            [
                SegmentFiles(
                    source.base_offset,
                    source.size,
                    self._size(self._path(source.base_offset, INDEX)),
                    self._size(self._path(source.base_offset, TIME_INDEX)),
                )
                for source in sources
            ],
            end_offset=sources[-1].end_offset if sources else mapped_end,
            segment_bytes=self._job.segment_bytes,
            segment_index_bytes=self._job.segment_index_bytes,
        )
        return [[by_base[each.base_offset] for each in group] for group in groups]

    def _size(self, path: str) -> int:
        try:
            return self._files.status(path).size
        except FileNotFoundError:  # a missing index: it is rebuilt
            return 0

    def _clean_group(
        self, group: Sequence[_SourceSegment], rules: CleaningRules
    ) -> CleanedSegment | None:
        """Write one segment from this group; None if nothing would change."""
        target = _CleanedFiles(self._open_files, self._job, group[0].base_offset, self._take)
        is_changed = len(group) > 1
        for source in group:
            for header, batch in self._batches(source):
                kept = clean_batch(batch, header, rules)
                self._bytes_read += len(batch)
                self._records_read += header.record_count
                self._records_kept += kept.records
                self._keyless += kept.keyless
                is_changed = is_changed or kept.buffer is not batch
                if kept.buffer is not None:
                    self._bytes_kept += len(kept.buffer)
                    target.append(kept.buffer)
        if not is_changed:
            target.remove()
            self._give_back(target.written)
            return None
        target.finish(self._files.status(self._path(group[-1].base_offset, LOG)).modified_ms)
        return CleanedSegment(tuple(source.base_offset for source in group), target.size)

    def _take(self, count: int) -> None:
        """Reserve room for `count` bytes that are about to be written.

        Raises ENOSPC if there is none.
        """
        if self._room_bytes is not None:
            if count > self._room_bytes:
                raise OSError(
                    errno.ENOSPC, "No room for the compacted segment", self._job.directory
                )
            self._room_bytes -= count
        self._account(count)

    def _give_back(self, count: int) -> None:
        if self._room_bytes is not None:
            self._room_bytes += count


class _CleanedFiles:
    """The files of one new segment while they are written.

    written: bytes in its log file so far.
    """

    def __init__(
        self,
        open_files: OpenFiles,
        job: CleaningJob,
        base_offset: int,
        take: Callable[[int], None],
    ) -> None:
        """take: called before each write, with the number of bytes."""
        self._segment = Segment.create(
            open_files,
            job.directory,
            base_offset,
            interval_bytes=job.index_interval_bytes,
            created_ms=job.now_ms,
            suffix=CLEANED,
        )
        self._files = open_files.files
        self._directory = job.directory
        self._file: File = self._segment.file
        self._take = take
        self._unwritten = bytearray()
        self.written = 0

    @property
    def size(self) -> int:
        return self._segment.size

    def append(self, batch: Buffer) -> None:
        header = parse_header(batch)
        self._segment.account(header, header.base_offset)
        self._unwritten += batch
        if len(self._unwritten) >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._take(len(self._unwritten))
        self._file.pwrite(self._unwritten, self.written)
        self.written += len(self._unwritten)
        self._unwritten.clear()

    def finish(self, modified_ms: int) -> None:
        """Make the files durable, with the modification time of the newest source."""
        self._write()
        self._segment.finish()
        for file in self._segment.take_changed():
            file.fsync()
        self._files.set_modified(self._segment.log_path, modified_ms)
        self._files.fsync_directory(self._directory)

    def remove(self) -> None:
        for path in self._segment.paths:
            remove_if_there(self._files, path)
