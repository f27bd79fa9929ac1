"""Finds records by time: the only reads that look inside batches (ListOffsets; `LogSegment.findOffsetByTimestamp`).

On the loop it is only decided which segments to look into, by what is known of their times. A thread reads their indexes, headers and
batches, in copies of the segments; if the log has given up or replaced one of them meanwhile, what was found does not count.
"""

import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from logfleet.log.retention import REMOVED_AT_ONCE
from logfleet.records.batch import NO_TIMESTAMP, BatchHeader
from logfleet.records.errors import RecordsError
from logfleet.records.record import DECOMPRESSED_BYTES_MAX, read_records
from logfleet.storage.partition_log import PartitionLog
from logfleet.storage.segment import Segment

SEGMENTS_AT_ONCE: Final = 64
"""Copied in one step of the loop, which is about half a millisecond."""

HEADERS_AT_ONCE: Final = 1000
"""Looked at in one go: about a millisecond, for most of which the thread keeps the interpreter lock from the loop. Then both are free for others."""

FILES_AT_ONCE: Final = 3
"""Open in the thread: one segment's, as they are read one after the other."""

T = TypeVar("T")


class RunInThread(Protocol):
    """Runs something that blocks; see Broker.run_in_thread."""

    def __call__(self, work: Callable[..., T], *args: object) -> Awaitable[T]: ...


class FoundRecord(msgspec.Struct, frozen=True):
    """A record's place: its offset, its timestamp (ms), and the epoch of the leader that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


async def first_record_since(
    log: PartitionLog, timestamp: int, run_in_thread: RunInThread, start_offset: int = 0
) -> FoundRecord | None:
    """The first record from `start_offset` on that is at least so young (ms). Raises OSError.

    Who asks knows what is committed, and whether the log was led all the time: else nothing is certain, as it may have been truncated.
    """
    end = log.log_end_offset  # what comes meanwhile was not asked for: the search ends
    while (start_offset := max(start_offset, log.log_start_offset)) < end:
        segments, behind = _candidates(log, timestamp, start_offset)
        if not segments:
            return None
        work = partial(
            _look_into, timestamp=timestamp, start_offset=start_offset, end_offset=behind
        )
        found = await _read(log, segments, run_in_thread, work)
        if isinstance(found, int):
            start_offset = found
        elif found is not None and found.offset >= log.log_start_offset:
            return found
    return None


async def youngest_record(log: PartitionLog, run_in_thread: RunInThread) -> FoundRecord | None:
    """The first record of the log's largest timestamp (KIP-734); None if no record has a timestamp. Raises OSError.

    Who asks knows what `first_record_since` wants to be known.
    """
    while True:
        segments = log.segments_from(log.log_start_offset)
        unknown = [segment for segment in segments if not segment.knows_times]
        if unknown:
            await _read(log, unknown[:SEGMENTS_AT_ONCE], run_in_thread, _look_up_times)
            continue
        youngest = max(segments, key=lambda segment: segment.max_timestamp)
        if youngest.max_timestamp <= NO_TIMESTAMP:
            return None
        found = await _read(log, [youngest], run_in_thread, _look_for_youngest)
        if isinstance(found, int):  # the batch's header says what its records do not
            return await first_record_since(log, youngest.max_timestamp, run_in_thread, found)
        if found is not None:
            return found


async def learn_oldest_times(log: PartitionLog, run_in_thread: RunInThread) -> None:
    """Before `PartitionLog.apply_retention`: know how young the segments are that it may remove at once. Raises OSError.

    Where the log does not confirm a time index, that is a read of all headers of the segment: for long too much for the loop.
    """
    unknown = [segment for segment in log.segments[:REMOVED_AT_ONCE] if not segment.knows_times]
    if unknown:
        await _read(log, unknown, run_in_thread, _look_up_times)


def _candidates(log: PartitionLog, timestamp: int, start_offset: int) -> tuple[list[Segment], int]:
    """Segments in which the first such record may be, up to one that is surely young enough; the offset where the rest begins."""
    segments = log.segments_from(start_offset)
    ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
    found: list[Segment] = []
    for segment, end in zip(segments, ends, strict=True):
        if segment.knows_times and segment.max_timestamp < timestamp:
            continue
        found.append(segment)
        if segment.knows_times or len(found) == SEGMENTS_AT_ONCE:
            return found, end
    return found, log.log_end_offset


async def _read(
    log: PartitionLog,
    segments: Sequence[Segment],
    run_in_thread: RunInThread,
    work: Callable[[Sequence[Segment]], T],
) -> T | None:
    """What `work` makes of copies of the segments, in the thread. Raises OSError.

    None if they are no longer what they were: their files may have been removed or replaced while they were read.
    """

    def are_there() -> bool:
        return set(segments) <= set(log.segments)

    files = log.open_files.beside(FILES_AT_ONCE)
    copied = [segment.copy(files) for segment in segments]
    try:
        found = await run_in_thread(work, copied)
    except (OSError, struct.error):  # no file of that name, or one that has less in it
        if are_there():
            raise
        return None
    if not are_there():
        return None
    for segment, copy in zip(segments, copied, strict=True):
        segment.learn_times(copy)
    return found


# In the thread


def _look_up_times(segments: Sequence[Segment]) -> None:
    for segment in segments:
        _ = segment.max_timestamp  # remembers what it reads


def _look_into(
    segments: Sequence[Segment], *, timestamp: int, start_offset: int, end_offset: int
) -> FoundRecord | int:
    """The first record from `start_offset` on that is at least so young, else the offset below which there is none.

    end_offset: of the segments, exclusive.
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
                return _look_into_batch(segment, position, header, timestamp, start_offset)
            if headers == HEADERS_AT_ONCE:
                return header.next_offset
    return end_offset


def _look_for_youngest(segments: Sequence[Segment]) -> FoundRecord | int:
    """The first record of the one segment's largest timestamp, else the offset below which there is none."""
    (segment,) = segments
    position = segment.position_of(segment.max_timestamp_offset)
    for at, header in segment.headers(position):
        return _look_into_batch(segment, at, header, header.max_timestamp, header.base_offset)
    return segment.max_timestamp_offset + 1


def _look_into_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> FoundRecord | int:
    """The batch's first record from `start_offset` on that is at least so young, else the offset after the batch."""
    batch = segment.file.pread(header.size, position)
    epoch = header.leader_epoch
    try:
        for record in read_records(batch, budget_bytes=DECOMPRESSED_BYTES_MAX):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return FoundRecord(record.offset, record.timestamp, epoch)
    except RecordsError:
        # Its producer wrote what cannot be read, under a right checksum. The batch as a whole is the best answer:
        # a consumer that starts there misses nothing.
        offset = max(header.base_offset, start_offset)
        return FoundRecord(offset, header.max_timestamp, epoch)
    return header.next_offset
