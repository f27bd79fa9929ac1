"""Records as text, by a format of the user's: kcat's fields, and more ways to show them. Pure.

A field is a letter behind a percent sign, and the way to show it in braces:

    %t topic             %k key                      %T timestamp, milliseconds since 1970
    %p partition         %s value                    %T{iso} %T{ago}
    %o offset            %k{hex} {base64} {json} {len}, the same for %s
    %K %S their sizes, -1 for null                   %h headers as a=b,c=d   %H{name} one header
    %% a percent sign    \\n \\t \\r \\0 \\\\ \\xHH      the bytes that they name
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from logfleet.cli.record_text import TextError, text_of, unescape, write_json
from logfleet.records.columns import Columns
from logfleet.records.record import Header, Record

Show: TypeAlias = Callable[[Any], bytes]

_FIELD: Final = re.compile(r"%(?:(%)|(.?)(?:\{([^{}]*)\})?)", re.DOTALL)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGO: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


class Writer(Protocol):
    """What turns records into what is printed.

    takes_columns: whether `columns` may be called, since nothing but keys and values is printed.
    """

    takes_columns: bool

    def record(self, topic: str, partition: int, record: Record) -> bytes:
        """The text of a record."""

    def columns(self, topic: str, partition: int, columns: Columns) -> bytes:
        """The text of many records: what `record` gives for each, one after the other."""


class JsonWriter:
    """Writes each record as a line of JSON. value_of: what stands for a value's bytes."""

    takes_columns = False

    def __init__(self, value_of: Callable[[bytes], object] | None = None) -> None:
        self._value_of = value_of

    def record(self, topic: str, partition: int, record: Record) -> bytes:
        """The line."""
        return write_json(topic, partition, record, self._value_of)

    def columns(self, topic: str, partition: int, columns: Columns) -> bytes:
        raise NotImplementedError


class Field(NamedTuple):
    """A part of a record. source: topic, partition, or an attribute of Record.

    show: its text. is_plain: the bytes themselves, unless they are null.
    """

    source: str
    show: Show
    is_plain: bool = False


class Format:
    """Writes records by a format. Raises TextError for a malformed one.

    null: stands for a key or value that is null. value_text: what %s writes for the bytes of a
    value; None: the bytes. now_ms: for %T{ago}.
    """

    def __init__(
        self,
        text: str,
        *,
        null: bytes = b"",
        value_text: Callable[[bytes], bytes] | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        fields = _Fields(null, value_text, now_ms)
        self._null = null
        self._parts: list[bytes | Field] = []
        literal, end = b"", 0
        for match in _FIELD.finditer(text):
            literal += unescape(text[end : match.start()])
            end = match.end()
            if match[1]:
                literal += b"%"
                continue
            self._parts += [literal, fields.named(match[2], match[3])]
            literal = b""
        self._parts.append(literal + unescape(text[end:]))
        sources = {part.source for part in self._parts if isinstance(part, Field)}
        self.takes_columns = sources <= {"topic", "partition", "key", "value"}

    def record(self, topic: str, partition: int, record: Record) -> bytes:
        """The text of a record."""
        around = {"topic": topic, "partition": partition}
        return b"".join(
            part
            if isinstance(part, bytes)
            else part.show(
                around[part.source] if part.source in around else getattr(record, part.source)
            )
            for part in self._parts
        )

    def columns(self, topic: str, partition: int, columns: Columns) -> bytes:
        """The text of many records: what `record` gives for each, one after the other."""
        around = {"topic": topic, "partition": partition}
        literals, shown = [b""], []
        for part in self._parts:
            if isinstance(part, bytes):
                literals[-1] += part
            elif part.source in around:
                literals[-1] += part.show(around[part.source])
            else:
                column = columns.keys if part.source == "key" else columns.values
                is_there = part.is_plain and None not in column
                shown.append(column if is_there else list(map(part.show, column)))
                literals.append(b"")
        return _interleaved(literals, shown, len(columns.values))


def _interleaved(literals: Sequence[bytes], columns: Sequence[Sequence[Any]], count: int) -> bytes:
    """For each of `count` rows: a literal, an element of a column, and so on, a literal at last."""
    if not columns or not count:
        return literals[0] * count
    if len(columns) == 1:
        first, last = literals
        return first + (last + first).join(columns[0]) + last
    pieces: list[Iterable[Any]] = [repeat(literals[0])]
    for column, literal in zip(columns, literals[1:], strict=True):
        pieces += (column, repeat(literal))
    return b"".join(chain.from_iterable(zip(*pieces, strict=False)))


class _Fields:
    """The fields that a format may have."""

    def __init__(
        self, null: bytes, value_text: Callable[[bytes], bytes] | None, now_ms: Callable[[], int]
    ) -> None:
        self._null = null
        self._value_text = value_text
        self._now_ms = now_ms

    def named(self, letter: str, way: str | None) -> Field:
        """The field of this letter, shown in this way. Raises TextError."""
        if letter == "H":
            if not way:
                raise TextError("%H: write the header's name, as %H{name}")
            return Field("headers", lambda headers: self._header(headers, way))
        if letter not in _SOURCES:
            known = ", ".join(f"%{name}" for name in _SOURCES)
            raise TextError(f"%{letter}: write one of {known}, %H{{name}}, %%")
        source = _SOURCES[letter]
        if way is None:
            return self._usual(letter, source)
        ways = {"k": self._bytes_ways, "s": self._bytes_ways, "T": self._time_ways}
        known_ways = ways[letter]() if letter in ways else {}
        if way not in known_ways:
            names = ", ".join(f"{{{name}}}" for name in known_ways) or "nothing in braces"
            raise TextError(rf"%{letter}{{{way}}}: write {names}, or \x7b for a brace")
        return Field(source, known_ways[way])

    def _usual(self, letter: str, source: str) -> Field:
        if letter == "s" and self._value_text is not None:
            return Field(source, self._or_null(self._value_text))
        if letter in "ks":
            return Field(source, self._or_null(lambda data: data), is_plain=True)
        if letter in "KS":
            return Field(source, _size)
        if letter == "h":
            return Field(source, self._headers)
        return Field(source, str.encode if letter == "t" else _number)

    def _bytes_ways(self) -> dict[str, Show]:
        return {
            "hex": self._or_null(lambda data: data.hex().encode()),
            "base64": self._or_null(b64encode),
            "json": lambda data: msgspec.json.encode(text_of(data)),
            "len": _size,
        }

    def _time_ways(self) -> dict[str, Show]:
        return {
            "iso": lambda time_ms: iso_time(time_ms).encode(),
            "ago": lambda time_ms: ago(self._now_ms() - time_ms).encode(),
        }

    def _or_null(self, show: Show) -> Show:
        return lambda data: self._null if data is None else show(data)

    def _headers(self, headers: Sequence[Header]) -> bytes:
        return b",".join(
            name.encode() + b"=" + (self._null if value is None else value)
            for name, value in headers
        )

    def _header(self, headers: Sequence[Header], name: str) -> bytes:
        """The last header of that name, as Kafka's Headers.lastHeader."""
        found = dict(headers).get(name)
        return self._null if found is None else found


_SOURCES: Final = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp",
    "k": "key",
    "s": "value",
    "K": "key",
    "S": "value",
    "h": "headers",
}


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _number(number: int) -> bytes:
    return b"%d" % number


def iso_time(time_ms: int) -> str:
    """A timestamp in UTC; the number itself if a record has none, or one beyond the year 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return str(time_ms) if time_ms < 0 else f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def ago(milliseconds: int) -> str:
    """A duration in its largest whole unit, as 90 s are 1m; of less than a second the milliseconds.

    What lies ahead has a minus sign.
    """
    sign, amount = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    for unit_ms, unit in _AGO:
        if amount >= unit_ms:
            return f"{sign}{amount // unit_ms}{unit}"
    return f"{sign}{amount}ms"
