"""The aborted transactions of a segment, as Fetch reports them to readers of committed records.

They stand in the segment's `.txnindex`, ordered by their markers, which lie in the segment; their
data may lie in earlier ones. Upholds I32. Source: Kafka's `TransactionIndex`, `AbortedTxn`.
"""

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
"""Version 0, producer id, first offset, last offset, last stable offset."""
LAST_FIELD: Final = 3
"""Number of the last offset among the fields."""

_VERSION: Final = 0

Fields = tuple[int, int, int, int, int]


class AbortedEntry(msgspec.Struct, frozen=True, gc=False):
    """One aborted transaction of one partition.

    first_offset: of its first record; last_offset: of its marker. last_stable_offset: at that time,
    had everything been replicated; all transactions that began below it had ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def pack(self) -> bytes:
        return ABORTED_ENTRY.pack(
            _VERSION,
            self.producer_id,
            self.first_offset,
            self.last_offset,
            self.last_stable_offset,
        )


def sound_count(entries: Iterable[Fields]) -> int:
    """How many leading entries can be true; what a power loss leaves behind them cannot be."""
    count, before = 0, -1
    for version, _, first, last, stable in entries:
        if version != _VERSION or not 0 <= first < last > before or not 0 <= stable <= last + 1:
            break
        before = last
        count += 1
    return count


def overlapping(entries: Iterable[Fields], start: int, end: int) -> tuple[list[AbortedEntry], bool]:
    """The transactions of one segment with records in [start, end), and whether that is all.

    entries: of its index, at least those whose marker is at or behind `start`. False if the next
    segment must be asked, too: a transaction with records in the range may end there.
    """
    found = []
    for _, producer_id, first, last, stable in entries:
        if first < end and last >= start:
            found.append(AbortedEntry(producer_id, first, last, stable))
        if stable >= end:
            return found, True
    return found, False
