"""One round of compaction of one log, on closed files.

Reads the old segments, writes new ones beside them. It runs in a child process (`program`); memory
holds one batch at a time besides the map of keys. The broker puts each new segment in place
(`swap`); files that it does not use are removed. Transactions: `transactions`. Source: Kafka's
Cleaner.
"""

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from logfleet.io.files import File, Files, remove_if_there
from logfleet.log.aborted import AbortedEntry
from logfleet.log.compaction.batch_cleaning import (
    CleanedBatch,
    CleaningRules,
    clean_aborted,
    clean_batch,
    clean_marker,
    read_payload,
)
from logfleet.log.compaction.due import SegmentFiles, group_segments
from logfleet.log.compaction.offset_map import OffsetMap
from logfleet.log.compaction.source_indexes import SourceIndexes
from logfleet.log.compaction.transactions import CleanedTransactions
from logfleet.log.names import CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, offset_file
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.segment import Segment
from logfleet.log.segments.valid_batches import read_batches
from logfleet.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from logfleet.records.checksum import Buffer
from logfleet.records.control import read_marker
from logfleet.records.errors import CorruptRecords, RecordsError
from logfleet.records.spans import record_spans
from logfleet.types import FILE_START

WRITE_BYTES: Final = 1 << 20
"""Bytes per write to a new segment."""

OPEN_FILES_MAX: Final = 16

UNKNOWN: Final = -1

_TRANSACTIONS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class CleaningJob(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a round.

    segments: (base offset, size) of all below first_uncleanable, where the last of them ends.
    producers: as in CleaningRules; UNKNOWN for one whose last durable batch has to be searched
    for. markers: as there. aborted: transactions with records below first_uncleanable that ended
    behind it. map_bytes_max and load_factor: of the map of keys. room_bytes: disk space that all
    new segments may take, None for no limit. bytes_per_second: limit of reads and writes together,
    enforced by `program`. Sizes in bytes, times in ms.
    """

    directory: str
    segments: tuple[tuple[int, int], ...]
    first_dirty: int
    first_uncleanable: int
    producers: dict[int, int]
    markers: dict[int, tuple[int, int]]
    aborted: tuple[AbortedEntry, ...]
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

    size: of the log file. markers_end: markers that lie before it were removed, the last of them
    just before it; 0 if none were.
    """

    base_offsets: tuple[int, ...]
    size: int
    markers_end: int = 0


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
            rules, transactions = self._rules(mapped_end), _Transactions(self._files, self._job)
            for group in self._groups(mapped_end):
                cleaned = self._clean_group(group, rules, transactions)
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
            markers=job.markers,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            decompressed_bytes_max=job.decompressed_bytes_max,
        )

    # Mapping the dirty part

    def _build_map(self) -> int:
        """Map each key to its newest offset, from the first dirty offset on.

        Returns the offset up to which the map is complete. It may hold the first keys of the batch
        there, if it is full: what replaces older records lies above the end and stays.
        """
        mapped_end = first_dirty = self._job.first_dirty
        transactions = _Transactions(self._files, self._job, first_dirty)
        for source in self._sources:
            if source.end_offset <= first_dirty:
                continue
            transactions.come_to(source)
            for header, batch in self._batches(source):
                is_kept = not header.attributes & _TRANSACTIONS or transactions.keeps(header, batch)
                if header.last_offset < first_dirty:
                    continue
                if is_kept and not self._map_keys(header, batch):
                    if mapped_end == first_dirty:
                        raise Uncleanable(
                            f"the batch at {header.base_offset} has more keys than the "
                            f"{self._map.capacity} that log.cleaner.dedupe.buffer.size has room for"
                        )
                    return mapped_end
                if self._job.producers.get(header.producer_id) == UNKNOWN and not header.is_control:
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
        self,
        group: Sequence[_SourceSegment],
        rules: CleaningRules,
        transactions: "_Transactions",
    ) -> CleanedSegment | None:
        """Write one segment from this group; None if nothing would change."""
        target = _CleanedFiles(self._open_files, self._job, group[0].base_offset, self._take)
        is_changed, markers_end = len(group) > 1, 0
        for source in group:
            transactions.come_to(source)
            for header, batch in self._batches(source):
                if header.attributes & _TRANSACTIONS:
                    kept = self._clean_transactional(batch, header, rules, transactions, target)
                    if header.is_control and kept.records < header.record_count:
                        markers_end = header.next_offset
                else:
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
        bases = tuple(source.base_offset for source in group)
        return CleanedSegment(bases, target.size, markers_end)

    @staticmethod
    def _clean_transactional(
        batch: bytes,
        header: BatchHeader,
        rules: CleaningRules,
        transactions: "_Transactions",
        target: "_CleanedFiles",
    ) -> CleanedBatch:
        if not header.is_control:
            clean = clean_aborted if transactions.state.read(header) else clean_batch
            return clean(batch, header, rules)
        ended = transactions.state.end(header, read_marker(batch))
        if ended.aborted is not None:
            target.add_aborted(ended.aborted)
        if ended.is_gone:
            return clean_marker(batch, header, rules)
        return CleanedBatch(batch, header.record_count)

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


class _Transactions:
    """The transactions in the segments that one pass over them comes to, from `start` on."""

    def __init__(self, files: Files, job: CleaningJob, start: int = 0) -> None:
        ends = [*(base for base, _ in job.segments[1:]), job.first_uncleanable]
        self.state = CleanedTransactions()
        self._indexes = SourceIndexes(
            files,
            [
                f"{job.directory}/{offset_file(base, TRANSACTION_INDEX)}"
                for (base, _), end in zip(job.segments, ends, strict=True)
                if end > start
            ],
            job.aborted,
        )

    def come_to(self, source: _SourceSegment) -> None:
        """Find out about the aborted transactions that have records in the segment."""
        self.state.add(self._indexes.up_to(source.end_offset))

    def keeps(self, header: BatchHeader, batch: bytes) -> bool:
        """Whether the batch has records of a committed transaction."""
        if header.is_control:
            self.state.end(header, read_marker(batch))
            return False
        return not self.state.read(header)


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

    def add_aborted(self, entry: AbortedEntry) -> None:
        """Add an aborted transaction that ends in this segment."""
        self._segment.transaction_index.add_entry(entry)

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
