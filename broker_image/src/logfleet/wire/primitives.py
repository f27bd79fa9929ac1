"""Runtime of the generated decoders and encoders: varints, tags, small arrays of integers."""

from functools import cache
from struct import Struct, pack, unpack_from
from typing import Any, Protocol

from logfleet.wire.errors import MalformedMessage, UnencodableMessage
from logfleet.wire.java_text import java_text

Buffer = bytes | memoryview

STRING_BYTES_MAX = 32767  # Kafka's limit for every string, even if the length is a varint
SMALL_ARRAY_MAX = 32  # arrays of integers up to this length have a precompiled struct


class Sized(Protocol):
    """A file range in a response: only its length is used."""

    def __len__(self) -> int: ...


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Value of an unsigned varint of at most 5 bytes, and the position behind it."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessage("varint longer than 5 bytes")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return SMALL_UVARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_UVARINTS = [bytes([value]) for value in range(0x80)]


def skip_tags(buffer: Buffer, position: int) -> int:
    """Position behind a section of tagged fields, all of which are skipped."""
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise MalformedMessage("tagged field beyond the end")
    return position


def long_string_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Length + 1 of a compact string of 127 bytes or more, as `read_uvarint`."""
    length, position = read_uvarint(buffer, position)
    if length > STRING_BYTES_MAX + 1:
        raise MalformedMessage("string longer than 32767 bytes")
    return length, position


def long_string_prefix(length: int) -> bytes:
    """The varint for length + 1 of a compact string."""
    if length > STRING_BYTES_MAX + 1:
        raise UnencodableMessage("string longer than 32767 bytes")
    return uvarint(length)


def replaced_string(data: Buffer) -> str:
    """Decode a string that is not UTF-8, as `java_text` does.

    Raises MalformedMessage if the result is too long to be encoded again: Kafka cannot answer with
    such a string either.
    """
    text = java_text(data)
    if len(text.encode()) > STRING_BYTES_MAX:
        raise MalformedMessage(
            "string longer than 32767 bytes once bytes that are not UTF-8 are replaced"
        )
    return text


def bad_length(length: int, what: str) -> MalformedMessage:
    return MalformedMessage(
        f"{what} of length {length} is beyond the end, or null where that is not allowed"
    )


def too_many(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what}: more elements than one request may have")


@cache
def array_unpackers(code: str) -> list[Any]:
    """Functions that unpack n values of one struct code, by n (below SMALL_ARRAY_MAX)."""
    return [Struct(f">{n}{code}").unpack_from for n in range(SMALL_ARRAY_MAX)]


@cache
def array_packers(prefix: str, code: str) -> list[Any]:
    """As `array_unpackers`: packs a count (struct code `prefix`) and n elements."""
    return [Struct(f">{prefix}{n}{code}").pack for n in range(SMALL_ARRAY_MAX)]


def unpack_array(code: str, count: int, buffer: Buffer, position: int) -> tuple[Any, ...]:
    return unpack_from(f">{count}{code}", buffer, position)


def pack_array(code: str, values: list[Any]) -> bytes:
    return pack(f">{len(values)}{code}", *values)
