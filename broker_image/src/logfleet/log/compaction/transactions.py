"""The transactions in the batches that one round of compaction comes to, in the log's order.

Upholds I32 and I33. All of them are decided, as compaction stays below the last stable offset; the
transaction indexes tell which were aborted, before their batches come. A marker is needed while any
batch of its transaction is in the log: without it a replay would leave the transaction open, and a
reader could not tell where an aborted one ends. So a round remembers, from its first batch to its
last, of which transactions it has seen some (KAFKA-8351). An emptied batch counts, too.
Source: Kafka's CleanedTransactionMetadata.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

import msgspec

from logfleet.log.aborted import AbortedEntry
from logfleet.records.batch import BatchHeader
from logfleet.records.control import Marker


class EndedTransaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction whose marker the round has come to.

    is_gone: none of its batches was seen, so that its marker may go. aborted: its entry, which the
    new segment's transaction index needs.
    """

    is_gone: bool
    aborted: AbortedEntry | None = None


_KEPT = EndedTransaction(is_gone=False)
_GONE = EndedTransaction(is_gone=True)


class CleanedTransactions:
    """The state of a round. It begins at the start of a segment, with no transaction."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, AbortedEntry]] = []  # by first offset, see heapq
        self._aborted: dict[int, AbortedEntry] = {}  # begun, by producer id
        self._seen: set[int] = set()  # producers of which a batch was seen since their last marker

    def add(self, aborted: Iterable[AbortedEntry]) -> None:
        """Add aborted transactions, in any order, before `read` gets their first batch."""
        for entry in aborted:
            heappush(self._waiting, (entry.first_offset, entry.last_offset, entry))

    def read(self, header: BatchHeader) -> bool:
        """Record a transactional batch of records; returns whether it was aborted."""
        self._seen.add(header.producer_id)
        entry = self._begun(header)
        return entry is not None and header.last_offset < entry.last_offset

    def end(self, header: BatchHeader, marker: Marker | None) -> EndedTransaction:
        """Record a control batch. marker: what it holds (`read_marker`).

        One without records has lost its marker: that ended a transaction that is gone. A control
        record of another type stays.
        """
        if marker is None:
            return _KEPT if header.record_count else _GONE
        entry = self._begun(header)
        if entry is not None and entry.last_offset <= header.base_offset:
            del self._aborted[header.producer_id]
        if header.producer_id not in self._seen:
            return _GONE
        self._seen.remove(header.producer_id)
        if entry is None or entry.last_offset != header.base_offset:
            return _KEPT
        return EndedTransaction(is_gone=False, aborted=entry)

    def _begun(self, header: BatchHeader) -> AbortedEntry | None:
        """The last aborted transaction of the batch's producer that began at or before it."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= header.last_offset:
            entry = heappop(waiting)[2]
            self._aborted[entry.producer_id] = entry
        return self._aborted.get(header.producer_id)
