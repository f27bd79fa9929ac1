"""Text form of server.properties: Java's property files (java.util.Properties.load)."""

import re
from collections.abc import Iterator
from string import hexdigits

from logfleet.config.keys import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"
_LINE_END = re.compile("\r\n|\r|\n")
"""Other line ends of Python, such as U+2028 and form feed, are text in Java."""


def read_properties(data: bytes) -> dict[str, str]:
    """Keys and values of a property file's bytes: UTF-8, else Latin-1 as Kafka reads every file.

    A byte order mark, which editors on Windows write, is dropped: the first key would be unknown
    with it. Raises ConfigError.
    """
    try:
        return parse_properties(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return parse_properties(data.decode("latin-1"))


def parse_properties(text: str) -> dict[str, str]:
    r"""Keys and values of a property file; the last value of a repeated key.

    Understands comments (# and !), the separators =, : and blank, lines continued by a backslash,
    and the escapes \t \n \r \f and \uXXXX. Trailing blanks of values are dropped, as Kafka does
    when it parses them. Raises ConfigError for a bad escape.
    """
    properties = {}
    for line in _logical_lines(text):
        end = _key_end(line)
        key = _unescape(line[:end], line)
        rest = line[end:].lstrip(_BLANK)
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(_BLANK)
        properties[key] = _unescape(rest, line).rstrip()
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _key_end(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 1
        elif line[position] in "=:" + _BLANK:
            return position
        position += 1
    return len(line)


def _unescape(text: str, line: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                out.append(_code_point(text[position : position + 4], line))
                position += 4
                continue
            char = _ESCAPES.get(char, char)
        out.append(char)
    # two escapes may be the halves of one character
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _code_point(digits: str, line: str) -> str:
    if len(digits) != 4 or not set(digits) <= set(hexdigits):
        raise ConfigError(line, f"Malformed \\uXXXX escape in the line: {line}")
    return chr(int(digits, 16))
