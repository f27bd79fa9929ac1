"""Generates the decoder of one message in one version.

The decoder is straight-line code with a loop per array: no call per field, one `struct` call per
run of fixed-width fields, positional construction of the message classes. If a message has
`records` it works on a memoryview and returns slices; otherwise on bytes, whose slices become
strings faster.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from logfleet.wire.generated import (
    FunctionSource,
    code_bytes,
    default_source,
    element_bytes_min,
)
from logfleet.wire.primitives import array_unpackers
from logfleet.wire.request_memory import (
    REQUEST_MEMORY_BYTES,
    REQUEST_MEMORY_BYTES_MAX,
    REQUEST_MEMORY_PER_BYTE,
    element_memory,
)
from logfleet.wire.schema import FIXED_FORMATS, Field, Message


def generate_decoder(
    cls: type[msgspec.Struct], schema: Message, version: int, *, replaces: bool = False
) -> Callable[..., Any]:
    """A function (buffer, position) -> (message, position behind it).

    replaces: strings may have bytes that are not UTF-8 (`replaced_string`); otherwise they raise
    UnicodeDecodeError, and decoding is faster.
    """
    return _Decoder(cls, schema, version, replaces=replaces).generate()


def generate_request_decoder(
    cls: type[msgspec.Struct], schema: Message, version: int, *, replaces: bool = False
) -> Callable[..., Any]:
    """A function (frame, position) -> (request, bytes of memory that were counted for it).

    It raises MalformedMessage before it builds an array whose elements exceed `request_memory`'s
    limits. replaces: see `generate_decoder`.
    """
    return _Decoder(cls, schema, version, counts=True, replaces=replaces).generate()


def carries_records(schema: Message) -> bool:
    """True if a field of the message is `records`."""
    groups = (schema.fields, *schema.structs.values())
    return any(field.type == "records" for fields in groups for field in fields)


class _Decoder:
    def __init__(
        self,
        cls: type[msgspec.Struct],
        schema: Message,
        version: int,
        *,
        replaces: bool,
        counts: bool = False,
    ) -> None:
        self.cls, self.schema, self.version = cls, schema, version
        self.replaces, self.counts = replaces, counts
        self.flexible = schema.is_flexible(version)
        self.zero_copy = carries_records(schema)
        title = "decode and count" if counts else "decode"
        title += " and replace" if replaces else ""
        self.source = FunctionSource(f"{title} {cls.__name__} v{version}")
        self.run: list[tuple[str, str]] = []  # struct code, name of the variable
        self.source.globals["Message"] = cls
        for name in schema.structs:
            self.source.globals[name] = getattr(cls, name)

    def generate(self) -> Callable[..., Any]:
        line = self.source.line
        line("def decode(b, p):")
        self.source.indent += 1
        wanted = "memoryview" if self.zero_copy else "bytes"
        line(f"if type(b) is not {wanted}: b = {wanted}(b)")
        line("limit = len(b)")
        if self.counts:
            line(f"room = given = {REQUEST_MEMORY_BYTES} + {REQUEST_MEMORY_PER_BYTE} * limit")
            line(f"if room > {REQUEST_MEMORY_BYTES_MAX}: room = given = {REQUEST_MEMORY_BYTES_MAX}")
        # a slice from beyond the end would be empty, not an error
        line("if not 0 <= p <= limit: raise IndexError('position beyond the end')")
        message = self.struct("Message", self.schema.fields)
        line(f"return {message}, {'given - room' if self.counts else 'p'}")
        return self.source.compile("decode")

    def flush(self) -> None:
        """Emit the code that reads the collected run of fixed-width fields."""
        if not self.run:
            return
        codes = [code for code, _ in self.run]
        if codes == ["B"]:
            self.source.line(f"{self.run[0][1]} = b[p]")
        else:
            names = ", ".join(name for _, name in self.run)
            self.source.line(
                f"{names}, = {self.source.struct('unpack_from', ''.join(codes))}(b, p)"
            )
        self.source.line(f"p += {code_bytes(codes)}")
        self.run = []

    def fixed(self, code: str, stem: str) -> str:
        name = self.source.name(stem)
        self.run.append((code, name))
        return name

    def struct(self, class_name: str, fields: tuple[Field, ...]) -> str:
        """Emit the code that reads a struct; returns the source text that constructs it."""
        values: list[str] = []
        tagged: list[tuple[Field, str]] = []
        last = 0
        for number, field in enumerate(fields, 1):
            if not field.exists(self.version):
                values.append(default_source(field))
                continue
            last = number
            if field.is_tagged(self.version):
                name = self.source.name("t")
                tagged.append((field, name))
                values.append(name)
            else:
                values.append(self.value(field, field.type))
        if self.flexible:
            self.tags(tagged)
        self.flush()
        # trailing fields that this version lacks get the class's defaults
        return f"{class_name}({', '.join(values[:last])})"

    def value(self, field: Field, type_name: str) -> str:
        """Emit the code for one value; returns its variable, set once the run is flushed."""
        if type_name in FIXED_FORMATS:
            return self.fixed(FIXED_FORMATS[type_name], "v")
        nullable = field.is_nullable(self.version) and type_name == field.type
        if type_name.startswith("[]"):
            return self.array(field, nullable=nullable)
        if type_name[0].isupper():
            return self.nested(type_name, nullable=nullable)
        return self.blob(field, type_name, nullable=nullable)

    def nested(self, struct: str, *, nullable: bool) -> str:
        fields = self.schema.structs[struct]
        name = self.source.name("s")
        if not nullable:
            self.source.line(f"{name} = {self.struct(struct, fields)}")
            return name
        marker = self.fixed("b", "m")
        self.flush()
        self.source.line(f"if {marker} < 0: {name} = None")
        self.source.line("else:")
        self.source.indent += 1
        self.source.line(f"{name} = {self.struct(struct, fields)}")
        self.source.indent -= 1
        return name

    def length(self, field: Field, type_name: str) -> str:
        """Emit the code for a length prefix; returns its variable, negative for null."""
        line = self.source.line
        if not self.flexible or field.flexible == "none":
            name = self.fixed("h" if type_name == "string" else "i", "n")
            self.flush()
            return name
        name = self.fixed("B", "n")
        self.flush()
        slow = "long_string_length" if type_name == "string" else "read_uvarint"
        line(f"if {name} > 127: {name}, p = {slow}(b, p - 1)")
        line(f"{name} -= 1")
        return name

    def blob(self, field: Field, type_name: str, *, nullable: bool) -> str:
        """Emit the code that reads a string, bytes or records."""
        line = self.source.line
        name, end = self.source.name("v"), self.source.name("e")
        length = self.length(field, type_name)
        if nullable:
            line(f"if {length} < 0: {name} = None")
            line("else:")
            self.source.indent += 1
        line(f"{end} = p + {length}")
        line(f"if not p <= {end} <= limit: raise bad_length({length}, {field.name!r})")
        piece = f"b[p:{end}]"
        if type_name == "string":
            piece = self.text(piece)
        elif type_name == "bytes" and self.zero_copy:
            piece = f"bytes({piece})"
        line(f"{name} = {piece}")
        line(f"p = {end}")
        if nullable:
            self.source.indent -= 1
        return name

    def text(self, piece: str) -> str:
        """Source text of the string that these bytes encode."""
        if self.replaces:
            return f"replaced_string({piece})"
        return f"str({piece}, 'utf-8')" if self.zero_copy else f"{piece}.decode()"

    def array(self, field: Field, *, nullable: bool) -> str:
        line = self.source.line
        name = self.source.name("a")
        count = self.length(field, field.type)
        if nullable:
            line(f"if {count} < 0: {name} = None")
            line("else:")
            self.source.indent += 1
        size_min = element_bytes_min(
            field, self.schema.structs, self.version, flexible=self.flexible
        )
        line(
            f"if not 0 <= {count} <= (limit - p) // {size_min}: raise bad_length({count}, "
            f"{field.name!r})"
        )
        if self.counts:
            line(f"room -= {element_memory(field, self.schema.structs, self.version)} * {count}")
            line(f"if room < 0: raise too_many({field.name!r})")
        self.elements(field, name, count)
        if nullable:
            self.source.indent -= 1
        return name

    def elements(self, field: Field, name: str, count: str) -> None:
        line = self.source.line
        element = field.element_type
        code = FIXED_FORMATS.get(element)
        if element == "uuid":
            line(f"{name} = [bytes(b[at:at + 16]) for at in range(p, p + 16 * {count}, 16)]")
            line(f"p += 16 * {count}")
        elif code is not None:
            table = self.source.shared("unpackers", array_unpackers(code))
            line(
                f"{name} = [*{table}[{count}](b, p)] if {count} < SMALL_ARRAY_MAX "
                f"else [*unpack_array({code!r}, {count}, b, p)]"
            )
            line(f"p += {code_bytes([code])} * {count}")
        else:
            line(f"{name} = []")
            line(f"for _ in range({count}):")
            self.source.indent += 1
            if element[0].isupper():
                built = self.struct(element, self.schema.structs[element])
            else:
                built = self.value(field, element)
            line(f"{name}.append({built})")
            self.source.indent -= 1

    def tags(self, tagged: list[tuple[Field, str]]) -> None:
        """Emit the code for tagged fields (KIP-482); absent ones get their default."""
        line = self.source.line
        count = self.fixed("B", "c")
        self.flush()
        if not tagged:
            line(f"if {count}: p = skip_tags(b, p - 1)")
            return
        for field, name in tagged:
            line(f"{name} = {default_source(field)}")
        line(f"if {count}:")
        self.source.indent += 1
        line(f"{count}, p = read_uvarint(b, p - 1)")
        line(f"for _ in range({count}):")
        self.source.indent += 1
        tag, size, end = (self.source.name(stem) for stem in ("g", "n", "e"))
        line(f"{tag}, p = read_uvarint(b, p)")
        line(f"{size}, p = read_uvarint(b, p)")
        line(f"{end} = p + {size}")
        line(f"if {end} > limit: raise bad_length({size}, 'tagged field')")
        for number, (field, name) in enumerate(tagged):
            line(f"{'elif' if number else 'if'} {tag} == {field.tag}:")
            self.source.indent += 1
            value = self.value(field, field.type)
            self.flush()
            line(f"{name} = {value}")
            self.source.indent -= 1
        line(f"else: p = {end}")
        line(f"if p != {end}: raise MalformedMessage('size of a tagged field')")
        self.source.indent -= 2
