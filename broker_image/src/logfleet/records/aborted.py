"""Leaves out the batches of aborted transactions, as a reader of committed records does (KIP-98).

A broker sends with its batches which transactions among them were aborted: producer id and first
offset. A transaction ends at the next abort marker of its producer, so one producer may have
several. The list may name more than the batches need (Kafka:
`CompletedFetch.consumeAbortedTransactionsUpTo`).
"""

from collections.abc import Iterator, Sequence

import msgspec

from logfleet.records.batch import BatchHeader, crc_matches, iterate_headers
from logfleet.records.checksum import Buffer
from logfleet.records.control import read_marker
from logfleet.records.errors import CorruptRecords


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """An aborted transaction whose records begin at first_offset."""

    producer_id: int
    first_offset: int


def visible_batches(
    batches: Buffer, aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[int, BatchHeader]]:
    """As `iterate_headers`, without control batches and without the aborted transactions' batches.

    Raises CorruptRecords, also for the wrong checksum of a marker.
    """
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    ended: set[int] = set()
    for position, header in iterate_headers(batches):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            ended.add(waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in ended and _is_abort(batches, header, position):
                ended.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ended):
            yield position, header


def _is_abort(batches: Buffer, header: BatchHeader, position: int) -> bool:
    """Whether the control batch is an abort marker; one that compaction emptied is none."""
    if not crc_matches(batches, header, position):
        raise CorruptRecords(f"checksum at offset {header.base_offset}")
    marker = read_marker(batches, position)
    return marker is not None and not marker.is_commit
