"""Finds records in batches: bytes first, then the record's fields.

A text is searched in the records of a batch before any is decoded, at the speed of memory. Only
records that hold it are decoded, so a search for what is rare costs little more than reading.
"""

from collections.abc import Iterator

import msgspec

from logfleet.records.checksum import Buffer
from logfleet.records.record import (
    DECOMPRESSED_BYTES_MAX,
    Record,
    read_payload,
    read_record_at,
    read_records,
)
from logfleet.records.spans import record_spans
from logfleet.records.where import Where


class Search(msgspec.Struct, frozen=True):
    """The records whose value holds `grep`, whose key holds `key_grep`, for which `where` holds.

    What is None is not tested; empty bytes are held by every key or value but null.
    """

    grep: bytes | None = None
    key_grep: bytes | None = None
    where: Where | None = None

    def matches(
        self,
        batch: Buffer,
        position: int = 0,
        *,
        partition: int = -1,
        budget_bytes: int = DECOMPRESSED_BYTES_MAX,
    ) -> Iterator[Record]:
        """The wanted records of the batch at `position`, in their order.

        partition: what a condition reads as its name. budget_bytes: limit of the decompressed
        records. Raises CorruptRecords, DecompressedTooLarge; the caller checks the checksum and
        leaves out control batches. A batch without the text is not checked any further.
        """
        for record in self._candidates(batch, position, budget_bytes):
            if self.is_wanted(record, partition):
                yield record

    def is_wanted(self, record: Record, partition: int = -1) -> bool:
        """Whether it is one of them."""
        return (
            (self.grep is None or (record.value is not None and self.grep in record.value))
            and (self.key_grep is None or (record.key is not None and self.key_grep in record.key))
            and (self.where is None or self.where.holds(record, partition))
        )

    def _candidates(self, batch: Buffer, position: int, budget_bytes: int) -> Iterator[Record]:
        """All records that may be wanted, and others."""
        needles = [each for each in (self.grep, self.key_grep) if each]
        if not needles:
            return read_records(batch, position, budget_bytes=budget_bytes)
        return _holding(needles, batch, position, budget_bytes)


def _holding(
    needles: list[bytes], batch: Buffer, position: int, budget_bytes: int
) -> Iterator[Record]:
    """The records whose bytes hold the first needle, if the batch holds all of them."""
    header, payload = read_payload(batch, position, budget_bytes=budget_bytes)
    if not all(needle in payload for needle in needles):
        return
    needle = needles[0]
    hit = payload.find(needle)
    for start, end, *_ in record_spans(payload):
        if hit < start:  # it began in the record before, and is no part of this one
            hit = payload.find(needle, start)
        if hit < 0:
            return
        if hit < end:
            yield read_record_at(payload, start, header)
            hit = payload.find(needle, end)
