"""Positions of the records in a batch, without decoding all their fields.

Compaction uses them to read whole logs. `record.read_records` decodes everything of a record and
costs several times as much. A record that stays in its batch keeps its bytes, so compaction needs
only its position, its key and whether it has a value.
"""

from collections.abc import Iterator

from logfleet.records.errors import CorruptRecords
from logfleet.records.varint import read_varint

RecordSpan = tuple[int, int, int, int, bytes | None, bool]
"""(start, end, timestamp delta, offset delta, key, has a value); the record with its length
fills [start, end)."""


def record_spans(payload: bytes) -> Iterator[RecordSpan]:
    """The records in `payload`, the decompressed part of a batch behind its header, in order.

    Headers of records are not read. Raises CorruptRecords if the other fields do not fit into their
    record. Varints of one byte, the usual ones, are read in place: a call for each would double the
    cost.
    """
    end, total = 0, len(payload)
    try:
        while end < total:
            start = end
            size, cursor = _read_varint(payload, start)
            end = cursor + size
            if size < 0 or end > total:
                raise CorruptRecords(f"a record of {size} bytes, only {total - cursor} left")
            # the byte at the cursor is the record's attributes, of which none are defined
            byte = payload[cursor + 1]
            if byte < 0x80:
                timestamp_delta, cursor = (byte >> 1) ^ -(byte & 1), cursor + 2
            else:
                timestamp_delta, cursor = _read_varint(payload, cursor + 1)
            byte = payload[cursor]
            if byte < 0x80:
                offset_delta, cursor = (byte >> 1) ^ -(byte & 1), cursor + 1
            else:
                offset_delta, cursor = _read_varint(payload, cursor)
            byte = payload[cursor]
            if byte < 0x80:
                size, cursor = (byte >> 1) ^ -(byte & 1), cursor + 1
            else:
                size, cursor = _read_varint(payload, cursor)
            key = None
            if size >= 0:
                key = payload[cursor : cursor + size]
                cursor += size
            byte = payload[cursor]
            if byte < 0x80:
                size, cursor = (byte >> 1) ^ -(byte & 1), cursor + 1
            else:
                size, cursor = _read_varint(payload, cursor)
            if (cursor + size if size > 0 else cursor) >= end:  # a count of headers must follow
                raise CorruptRecords(f"a record of {end - start} bytes ends within its fields")
            yield start, end, timestamp_delta, offset_delta, key, size >= 0
    except IndexError:
        raise CorruptRecords("a record ends early") from None


def _read_varint(payload: bytes, cursor: int) -> tuple[int, int]:
    """As `read_varint`, but faster for two bytes."""
    first, second = payload[cursor], payload[cursor + 1]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), cursor + 1
    if second < 0x80:
        rest = first & 0x7F | second << 7
        return (rest >> 1) ^ -(rest & 1), cursor + 2
    return read_varint(payload, cursor)
