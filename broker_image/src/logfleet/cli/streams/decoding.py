"""Values in the formats that programs write: JSON, Avro, MessagePack, and hex for everything.

A decoder reads a value as a document: dicts, lists, texts and numbers. What is no document of its
format is shown as it is, and reported once.
"""

import io
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from logfleet.cli.record_text import text_of

Read: TypeAlias = Callable[[bytes], object]
"""The document; raises Unreadable."""

AVRO_FILE: Final = b"Obj\x01"
"""Begins an Avro object container file, which brings its schema."""
CONFLUENT_BYTES: Final = 5
"""A zero and the schema's number in a registry, before what Confluent's serializers write."""
SINGLE_OBJECT: Final = b"\xc3\x01"
SINGLE_OBJECT_BYTES: Final = 10
"""Avro's single object encoding: this marker and the schema's fingerprint, before the object."""
AVRO_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
    struct.error,
)
"""What fastavro raises for bytes that are no Avro."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Unreadable(ValueError):
    """Bytes that are no document of the format; the message says why."""


class Decoder:
    """Reads values of one format.

    keeps_text: values are text already, and are written as they are. warn: called with one line,
    when the first value is unreadable.
    """

    def __init__(
        self, name: str, read: Read, warn: Callable[[str], None], *, keeps_text: bool = False
    ) -> None:
        self.name = name
        self._read = read
        self._warn = warn
        self._keeps_text = keeps_text
        self._has_warned = False

    def document(self, data: bytes) -> object:
        """The document; None for bytes that are none."""
        try:
            return self._read(data)
        except Unreadable:
            return None

    def text(self, data: bytes) -> bytes:
        """The document as one line of JSON, a text as it is; the data if they are no document."""
        try:
            found = self._read(data)
            if self._keeps_text and _is_text(data):
                return data
            return found.encode() if isinstance(found, str) else _json(found)
        except Unreadable as error:
            self._report(error)
            return data

    def json(self, data: bytes) -> "msgspec.Raw":
        """The document in JSON; if the data are none, their text, else their base64."""
        try:
            return msgspec.Raw(_json(self._read(data)))
        except Unreadable as error:
            self._report(error)
            return msgspec.Raw(msgspec.json.encode(text_of(data)))

    def _report(self, error: Unreadable) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"values that are no {self.name} are shown as they are; the first: {error}")


def decoder_of(name: str, schema: Path | None, warn: Callable[[str], None]) -> Decoder:
    """The decoder for a name out of DECODERS.

    schema: a file, for Avro only. Raises ValueError, OSError; ModuleNotFoundError without fastavro.
    """
    if name == "avro":
        return Decoder(name, _avro(schema), warn)
    return Decoder(name, _READERS[name], warn, keeps_text=name in {"auto", "json"})


def _json(document: object) -> bytes:
    try:
        return msgspec.json.encode(document, enc_hook=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(data) is None


def _read_json(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def _read_msgpack(data: bytes) -> object:
    try:
        return msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        raise Unreadable(str(error)) from error


def _read_auto(data: bytes) -> object:
    """JSON, other text, MessagePack with fields or elements, else hex."""
    if _is_text(data):
        try:
            return _read_json(data)
        except Unreadable:
            return data.decode()
    try:
        found = _read_msgpack(data)
        if isinstance(found, dict | list):
            _json(found)
            return found
    except Unreadable:
        pass
    return data.hex()


def _avro(schema: Path | None) -> Read:
    """A reader of Avro: container files, and single objects if there is a schema."""
    given = None if schema is None else json.loads(schema.read_text())
    import fastavro  # of the extra `avro`

    parsed = None if given is None else fastavro.parse_schema(given)

    def read(data: bytes) -> object:
        try:
            if data.startswith(AVRO_FILE):
                return list(fastavro.reader(io.BytesIO(data)))
            if parsed is None:
                raise Unreadable("no container file, and --schema names no schema")
            return _single_object(data, lambda rest: fastavro.schemaless_reader(rest, parsed, None))
        except AVRO_ERRORS as error:
            raise Unreadable(str(error) or type(error).__name__) from error

    return read


def _single_object(data: bytes, read: Callable[[io.BytesIO], Any]) -> object:
    """The object behind whatever header leaves bytes that it fills."""
    failure: Exception | None = None
    for size in _header_sizes(data):
        rest = io.BytesIO(data[size:])
        try:
            found = read(rest)
        except AVRO_ERRORS as error:
            failure = error
            continue
        left = len(rest.read())
        if not left:
            return found
        failure = ValueError(f"{left} bytes are left behind the object")
    assert failure is not None
    raise failure


def _header_sizes(data: bytes) -> list[int]:
    sizes = [0]
    if data.startswith(SINGLE_OBJECT):
        sizes.insert(0, SINGLE_OBJECT_BYTES)
    if data.startswith(b"\0"):
        sizes.insert(0, CONFLUENT_BYTES)
    return sizes


_READERS: Final[dict[str, Read]] = {
    "auto": _read_auto,
    "json": _read_json,
    "msgpack": _read_msgpack,
    "hex": bytes.hex,
}
DECODERS: Final = ("auto", "json", "avro", "msgpack", "hex")
