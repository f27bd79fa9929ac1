"""Records inside a batch: building a batch from records and reading them back.

Not for the hot paths: for clients, coordinators that replay their logs, timestamp search, key
checks on compacted topics.
"""

import struct
from collections.abc import Iterator, Sequence

import msgspec

from logfleet.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    parse_header,
    read_codec,
    write_crc,
)
from logfleet.records.checksum import Buffer
from logfleet.records.compression import Codec, compress, decompress, decompressed_pieces
from logfleet.records.errors import CorruptRecords
from logfleet.records.varint import append_varint, read_varint
from logfleet.types import NO_LEADER_EPOCH, LeaderEpoch
from logfleet.wire.java_text import java_text

Header = tuple[str, bytes | None]

_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")

LENGTH_BYTES_MAX = 5
"""Longest varint in front of a record (its length)."""
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Default budget: above the largest request (socket.request.max.bytes, 100 MiB)."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. timestamp: milliseconds since 1970; offset: -1 until read from a batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...] = ()
    offset: int = -1


class ProducerStamp(msgspec.Struct, frozen=True):
    """The producer's identity in a batch (KIP-98).

    The default is a producer without idempotence.
    """

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    producer: ProducerStamp | None = None,
    control: bool = False,
) -> bytearray:
    """One batch with `records` (at least one) at consecutive offsets from `base_offset`.

    level: see `compress`. The offsets in `records` are ignored.
    """
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp
    payload = bytearray()
    for delta, record in enumerate(records):
        _append_record(payload, record, record.timestamp - base_timestamp, delta)
    return batch_of(
        payload,
        len(records),
        base_timestamp,
        max(record.timestamp for record in records),
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer=producer,
        control=control,
    )


def batch_of(
    payload: Buffer,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    producer: ProducerStamp | None = None,
    control: bool = False,
) -> bytearray:
    """One batch around `count` encoded records, whose offsets in the batch are 0, 1, 2 and so on.

    See `build_batch`.
    """
    stamp = producer or ProducerStamp()
    body = payload if codec is Codec.NONE else compress(codec, payload, level)
    attributes = (
        codec | (TRANSACTIONAL_BIT if stamp.transactional else 0) | (CONTROL_BIT if control else 0)
    )
    batch = bytearray(HEADER_SIZE + len(body))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        stamp.producer_id,
        stamp.epoch,
        stamp.base_sequence,
        count,
    )
    batch[HEADER_SIZE:] = body
    write_crc(batch)
    return batch


def stamp_batch(batch: bytearray | memoryview, producer: ProducerStamp) -> None:
    """Make the one batch that fills `batch`, of no producer, one of this producer's."""
    attributes = parse_header(batch).attributes
    _ATTRIBUTES.pack_into(
        batch, 21, attributes | (TRANSACTIONAL_BIT if producer.transactional else 0)
    )
    _PRODUCER.pack_into(batch, 43, producer.producer_id, producer.epoch, producer.base_sequence)
    write_crc(batch)


def _append_record(payload: bytearray, record: Record, timestamp_delta: int, delta: int) -> None:
    body = bytearray(1)  # record attributes: none are defined
    append_varint(body, timestamp_delta)
    append_varint(body, delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    _append_headers(body, record.headers)
    append_varint(payload, len(body))
    payload += body


def bytes_field(value: bytes | None) -> bytes:
    """A key or value, encoded."""
    field = bytearray()
    _append_bytes(field, value)
    return bytes(field)


def headers_field(headers: Sequence[Header]) -> bytes:
    """The headers of a record, encoded."""
    field = bytearray()
    _append_headers(field, headers)
    return bytes(field)


def _append_headers(body: bytearray, headers: Sequence[Header]) -> None:
    append_varint(body, len(headers))
    for name, value in headers:
        _append_bytes(body, name.encode())
        _append_bytes(body, value)


def _append_bytes(body: bytearray, value: bytes | None) -> None:
    if value is None:
        append_varint(body, -1)
    else:
        append_varint(body, len(value))
        body += value


def read_records(
    batch: Buffer,
    position: int = 0,
    *,
    budget_bytes: int = DECOMPRESSED_BYTES_MAX,
    record_bytes_max: int | None = None,
) -> Iterator[Record]:
    """Records of the batch at `position`, in offset order; keys and values are copies.

    Decompresses while reading. budget_bytes: limit of the decompressed records. record_bytes_max:
    limit of one record, without its length. Raises CorruptRecords if the records do not match the
    header's count, DecompressedTooLarge beyond the budget; the caller checks the checksum. Header
    names that are not UTF-8 are read with replacement characters, as Java does.
    """
    header = parse_header(batch, position)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(batch) - position:
        raise CorruptRecords(f"no whole batch of magic 2 at {position}")
    body = memoryview(batch)[position + HEADER_SIZE : position + header.size]
    pieces = decompressed_pieces(read_codec(header), body, budget_bytes)
    # bytes, not a memoryview: indexing is faster, and slices can serve as keys and values
    payload = bytes(next(pieces, b""))
    append_time = _append_time(header)
    count = cursor = 0
    try:
        while True:
            if len(payload) - cursor < LENGTH_BYTES_MAX:
                payload, cursor = _with_more(payload[cursor:], pieces, LENGTH_BYTES_MAX), 0
                if not payload:
                    break
            if count == header.record_count:
                raise CorruptRecords(f"more records than the {count} in the header")
            size, cursor = read_varint(payload, cursor)
            if record_bytes_max is not None and size > record_bytes_max:
                raise CorruptRecords(f"a record of {size} bytes, the limit is {record_bytes_max}")
            if cursor + size > len(payload):
                payload, cursor = _with_more(payload[cursor:], pieces, size), 0
            end = cursor + size
            if size < 0 or end > len(payload):
                raise CorruptRecords(f"a record of {size} bytes, only {len(payload) - cursor} left")
            yield _read_record(payload[cursor:end], header, append_time)
            cursor = end
            count += 1
    except IndexError:
        raise CorruptRecords("a record ends early") from None
    if count != header.record_count:
        raise CorruptRecords(f"{count} records, but the header counts {header.record_count}")


def read_payload(
    batch: Buffer, position: int = 0, *, budget_bytes: int = DECOMPRESSED_BYTES_MAX
) -> tuple[BatchHeader, bytes]:
    """The header of the batch at `position`, and its decompressed records, not yet decoded.

    Raises CorruptRecords, DecompressedTooLarge beyond the budget.
    """
    header = parse_header(batch, position)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(batch) - position:
        raise CorruptRecords(f"no whole batch of magic 2 at {position}")
    body = memoryview(batch)[position + HEADER_SIZE : position + header.size]
    return header, bytes(decompress(read_codec(header), body, budget_bytes))


def read_record_at(payload: bytes, start: int, header: BatchHeader) -> Record:
    """The record of the batch with this header whose length is at `start` of its payload.

    Raises CorruptRecords.
    """
    try:
        size, cursor = read_varint(payload, start)
        if size < 0 or cursor + size > len(payload):
            raise CorruptRecords(f"a record of {size} bytes, only {len(payload) - cursor} left")
        return _read_record(payload[cursor : cursor + size], header, _append_time(header))
    except IndexError:
        raise CorruptRecords("a record ends early") from None


def _append_time(header: BatchHeader) -> int | None:
    """The time of all records of the batch; None if they have their own."""
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return header.max_timestamp if is_append_time else None


def _with_more(payload: bytes, pieces: Iterator[Buffer], wanted: int) -> bytes:
    """The payload with further pieces, until it has `wanted` bytes or the pieces end."""
    parts, size = [payload], len(payload)
    while size < wanted and (piece := next(pieces, None)) is not None:
        parts.append(bytes(piece))
        size += len(piece)
    return b"".join(parts)


def _read_record(body: bytes, header: BatchHeader, append_time: int | None) -> Record:
    """The record with these bytes (behind its length).

    Position 0 is its attributes, of which none are defined.
    """
    timestamp_delta, cursor = read_varint(body, 1)
    offset_delta, cursor = read_varint(body, cursor)
    key, cursor = _read_bytes(body, cursor)
    value, cursor = _read_bytes(body, cursor)
    headers: tuple[Header, ...] = ()
    if body[cursor]:
        headers, cursor = _read_headers(body, cursor)
    else:
        cursor += 1
    if cursor != len(body):
        raise CorruptRecords(f"a record of {len(body)} bytes, its fields end at {cursor}")
    return Record(
        key,
        value,
        header.base_timestamp + timestamp_delta if append_time is None else append_time,
        headers,
        header.base_offset + offset_delta,
    )


def _read_bytes(body: bytes, cursor: int) -> tuple[bytes | None, int]:
    byte = body[cursor]
    if byte > 0x7F:
        size, start = read_varint(body, cursor)
    else:  # one byte, the usual case
        size, start = (byte >> 1) ^ -(byte & 1), cursor + 1
    if size < 0:
        return None, start
    end = start + size
    if end > len(body):
        raise CorruptRecords(f"a field of {size} bytes in a record of {len(body)}")
    return body[start:end], end


def _read_headers(body: bytes, cursor: int) -> tuple[tuple[Header, ...], int]:
    count, cursor = read_varint(body, cursor)
    if not 0 <= count <= len(body):
        raise CorruptRecords(f"{count} headers in a record of {len(body)} bytes")
    headers = []
    for _ in range(count):
        name, cursor = _read_bytes(body, cursor)
        if name is None:
            raise CorruptRecords("a header without a name")
        value, cursor = _read_bytes(body, cursor)
        try:
            text = name.decode()
        except UnicodeDecodeError:
            text = java_text(name)
        headers.append((text, value))
    return tuple(headers), cursor
