"""Records for people: a line of place, time and key, then the headers and the value, in colours."""

import json
import re
from collections.abc import Callable
from typing import Final

from logfleet.cli.record_text import text_of
from logfleet.cli.streams.formats import ago, iso_time
from logfleet.records.columns import Columns
from logfleet.records.record import Record

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Everything that a terminal would obey, but tabs and line ends."""
END: Final = "\x1b[0m"
STYLES: Final = {
    "place": "\x1b[1m",
    "time": "\x1b[2m",
    "key": "\x1b[33m",
    "name": "\x1b[36m",
    "text": "\x1b[32m",
    "number": "\x1b[35m",
}
_TOKEN: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=:)|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\b[0-9][0-9.eE+-]*|\b(?:true|false|null)\b)"
)


class PrettyWriter:
    """Writes records for people.

    has_colours: for a terminal. document: reads a value; JSON by default. now_ms: for ages.
    """

    takes_columns = False

    def __init__(
        self, *, has_colours: bool, document: Callable[[bytes], object], now_ms: Callable[[], int]
    ) -> None:
        self._has_colours = has_colours
        self._document = document
        self._now_ms = now_ms

    def columns(self, topic: str, partition: int, columns: Columns) -> bytes:
        raise NotImplementedError

    def record(self, topic: str, partition: int, record: Record) -> bytes:
        """The lines of the record, and an empty one."""
        age = ago(self._now_ms() - record.timestamp)
        parts = (
            self._styled("place", f"{topic}-{partition} @ {record.offset}"),
            self._styled("time", f"{iso_time(record.timestamp)} ({age})"),
            self._styled("key", "no key" if record.key is None else _shown(record.key)),
        )
        lines = ["  ".join(parts)]
        lines += [
            f"  {self._styled('name', _plain(name))}: {'null' if value is None else _shown(value)}"
            for name, value in record.headers
        ]
        value = "null" if record.value is None else self._value(record.value)
        lines += [f"  {line}" for line in value.split("\n")]
        return ("\n".join(lines) + "\n\n").encode(errors="surrogateescape")

    def _value(self, data: bytes) -> str:
        found = self._document(data)
        if not isinstance(found, dict | list):
            return _shown(data) if found is None or not isinstance(found, str) else _plain(found)
        text = _plain(json.dumps(found, indent=2, ensure_ascii=False, default=str))
        if not self._has_colours:
            return text
        return _TOKEN.sub(lambda match: self._styled(match.lastgroup or "text", match[0]), text)

    def _styled(self, style: str, text: str) -> str:
        return f"{STYLES[style]}{text}{END}" if self._has_colours else text


def _shown(data: bytes) -> str:
    text = text_of(data)
    return _plain(text) if isinstance(text, str) else data.hex()


def _plain(text: str) -> str:
    r"""The text with control characters as \xHH: what a record holds must not steer a terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
