"""Logs with transactions, and what a consumer makes of an answer, for tests of Fetch."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.records.batch import assign_offsets, iterate_headers
from logfleet.records.control import marker_batch, read_marker
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.types import LeaderEpoch

NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(5)
PLAIN = -1
"""Producer id of records in no transaction."""


class Outcome(NamedTuple):
    """A transaction that has ended, from its first record to its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_commit: bool


class History:
    """What was appended to a log. ends: of its batches, in bytes and offsets; all: its outcomes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end_offset = 0
        self.ends: list[tuple[int, int]] = []
        self.outcomes: list[Outcome] = []
        self.records: list[tuple[int, int]] = []  # (offset, producer id)
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, count: int = 1) -> bytearray:
        """A batch of that producer, or of none; it begins a transaction if none is open."""
        stamp = None
        if producer_id != PLAIN:
            self._open.setdefault(producer_id, self.end_offset)
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + count
            stamp = ProducerStamp(producer_id, 0, sequence, transactional=True)
        offsets = range(self.end_offset, self.end_offset + count)
        self.records += [(offset, producer_id) for offset in offsets]
        values = [Record(None, b"%d" % offset, NOW) for offset in offsets]
        return self._add(build_batch(values, producer=stamp), count)

    def end(self, producer_id: int, *, commit: bool) -> bytearray:
        """A marker, whether or not a transaction is open."""
        first = self._open.pop(producer_id, None)
        if first is not None:
            self.outcomes.append(Outcome(producer_id, first, self.end_offset, commit))
        return self._add(
            marker_batch(producer_id, 0, commit=commit, coordinator_epoch=1, now_ms=NOW), 1
        )

    def _add(self, batch: bytearray, count: int) -> bytearray:
        assign_offsets(batch, self.end_offset, EPOCH)
        self.end_offset += count
        self.data += batch
        self.ends.append((len(self.data), self.end_offset))
        return batch

    def last_stable_offset(self, high_watermark: int) -> int:
        """By its definition: what begins here is open, or its marker is not committed."""
        ended = {each.first_offset for each in self.outcomes}
        begun = {*ended, *self._open.values()}
        decided = {
            each.first_offset for each in self.outcomes if each.marker_offset < high_watermark
        }
        return min([high_watermark, *(begun - decided)])

    def committed(self, start: int, end: int) -> list[int]:
        """Offsets of the records there that are in no transaction, or in one that committed."""
        return [
            offset
            for offset, producer_id in self.records
            if start <= offset < end
            and (producer_id == PLAIN or self._commits(producer_id, offset))
        ]

    def _commits(self, producer_id: int, offset: int) -> bool:
        return any(
            each.producer_id == producer_id and each.first_offset <= offset < each.marker_offset
            for each in self.outcomes
            if each.is_commit
        )

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that overlap [start, end)."""
        return {
            (each.producer_id, each.first_offset)
            for each in self.outcomes
            if not each.is_commit and each.first_offset < end and start <= each.marker_offset
        }


def append(partition: LeaderPartition | FollowerPartition, batch: bytearray) -> None:
    """The leader appends it; a follower gets it, and hears of its commit at once."""
    partition.log.append_as_follower(memoryview(batch), EPOCH, NOW)
    if isinstance(partition, LeaderPartition):
        partition.ends.appended(len(batch))
    else:
        partition.appended(len(batch))
        partition.advance_high_watermark(partition.log_end_offset)


def batches(row: Any) -> Iterator[tuple[int, Any]]:
    """(position, header) of the batches of a row."""
    return iter(()) if isinstance(row.records, bytes) else iterate_headers(row.records.read())


def values(row: Any) -> list[bytes | None]:
    """Of all records of a row, markers included."""
    if isinstance(row.records, bytes):
        return []
    data = row.records.read()
    return [record.value for position, _ in batches(row) for record in read_records(data, position)]


def taken(row: Any, offset: int) -> tuple[list[int], int]:
    """What a consumer takes of a row that it reads from `offset` on, and where it goes on.

    As Kafka's CompletedFetch does it (KIP-98).
    """
    waiting = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions)
    aborted: set[int] = set()
    found, goes_on = [], offset
    data = b"" if isinstance(row.records, bytes) else row.records.read()
    for position, header in batches(row):
        while waiting and waiting[0][0] <= header.last_offset:
            aborted.add(waiting.pop(0)[1])
        goes_on = header.next_offset
        if header.is_control:
            marker = read_marker(data, position)
            if marker is not None and not marker.is_commit:
                aborted.discard(marker.producer_id)
        elif not header.is_transactional or header.producer_id not in aborted:
            found += [record.offset for record in read_records(data, position)]
    return [each for each in found if each >= offset], goes_on
