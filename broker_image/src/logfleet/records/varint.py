"""Zigzag varints of records v2 (KIP-98; Kafka's `ByteUtils.writeVarint` and `writeVarlong`)."""

from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords

VARLONG_BYTES_MAX = 10
"""Longest varint: a 64-bit value in groups of 7 bits."""


def append_varint(target: bytearray, value: int) -> None:
    """Append `value` (64-bit signed) to `target` in 1 to 10 bytes."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        target.append(rest & 0x7F | 0x80)
        rest >>= 7
    target.append(rest)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Value at `position` and the position after it.

    Raises CorruptRecords for more than 64 bits and IndexError if the buffer ends within the value.
    """
    byte = buffer[position]
    position += 1
    rest = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift >= 7 * VARLONG_BYTES_MAX:
            raise CorruptRecords("varint longer than 10 bytes")
        byte = buffer[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
    if rest >> 64:
        raise CorruptRecords("varint beyond 64 bits")
    return (rest >> 1) ^ -(rest & 1), position
