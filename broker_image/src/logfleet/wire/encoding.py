"""Generates the encoder of one message in one version.

The encoder collects small pieces and joins them at the end, or where `records` stand: those become
buffers of their own and are never copied. Tagged fields cost one test per struct as long as none is
set.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from logfleet.wire.decoding import carries_records
from logfleet.wire.errors import UnencodableMessage
from logfleet.wire.generated import FunctionSource, code_bytes, default_source
from logfleet.wire.primitives import array_packers
from logfleet.wire.schema import FIXED_FORMATS, Field, Message


def generate_encoder(
    cls: type[msgspec.Struct], schema: Message, version: int
) -> Callable[..., Any]:
    """Generate the encoder of a message in a version: a function message -> list of buffers."""
    source = FunctionSource(f"encode {cls.__name__} v{version}")
    for name in schema.structs:
        source.globals[name] = getattr(cls, name)
    writer = _Encoder(source, schema, version)
    body = writer.function("encode", lambda: writer.struct("m", schema.fields))
    source.lines = [*writer.tag_functions, *body]
    return source.compile("encode")


class _Encoder:
    def __init__(self, source: FunctionSource, schema: Message, version: int) -> None:
        self.source, self.schema, self.version = source, schema, version
        self.flexible = schema.is_flexible(version)
        self.run: list[
            tuple[str, str]
        ] = []  # struct code ("x" is a zero byte), source of the value
        self.tag_functions: list[str] = []

    def function(self, name: str, write_body: Callable[[], None]) -> list[str]:
        """Lines of a function of `m` whose body `write_body` emits.

        `encode` returns buffers, others bytes.
        """
        outer = (self.source.lines, self.source.indent, self.run)
        self.source.lines, self.source.indent, self.run = [], 0, []
        line = self.source.line
        buffers = name == "encode" and carries_records(self.schema)
        line(f"def {name}(m):")
        self.source.indent = 1
        line("small = []")
        line("add = small.append")
        if buffers:
            line("out = []")
        write_body()
        self.flush()
        if buffers:
            line("if small: out.append(join(small))")
            line("return out")
        else:
            line("return [join(small)]" if name == "encode" else "return join(small)")
        made = self.source.lines
        self.source.lines, self.source.indent, self.run = outer
        return made

    def packed(self, run: list[tuple[str, str]]) -> str:
        codes = [code for code, _ in run]
        if set(codes) == {"x"}:
            return repr(bytes(len(codes)))
        values = ", ".join(value for code, value in run if code != "x")
        return f"{self.source.struct('pack', ''.join(codes))}({values})"

    def flush(self) -> None:
        """Emit the code that writes the collected run of fixed-width fields."""
        if self.run:
            self.source.line(f"add({self.packed(self.run)})")
            self.run = []

    def flush_with_uvarint(self, number: str, slow: str = "uvarint") -> None:
        """Emit the code that writes the run and an unsigned varint behind it."""
        line = self.source.line
        if not self.run:
            line(f"add(SMALL_UVARINTS[{number}] if {number} < 128 else {slow}({number}))")
            return
        line(f"if {number} < 128: add({self.packed([*self.run, ('B', number)])})")
        line("else:")
        line(f"    add({self.packed(self.run)})")
        line(f"    add({slow}({number}))")
        self.run = []

    def struct(self, owner: str, fields: tuple[Field, ...]) -> None:
        self.refuse_absent_fields(owner, fields)
        tagged = []
        for field in fields:
            if not field.exists(self.version):
                continue
            if field.is_tagged(self.version):
                tagged.append(field)
            else:
                self.value(field, field.type, f"{owner}.{field.python_name}")
        if self.flexible:
            self.tags(owner, sorted(tagged, key=lambda field: field.tag or 0))

    def refuse_absent_fields(self, owner: str, fields: tuple[Field, ...]) -> None:
        """Emit a check that refuses set fields which this version lacks and may not ignore."""
        absent = [
            field for field in fields if not field.exists(self.version) and not field.ignorable
        ]
        if absent:
            tests = " or ".join(is_set(field, f"{owner}.{field.python_name}") for field in absent)
            names = ", ".join(field.python_name for field in absent)
            refuse = self.source.shared("refuse", _refuser(f"{self.source.title} lacks {names}"))
            self.source.line(f"if {tests}: {refuse}({owner})")

    def value(self, field: Field, type_name: str, value: str) -> None:
        if type_name in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[type_name], value))
            return
        nullable = field.is_nullable(self.version) and type_name == field.type
        if type_name.startswith("[]"):
            self.array(field, value, nullable=nullable)
        elif type_name[0].isupper():
            self.nested(type_name, value, nullable=nullable)
        else:
            self.blob(field, type_name, value, nullable=nullable)

    def nested(self, struct: str, value: str, *, nullable: bool) -> None:
        name = self.source.name("s")
        self.source.line(f"{name} = {value}")
        fields = self.schema.structs[struct]
        if not nullable:
            self.struct(name, fields)
            return
        self.flush()
        self.source.line(f"if {name} is None: add(b'\\xff')")
        self.source.line("else:")
        self.source.indent += 1
        self.run.append(("b", "1"))
        self.struct(name, fields)
        self.flush()
        self.source.indent -= 1

    def prefix(self, field: Field, type_name: str, length: str) -> None:
        """Write the run and a length prefix.

        `length`: name of the variable with the length, -1 for null.
        """
        if not self.flexible or field.flexible == "none":
            self.run.append(("h" if type_name == "string" else "i", length))
            self.flush()
        else:
            self.source.line(f"{length} += 1")
            slow = "long_string_prefix" if type_name == "string" else "uvarint"
            self.flush_with_uvarint(length, slow)

    def blob(self, field: Field, type_name: str, value: str, *, nullable: bool) -> None:
        """Emit the code that writes a string, bytes or records."""
        line = self.source.line
        name, length = self.source.name("v"), self.source.name("n")
        line(f"{name} = {value}")
        encoded = f"{name}.encode()" if type_name == "string" else name
        if nullable:
            line(f"if {name} is None: {name} = b''; {length} = -1")
            line(f"else: {name} = {encoded}; {length} = len({name})")
        else:
            if type_name == "string":
                line(f"{name} = {encoded}")
            line(f"{length} = len({name})")
        self.prefix(field, type_name, length)
        if type_name == "records":
            line(f"if {name}:")
            line("    out.append(join(small))")
            line("    small.clear()")
            line(f"    out.append({name})")
        else:
            line(f"add({name})")

    def array(self, field: Field, value: str, *, nullable: bool) -> None:
        line = self.source.line
        name, length = self.source.name("a"), self.source.name("n")
        line(f"{name} = {value}")
        if nullable:
            line(f"if {name} is None: {name} = (); {length} = -1")
            line(f"else: {length} = len({name})")
        else:
            line(f"{length} = len({name})")
        code = FIXED_FORMATS.get(field.element_type)
        if code is not None and code != "16s":
            self.numbers(code, name, length)
            return
        self.prefix(field, field.type, length)
        item = self.source.name("i")
        line(f"for {item} in {name}:")
        self.source.indent += 1
        if field.struct_name is not None:
            self.struct(item, self.schema.structs[field.struct_name])
        else:
            self.value(field, field.element_type, item)
        self.flush()
        self.source.indent -= 1

    def numbers(self, code: str, name: str, length: str) -> None:
        """Emit the code for an array of integers: one call with its prefix if it is short."""
        line = self.source.line
        self.flush()
        prefix_code = "B" if self.flexible else "i"
        count = f"{length} + 1" if self.flexible else length
        packers = self.source.shared("packers", array_packers(prefix_code, code))
        line(f"if {length} < SMALL_ARRAY_MAX: add({packers}[len({name})]({count}, *{name}))")
        line("else:")
        prefix = f"uvarint({count})" if self.flexible else f"pack_array('i', [{length}])"
        line(f"    add({prefix})")
        line(f"    add(pack_array({code!r}, {name}))")

    def tags(self, owner: str, tagged: list[Field]) -> None:
        """Emit the code for tagged fields (KIP-482), except those with their default."""
        if not tagged:
            self.run.append(("x", ""))
            return
        line = self.source.line
        test = " or ".join(is_set(field, f"{owner}.{field.python_name}") for field in tagged)
        before, self.run = self.run, []
        line(f"if {test}:")
        self.source.indent += 1
        if before:
            line(f"add({self.packed(before)})")
        pieces = self.source.name("t")
        line(f"{pieces} = []")
        for field in tagged:
            self.tag(field, f"{owner}.{field.python_name}", pieces)
        line(f"add(uvarint(len({pieces})))")
        line(f"small.extend({pieces})")
        self.source.indent -= 1
        line(f"else: add({self.packed([*before, ('x', '')])})")

    def tag(self, field: Field, value: str, pieces: str) -> None:
        line = self.source.line
        test = is_set(field, value)
        if field.is_struct and field.default is not None:
            test += f" and {value} != {field.element_type}()"
        code = FIXED_FORMATS.get(field.type)
        if code is not None:
            packed = self.packed(
                [("B", str(field.tag)), ("B", str(code_bytes([code]))), (code, value)]
            )
            line(f"if {test}: {pieces}.append({packed})")
            return
        function = self.source.name("tagged")
        self.tag_functions += self.function(function, lambda: self.value(field, field.type, "m"))
        line(f"if {test}:")
        payload = self.source.name("v")
        line(f"    {payload} = {function}({value})")
        line(f"    {pieces}.append(uvarint({field.tag}) + uvarint(len({payload})) + {payload})")


def is_set(field: Field, value: str) -> str:
    """Source of a test that is true if the field has another value than its default."""
    default = default_source(field)
    if default == "None":
        return f"{value} is not None"
    if default == "[]":
        return f"{value} != []" if field.nullable != "none" else value
    if default == "False":
        return value
    return f"{value} != {default}"


def _refuser(sentence: str) -> Callable[[object], NoReturn]:
    def refuse(message: object) -> NoReturn:
        raise UnencodableMessage(f"{sentence}: {message!r}")

    return refuse
