"""Records as text: what `logfleet produce` reads and `logfleet consume` writes. Pure.

JSON has one object per record: `{"key": "k", "value": "v", "headers": [["name", "value"]],
"timestamp": 1700000000000}`, timestamp in milliseconds since 1970. Bytes that are not UTF-8 are
`{"base64": "..."}`, so nothing is lost.
"""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from logfleet.records.record import Header, Record

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_SINGLE: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class TextError(ValueError):
    """A malformed text; the message says what to write."""


class Draft(msgspec.Struct, frozen=True):
    """A record to write. partition, timestamp_ms: None if the producer decides."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def unescape(text: str) -> bytes:
    r"""The bytes of a text with the escapes \n, \t, \r, \0, \\ and \xHH. Raises TextError."""

    def plain(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("x") and len(name) == 3:
            byte = int(name[1:], 16)
            return chr(byte if byte < 0x80 else 0xDC00 + byte)  # PEP 383: a lone byte
        if name not in _SINGLE:
            raise TextError(rf"{match[0]!r}: write \n, \t, \r, \0, \\ or \xHH")
        return _SINGLE[name]

    try:
        return _ESCAPE.sub(plain, text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise TextError(f"{text!r}: {error.reason}") from error


class LineCutter:
    """Cuts a stream of bytes at a delimiter."""

    def __init__(self, delimiter: bytes, line_bytes_max: int) -> None:
        assert delimiter
        self._delimiter = delimiter
        self._line_bytes_max = line_bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now. Raises TextError if one grows too long."""
        size = len(self._delimiter)
        searched = max(0, len(self._rest) - size + 1)
        self._rest += data
        if self._rest.find(self._delimiter, searched) < 0:
            lines = []
        else:
            *lines, rest = bytes(self._rest).split(self._delimiter)
            self._rest = bytearray(rest)
        if max(map(len, lines), default=len(self._rest)) > self._line_bytes_max:
            raise TextError(f"a record of more than {self._line_bytes_max} bytes")
        return lines

    def end(self) -> list[bytes]:
        """The last line, if no delimiter ended it."""
        return [bytes(self._rest)] if self._rest else []


def draft_reader(
    *, separator: bytes | None, null: bytes | None = None, key: bytes | None = None
) -> Callable[[bytes], Draft]:
    """A function that reads a line as a value, or as key, separator, value; it raises TextError.

    null: the text of a null key or value; None: there is none. key: of all records, without a
    separator.
    """

    def read(line: bytes) -> Draft:
        own_key: bytes | None = key
        value: bytes | None = line
        if separator is not None:
            own_key, found, value = line.partition(separator)
            if not found:
                text = separator.decode(errors="replace")
                raise TextError(f"has no {text!r}, so there is no telling its key from its value")
            own_key = None if own_key == null else own_key
        return Draft(own_key, None if value == null else value)

    return read


# --- JSON


class _Encoded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base64: str


_Text: TypeAlias = str | _Encoded | None
# a non-negative int64; -1: the record has no timestamp (Kafka: RecordBatch.NO_TIMESTAMP)
_Timestamp: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]


class _JsonRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """topic and offset are accepted and ignored, so that consumed records can be produced again."""

    value: _Text
    key: _Text = None
    headers: list[tuple[str, _Text]] = []
    timestamp: _Timestamp | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None


def read_json(line: bytes) -> Draft:
    """Parse a record in JSON. Raises TextError."""
    try:
        row = msgspec.json.decode(line, type=_JsonRecord)
        headers = tuple((name, _bytes_of(value)) for name, value in row.headers)
        return Draft(
            _bytes_of(row.key), _bytes_of(row.value), headers, row.partition, row.timestamp
        )
    except (msgspec.DecodeError, UnicodeError) as error:
        raise TextError(f"is no record in JSON: {error}") from error
    except binascii.Error as error:
        raise TextError(f"base64: {error}") from error


def _bytes_of(text: _Text) -> bytes | None:
    if isinstance(text, _Encoded):
        return b64decode(text.base64, validate=True)
    return None if text is None else text.encode()


def write_json(
    topic: str, partition: int, record: Record, value_of: Callable[[bytes], object] | None = None
) -> bytes:
    """A record as one line of JSON. value_of: what stands for the bytes of a value."""
    value = record.value
    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [[name, text_of(data)] for name, data in record.headers],
        "key": text_of(record.key),
        "value": text_of(value) if value is None or value_of is None else value_of(value),
    }
    return msgspec.json.encode(row) + b"\n"


def text_of(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON: a string if they are UTF-8, else base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
