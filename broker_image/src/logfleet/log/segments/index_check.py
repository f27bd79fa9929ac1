"""Checks index entries against the log, one by one in one pass, as Kafka's DumpLogSegments does."""

from collections.abc import Iterable, Iterator

from logfleet.records.batch import BatchHeader

Batches = Iterable[tuple[int, BatchHeader]]
"""(position, header) of a segment's batches, in order."""


def offset_entries_match(entries: Iterable[tuple[int, int]], batches: Batches) -> Iterator[bool]:
    """For each (offset, position), whether that batch begins and ends there."""
    rest = iter(batches)
    batch = next(rest, None)
    for offset, position in entries:
        while batch is not None and batch[0] < position:
            batch = next(rest, None)
        yield batch is not None and batch[0] == position and batch[1].last_offset == offset


def time_entries_match(entries: Iterable[tuple[int, int]], batches: Batches) -> Iterator[bool]:
    """For each (timestamp, offset), whether the offset's batch has that largest timestamp."""
    rest = iter(batches)
    batch = next(rest, None)
    for timestamp, offset in entries:
        while batch is not None and batch[1].last_offset < offset:
            batch = next(rest, None)
        yield (
            batch is not None
            and batch[1].base_offset <= offset
            and batch[1].max_timestamp == timestamp
        )


def aborted_entries_match(entries: Iterable[tuple[int, int]], batches: Batches) -> Iterator[bool]:
    """For each (producer id, offset of its marker), whether that batch may be the marker."""
    rest = iter(batches)
    batch = next(rest, None)
    for producer_id, offset in entries:
        while batch is not None and batch[1].base_offset < offset:
            batch = next(rest, None)
        yield (
            batch is not None
            and batch[1].base_offset == offset
            and batch[1].producer_id == producer_id
            and batch[1].is_control
        )
