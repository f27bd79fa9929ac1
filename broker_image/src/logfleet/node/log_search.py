"""Finds records by time: the only reads that look inside batches (ListOffsets; `LogSegment.findOffsetByTimestamp`).

Which batch holds the answer is told by indexes and headers, on the loop; reading and expanding that batch may take long, and is
handed out for a thread.
"""

import msgspec

from logfleet.io.files import File
from logfleet.node.partition_log import PartitionLog
from logfleet.records.batch import NO_TIMESTAMP, BatchHeader
from logfleet.records.errors import RecordsError
from logfleet.records.record import DECOMPRESSED_BYTES_MAX, read_records


class FoundRecord(msgspec.Struct, frozen=True):
    """A record's place: its offset, its timestamp (ms), and the epoch of the leader that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


class BatchToSearch(msgspec.Struct, frozen=True):
    """The first batch that may hold a record from `start_offset` on that is at least as young as `timestamp` (ms).

    The file stays open and readable, whatever happens to the segment.
    """

    file: File
    position: int
    header: BatchHeader
    timestamp: int
    start_offset: int

    def first_record(self) -> FoundRecord | None:
        """The first such record; None if the batch has none. Blocks; raises OSError."""
        batch = self.file.pread(self.header.size, self.position)
        epoch = self.header.leader_epoch
        try:
            for record in read_records(batch, budget_bytes=DECOMPRESSED_BYTES_MAX):
                if record.timestamp >= self.timestamp and record.offset >= self.start_offset:
                    return FoundRecord(record.offset, record.timestamp, epoch)
        except RecordsError:
            # Its producer wrote what cannot be read, under a right checksum. The batch as a whole is the best answer:
            # a consumer that starts there misses nothing.
            offset = max(self.header.base_offset, self.start_offset)
            return FoundRecord(offset, self.header.max_timestamp, epoch)
        return None


def batch_for_timestamp(
    log: PartitionLog, timestamp: int, start_offset: int = 0
) -> BatchToSearch | None:
    """Where to look for the first record from `start_offset` on that is at least so young (ms); who asks knows what is committed.

    Raises OSError.
    """
    start = max(start_offset, log.log_start_offset)
    for segment in log.segments_from(start):
        if segment.max_timestamp < timestamp:
            continue
        entry = segment.time_index.floor(timestamp)
        relative = segment.time_index[entry][1] if entry >= 0 else 0
        begin = max(segment.base_offset + relative, start)
        for position, header in segment.headers(segment.position_of(begin)):
            if header.max_timestamp >= timestamp:
                return BatchToSearch(segment.file, position, header, timestamp, start)
    return None


def youngest_batch(log: PartitionLog) -> BatchToSearch | None:
    """Where to look for the first record of the log's largest timestamp (KIP-734); None if no record has a timestamp. Raises OSError."""
    youngest = max(
        log.segments_from(log.log_start_offset), key=lambda segment: segment.max_timestamp
    )
    if youngest.max_timestamp <= NO_TIMESTAMP:
        return None
    position = youngest.position_of(youngest.max_timestamp_offset)
    for at, header in youngest.headers(position):
        return BatchToSearch(youngest.file, at, header, header.max_timestamp, header.base_offset)
    return None
