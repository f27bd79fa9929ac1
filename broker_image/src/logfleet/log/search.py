"""Finds records by time (ListOffsets): the only reads that look inside batches.

Source: Kafka's LogSegment.findOffsetByTimestamp. The loop only chooses the segments, by their
cached times. A thread reads their indexes, headers and batches, in copies of the segments; if the
log has removed or replaced one of them meanwhile, the result is discarded.
"""

import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from logfleet.log.partition_log import PartitionLog
from logfleet.log.retention import REMOVED_AT_ONCE
from logfleet.log.segments.segment import Segment
from logfleet.records.batch import NO_TIMESTAMP, BatchHeader
from logfleet.records.errors import RecordsError
from logfleet.records.record import DECOMPRESSED_BYTES_MAX, read_records
from logfleet.types import LeaderEpoch, Position

SEGMENTS_AT_ONCE: Final = 64
"""Segments copied in one step of the loop, which takes about half a millisecond."""

HEADERS_AT_ONCE: Final = 1000
"""Headers read in one go: about a millisecond, for most of which the thread keeps the
interpreter lock from the loop. Then it lets others run."""

FILES_AT_ONCE: Final = 3
"""Files that a search may keep open: those of one segment at a time."""

T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a blocking function in a thread; see Broker.run_in_thread."""

    def __call__(self, work: Callable[..., T], *args: object) -> Awaitable[T]: ...


class FoundRecord(msgspec.Struct, frozen=True):
    """offset of the record, its timestamp (ms), and the epoch of the leader that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: LeaderEpoch


async def first_record_since(
    log: PartitionLog, timestamp: int, run_in_thread: RunInThread, start_offset: int = 0
) -> FoundRecord | None:
    """The first record from `start_offset` on whose timestamp is at least `timestamp` (ms).

    Raises OSError. The caller has to check that the record is committed, and that the log was led
    all the time: otherwise it may have been truncated.
    """
    end = log.log_end_offset  # later appends are ignored, so that the search ends
    while (start_offset := max(start_offset, log.log_start_offset)) < end:
        segments, behind = _candidates(log, timestamp, start_offset)
        if not segments:
            return None
        work = partial(_find, timestamp=timestamp, start_offset=start_offset, end_offset=behind)
        found = await _read(log, segments, run_in_thread, work)
        if isinstance(found, int):
            start_offset = found
        elif found is not None and found.offset >= log.log_start_offset:
            return found
    return None


async def record_of_largest_timestamp(
    log: PartitionLog, run_in_thread: RunInThread
) -> FoundRecord | None:
    """The first record of the log's largest timestamp (KIP-734); None if no record has a timestamp.

    Raises OSError. The caller has to check the same as for `first_record_since`.
    """
    while True:
        segments = log.segments_from(log.log_start_offset)
        unknown = [segment for segment in segments if not segment.has_times]
        if unknown:
            await _read(log, unknown[:SEGMENTS_AT_ONCE], run_in_thread, _read_times)
            continue
        youngest = max(segments, key=lambda segment: segment.max_timestamp)
        if youngest.max_timestamp <= NO_TIMESTAMP:
            return None
        found = await _read(log, [youngest], run_in_thread, _find_largest)
        if isinstance(found, int):  # the header's timestamp is not that of any record
            return await first_record_since(log, youngest.max_timestamp, run_in_thread, found)
        if found is not None:
            return found


async def load_oldest_times(log: PartitionLog, run_in_thread: RunInThread) -> None:
    """Load the times of the segments that `PartitionLog.apply_retention` may remove at once.

    Raises OSError. If the log contradicts a time index, all headers of the segment are read: too
    much for the loop.
    """
    unknown = [segment for segment in log.segments[:REMOVED_AT_ONCE] if not segment.has_times]
    if unknown:
        await _read(log, unknown, run_in_thread, _read_times)


def _candidates(log: PartitionLog, timestamp: int, start_offset: int) -> tuple[list[Segment], int]:
    """Segments that may hold the first such record, up to one that certainly does.

    Also returns the end offset of the last one.
    """
    segments = log.segments_from(start_offset)
    ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
    found: list[Segment] = []
    for segment, end in zip(segments, ends, strict=True):
        if segment.has_times and segment.max_timestamp < timestamp:
            continue
        found.append(segment)
        if segment.has_times or len(found) == SEGMENTS_AT_ONCE:
            return found, end
    return found, log.log_end_offset


async def _read(
    log: PartitionLog,
    segments: Sequence[Segment],
    run_in_thread: RunInThread,
    work: Callable[[Sequence[Segment]], T],
) -> T | None:
    """Run `work` on copies of the segments, in the thread. Raises OSError.

    None if the log has changed these segments meanwhile: their files may have been removed or
    replaced during the read.
    """

    def are_there() -> bool:
        return set(segments) <= set(log.segments)

    files = log.open_files.separate(FILES_AT_ONCE)
    copied = [segment.copy(files) for segment in segments]
    try:
        found = await run_in_thread(work, copied)
    except (OSError, struct.error):  # the file is gone, or shorter
        if are_there():
            raise
        return None
    if not are_there():
        return None
    for segment, copy in zip(segments, copied, strict=True):
        segment.copy_times(copy)
    return found


# In the thread


def _read_times(segments: Sequence[Segment]) -> None:
    for segment in segments:
        _ = segment.max_timestamp  # reads it, and caches it


def _find(
    segments: Sequence[Segment], *, timestamp: int, start_offset: int, end_offset: int
) -> FoundRecord | int:
    """The first record from `start_offset` on whose timestamp is at least `timestamp`.

    Otherwise the offset below which there is none. end_offset: of the segments, exclusive.
    """
    headers = 0
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        entry = segment.time_index.floor(timestamp)
        relative = segment.time_index[entry][1] if entry >= 0 else 0
        begin = max(segment.base_offset + relative, start_offset)
        for position, header in segment.headers(segment.position_of(begin)):
            headers += 1
            if header.max_timestamp >= timestamp:
                return _find_in_batch(segment, position, header, timestamp, start_offset)
            if headers == HEADERS_AT_ONCE:
                return header.next_offset
    return end_offset


def _find_largest(segments: Sequence[Segment]) -> FoundRecord | int:
    """The first record of the largest timestamp, else the offset below which there is none."""
    (segment,) = segments
    position = segment.position_of(segment.max_timestamp_offset)
    for at, header in segment.headers(position):
        return _find_in_batch(segment, at, header, header.max_timestamp, header.base_offset)
    return segment.max_timestamp_offset + 1


def _find_in_batch(
    segment: Segment, position: Position, header: BatchHeader, timestamp: int, start_offset: int
) -> FoundRecord | int:
    """The batch's first record from `start_offset` on with at least `timestamp`.

    Otherwise the offset after the batch.
    """
    batch = segment.file.pread(header.size, position)
    epoch = header.leader_epoch
    try:
        for record in read_records(batch, budget_bytes=DECOMPRESSED_BYTES_MAX):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return FoundRecord(record.offset, record.timestamp, epoch)
    except RecordsError:
        # Its producer wrote unreadable records under a right checksum. The batch as a whole is the
        # best answer: a consumer that starts there misses nothing.
        offset = max(header.base_offset, start_offset)
        return FoundRecord(offset, header.max_timestamp, epoch)
    return header.next_offset
