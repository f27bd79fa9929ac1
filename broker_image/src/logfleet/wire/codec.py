"""Bytes to messages and back, for every message and version of the schema table.

Decoders and encoders are generated from the table on first use (a few milliseconds each) and
cached. On a hot path fetch the function once: `decode = decoder(FetchRequest, 13)`.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from logfleet.wire.decoding import generate_decoder, generate_request_decoder
from logfleet.wire.encoding import generate_encoder
from logfleet.wire.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from logfleet.wire.primitives import Buffer, Sized
from logfleet.wire.schema import Message, load_table

# Limit of the memory for a message that is decoded without counting, per byte on the wire: Python's
# smallest struct of two empty lists takes 150 bytes, but three on the wire. Only for messages that
# our brokers wrote; requests are counted.
MEMORY_PER_BYTE_MAX = 64

M = TypeVar("M", bound=msgspec.Struct)

# Filled on first use, never emptied: at most one entry per message and version of the table.
_decoders: dict[tuple[type, int], Callable[..., Any]] = {}
_request_decoders: dict[tuple[type, int], Callable[..., Any]] = {}
_encoders: dict[tuple[type, int], Callable[..., Any]] = {}


def _schema(cls: type[msgspec.Struct], version: int) -> Message:
    schema = load_table().get(cls.__name__)
    if schema is None or not schema.versions[0] <= version <= schema.versions[1]:
        raise UnsupportedVersion(f"no schema for {cls.__name__} version {version}")
    return schema


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """The function behind `decode` for one message and version; raises UnsupportedVersion."""
    made = _decoders.get((cls, version))
    if made is None:
        made = _decoders[cls, version] = _guarded(generate_decoder, cls, version)
    return made


def request_decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """A function (frame, position) -> (request, bytes of memory counted for its arrays).

    It is for untrusted clients: a request that would take more memory than `request_memory` allows
    is a MalformedMessage, before that memory is allocated. Raises UnsupportedVersion.
    """
    made = _request_decoders.get((cls, version))
    if made is None:
        made = _request_decoders[cls, version] = _guarded(generate_request_decoder, cls, version)
    return made


def encoder(cls: type[M], version: int) -> Callable[[M], list[Buffer | Sized]]:
    """The function behind `encode` for one message and version; raises UnsupportedVersion."""
    made = _encoders.get((cls, version))
    if made is None:
        made = _encoders[cls, version] = _guarded_encoder(cls, version)
    return made


def _guarded(
    generate: Callable[..., Callable[..., Any]], cls: type[msgspec.Struct], version: int
) -> Callable[..., Any]:
    """Wrap a decoder so that it raises only MalformedMessage.

    generate: one of the generators in `wire.decoding`.
    """
    schema = _schema(cls, version)
    generated = generate(cls, schema, version)
    name = f"{cls.__name__} version {version}"

    @cache
    def replacing() -> Callable[..., Any]:
        return generate(cls, schema, version, replaces=True)

    def decode(buffer: Buffer, position: int) -> tuple[msgspec.Struct, int]:
        try:
            try:
                return generated(buffer, position)  # type: ignore[no-any-return]
            except UnicodeDecodeError:
                pass  # leaving the handler frees what was decoded so far, which the traceback holds
            return replacing()(buffer, position)  # type: ignore[no-any-return]
        except MalformedMessage as error:
            raise MalformedMessage(f"{name}: {error}") from None
        except (struct.error, IndexError) as error:
            raise MalformedMessage(f"{name}: {error}") from error

    return decode


def _guarded_encoder(cls: type[M], version: int) -> Callable[[M], list[Buffer | Sized]]:
    generated = generate_encoder(cls, _schema(cls, version), version)
    name = f"{cls.__name__} version {version}"

    def encode(message: M) -> list[Buffer | Sized]:
        try:
            return generated(message)  # type: ignore[no-any-return]
        except UnencodableMessage:
            raise
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise UnencodableMessage(f"{name}: {error}: {message!r:.500}") from error

    return encode


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> tuple[M, int]:
    """The message at `position` (bytes), and the position behind it.

    `records` are slices of `buffer` (keep it unchanged as long as they are used); everything else
    is copied. Arrays are refused before they are built if their elements cannot fit into the rest
    of the buffer. Strings that are not UTF-8 are read as Kafka reads them. Raises MalformedMessage,
    and nothing else, for invalid bytes; UnsupportedVersion if the table lacks the version.
    """
    return decoder(cls, version)(buffer, position)


def encode(message: msgspec.Struct, version: int) -> list[Buffer | Sized]:
    """The message as buffers to be sent one after another.

    The value of a `records` field becomes an element of its own, unchanged: any object with a
    length will do, so a range of a file can be passed on to sendfile. Raises UnencodableMessage if
    a value does not fit its field, or a field is set that this version lacks and that is not
    ignorable; UnsupportedVersion.
    """
    return encoder(type(message), version)(message)


def encode_bytes(message: msgspec.Struct, version: int) -> bytes:
    """As `encode`, in one piece; `records` must be bytes-like."""
    return b"".join(encoder(type(message), version)(message))  # type: ignore[arg-type]
