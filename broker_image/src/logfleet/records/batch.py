"""Record batch v2 (KIP-98): the header, and the few fields a broker changes in place.

    position  0 base offset i64          23 last offset delta i32
              8 batch length i32         27 base timestamp i64
             12 leader epoch i32         35 max timestamp i64
             16 magic i8                 43 producer id i64
             17 crc u32                  51 producer epoch i16
             21 attributes i16           53 base sequence i32
                                         57 record count i32, records from 61

Batch length counts the bytes after its own field. The checksum covers position 21 to the end, so
the leader can write base offset and leader epoch without a new checksum. Compression covers the
records only. Produce, replication and fetch read only this header: one unpack per batch, however
many records it holds.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

import msgspec

from logfleet.records.checksum import Buffer, crc32c
from logfleet.records.compression import Codec
from logfleet.records.errors import CorruptRecords
from logfleet.types import LeaderEpoch, ProducerEpoch

MAGIC = 2
HEADER_SIZE = 61
LENGTH_OVERHEAD = 12
"""Base offset and batch length: the bytes that batch length does not count."""
LENGTH_MIN = 14
"""No batch of any magic has a smaller batch length (LegacyRecord.RECORD_OVERHEAD_V0)."""
CRC_COVERS_FROM = 21
"""The checksum covers everything from the attributes on."""

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
SEQUENCE_MAX = 2**31 - 1
"""Sequences wrap from this to 0 (`DefaultRecordBatch.incrementSequence`)."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")


class TimestampType(IntEnum):
    """Bit 3 of the attributes, and the meaning of `message.timestamp.type`."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The 61 bytes before the records, in their order on the wire.

    Times are milliseconds since 1970.
    """

    base_offset: int
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_bits(self) -> int:
        """The codec in the attributes: 0 to 4 for a Codec; 5 to 7 are undefined."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is a delete horizon (KIP-534), not a record's time."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped; NO_SEQUENCE without a producer."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, by: int) -> int:
    """`sequence` plus `by`, where 0 follows SEQUENCE_MAX."""
    return (sequence + by) & SEQUENCE_MAX


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Header of the batch at `position`; nothing is checked.

    Raises CorruptRecords if the buffer ends within it.
    """
    try:
        return BatchHeader(*HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptRecords(f"no room for a batch header at {position} of {len(buffer)}") from None


def read_codec(header: BatchHeader) -> Codec:
    """The batch's codec. Raises CorruptRecords for an undefined one."""
    try:
        return Codec(header.attributes & CODEC_MASK)
    except ValueError:
        raise CorruptRecords(f"undefined codec {header.codec_bits}") from None


def crc_matches(buffer: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Whether the checksum is right. The whole batch must be in the buffer."""
    return (
        crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : position + header.size])
        == header.crc
    )


def iterate_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch.

    A batch cut off at the end, as in fetches, is skipped. Raises CorruptRecords for an impossible
    length or magic, as the next batch cannot be found then.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = BatchHeader(*HEADER.unpack_from(buffer, position))
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise CorruptRecords(
                f"no batch at {position}: magic {header.magic}, length {header.batch_length}"
            )
        if header.size > end - position:
            return
        yield position, header
        position += header.size


def assign_offsets(
    buffer: bytearray | memoryview, base_offset: int, leader_epoch: LeaderEpoch, position: int = 0
) -> None:
    """Write the leader's base offset and epoch into the batch; the checksum stays right."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + 12, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, now_ms: int) -> None:
    """Give all records of the batch at position 0 the broker's time, and set a new checksum.

    Record deltas stay: readers use the max timestamp for every record (KIP-32).
    """
    _set_timestamps(buffer, LOG_APPEND_TIME_BIT, now_ms)


def set_create_time(buffer: bytearray | memoryview, newest: int) -> None:
    """Let the batch at position 0 use its records' own times, the largest of which is `newest`.

    Sets a new checksum.
    """
    _set_timestamps(buffer, 0, newest)


def _set_timestamps(buffer: bytearray | memoryview, kind_bit: int, newest: int) -> None:
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, 21)
    _ATTRIBUTES.pack_into(buffer, 21, attributes & ~LOG_APPEND_TIME_BIT | kind_bit)
    _TIMESTAMP.pack_into(buffer, 35, newest)
    write_crc(buffer)


def write_crc(buffer: bytearray | memoryview) -> None:
    """Set the checksum of the one batch that fills `buffer`."""
    _CRC.pack_into(buffer, 17, crc32c(memoryview(buffer)[CRC_COVERS_FROM:]))


def replace_payload(batch: Buffer, codec: Codec, body: Buffer) -> bytearray:
    """A copy of the one batch in `batch` with the records `body`, already in `codec`.

    The rest is the same.
    """
    changed = bytearray(batch[:HEADER_SIZE])
    changed += body
    _LENGTH.pack_into(changed, 8, len(changed) - LENGTH_OVERHEAD)
    (attributes,) = _ATTRIBUTES.unpack_from(changed, 21)
    _ATTRIBUTES.pack_into(changed, 21, attributes & ~CODEC_MASK | codec)
    write_crc(changed)
    return changed
