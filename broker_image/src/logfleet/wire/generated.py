"""Shared parts of the decoder's and the encoder's generators.

These are lines of source, names, runs of fixed-width fields. A run is a sequence of fixed-width
fields that one `struct` call reads or writes; it includes the length prefix of the string or array
that follows it.
"""

import linecache
from collections.abc import Callable
from struct import Struct
from typing import Any

from logfleet.wire import primitives
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.schema import FIXED_BYTES, FIXED_FORMATS, ZERO_UUID, Field


class FunctionSource:
    """Python source of one function, its names and its global names."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[str] = []
        self.indent = 0
        self.globals: dict[str, Any] = {
            **{name: getattr(primitives, name) for name in _RUNTIME},
            "MalformedMessage": MalformedMessage,
            "ZERO_UUID": ZERO_UUID,
            "join": b"".join,
        }
        self._structs: dict[str, str] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, stem: str) -> str:
        """A name that is unique in this source."""
        self._names += 1
        return f"{stem}{self._names}"

    def shared(self, stem: str, value: object) -> str:
        """A global name for `value`."""
        name = self.name(stem)
        self.globals[name] = value
        return name

    def struct(self, method: str, codes: str) -> str:
        """A global name for the bound method of `Struct('>' + codes)`."""
        key = f"{method}:{codes}"
        if key not in self._structs:
            self._structs[key] = self.shared(method, getattr(Struct(">" + codes), method))
        return self._structs[key]

    def compile(self, function: str) -> Callable[..., Any]:
        text = "\n".join(self.lines) + "\n"
        filename = f"<logfleet.wire {self.title}>"
        # lets tracebacks and debuggers show the generated lines
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        code = compile(text, filename, "exec")
        exec(code, self.globals)  # noqa: S102  the text comes from our own table only
        made: Callable[..., Any] = self.globals[function]
        return made


_RUNTIME = (
    "SMALL_ARRAY_MAX",
    "SMALL_UVARINTS",
    "bad_length",
    "long_string_length",
    "long_string_prefix",
    "pack_array",
    "read_uvarint",
    "replaced_string",
    "skip_tags",
    "too_many",
    "unpack_array",
    "uvarint",
)


def code_bytes(codes: list[str]) -> int:
    """Total size of these struct codes."""
    return sum(FIXED_BYTES[code] for code in codes)


def literal(value: object) -> str:
    """Source text of a default value."""
    return "ZERO_UUID" if value == ZERO_UUID else repr(value)


def default_source(field: Field) -> str:
    """Source text of a field's default, a new object each time.

    For a struct its class called without arguments.
    """
    if field.is_array and field.scalar_default() is None and field.default is not None:
        return "[]"
    if field.is_struct and not field.ever_tagged and field.default is not None:
        return f"{field.element_type}()"
    return literal(field.scalar_default())


def element_bytes_min(
    field: Field, structs: dict[str, tuple[Field, ...]], version: int, *, flexible: bool
) -> int:
    """The smallest size of one array element on the wire."""
    if field.struct_name is None:
        return _bytes_min(field.element_type, flexible=flexible)
    total = int(flexible)
    for inner in structs[field.struct_name]:
        if not inner.exists(version) or inner.is_tagged(version):
            continue
        if inner.is_array:
            total += 1 if flexible else 4
        elif inner.is_struct:
            total += (
                1
                if inner.is_nullable(version)
                else element_bytes_min(inner, structs, version, flexible=flexible)
            )
        else:
            total += _bytes_min(inner.type, flexible=flexible)
    return max(total, 1)


def _bytes_min(type_name: str, *, flexible: bool) -> int:
    code = FIXED_FORMATS.get(type_name)
    if code is not None:
        return FIXED_BYTES[code]
    if flexible:
        return 1
    return 2 if type_name == "string" else 4
