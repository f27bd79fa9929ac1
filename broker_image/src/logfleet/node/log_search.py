"""Finds records by time: the only reads that look inside batches (ListOffsets; `LogSegment.findOffsetByTimestamp`)."""

from collections.abc import Sequence

import msgspec

from logfleet.node.segment import Segment
from logfleet.records.batch import NO_TIMESTAMP, BatchHeader
from logfleet.records.errors import RecordsError
from logfleet.records.record import DECOMPRESSED_BYTES_MAX, read_records


class FoundRecord(msgspec.Struct, frozen=True):
    """A record's place: its offset, its timestamp (ms), and the epoch of the leader that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


def find_timestamp(
    segments: Sequence[Segment], timestamp: int, start_offset: int
) -> FoundRecord | None:
    """The first record in offset order, from `start_offset` on, that is at least as young as `timestamp`."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        entry = segment.time_index.floor(timestamp)
        relative = segment.time_index[entry][1] if entry >= 0 else 0
        begin = max(segment.base_offset + relative, start_offset)
        for position, header in segment.headers(segment.position_of(begin)):
            if header.max_timestamp >= timestamp:
                found = _first_in_batch(segment, position, header, timestamp, start_offset)
                if found is not None:
                    return found
    return None


def find_max_timestamp(segments: Sequence[Segment]) -> FoundRecord | None:
    """The first record with the largest timestamp of the log (KIP-734); None if no record has a timestamp."""
    youngest = max(segments, key=lambda segment: segment.max_timestamp)
    if youngest.max_timestamp <= NO_TIMESTAMP:
        return None
    position = youngest.position_of(youngest.max_timestamp_offset)
    for at, header in youngest.headers(position):
        return _first_in_batch(youngest, at, header, header.max_timestamp, header.base_offset)
    return None


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> FoundRecord | None:
    batch = segment.file.pread(header.size, position)
    try:
        for record in read_records(batch, budget_bytes=DECOMPRESSED_BYTES_MAX):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return FoundRecord(record.offset, record.timestamp, header.leader_epoch)
    except RecordsError:
        # Its producer wrote what cannot be read, under a right checksum. The batch as a whole is the best answer:
        # a consumer that starts there misses nothing.
        offset = max(header.base_offset, start_offset)
        return FoundRecord(offset, header.max_timestamp, header.leader_epoch)
    return None
