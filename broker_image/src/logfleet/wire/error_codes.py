"""Finds the error codes in a response, the same as Kafka's AbstractResponse.errorCounts.

Generated as source from the schema table, as the codec is: one loop per array whose structs have
error codes.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from logfleet.wire.generated import FunctionSource
from logfleet.wire.schema import Field, Message, load_table

ERROR_CODE = "error_code"


@cache
def error_finder(message: str) -> Callable[[Any], Sequence[int]]:
    """A function that returns the error codes except NONE in a message of that type."""
    schema = load_table()[message]
    source = FunctionSource(f"errors in {message}")
    source.line("def errors(message):")
    source.indent += 1
    source.line("found = []")
    _emit(source, schema, schema.fields, "message")
    source.line("return found")
    return source.compile("errors")


def _emit(source: FunctionSource, schema: Message, fields: tuple[Field, ...], holder: str) -> None:
    for field in fields:
        name = f"{holder}.{field.python_name}"
        if field.python_name == ERROR_CODE:
            source.line(f"if {name}:")  # one append each: there may be a hundred thousand
            source.line(f"    if found: found.append({name})")
            source.line(f"    else: found = [{name}]")
            continue
        struct = field.struct_name
        if struct is None or not _has_code(schema, schema.structs[struct]):
            continue
        held = source.name("held")
        if field.is_array:
            source.line(f"for {held} in {name} or ():")
        else:
            source.line(f"{held} = {name}")
            source.line(f"if {held} is not None:")
        source.indent += 1
        _emit(source, schema, schema.structs[struct], held)
        source.indent -= 1


def _has_code(schema: Message, fields: tuple[Field, ...]) -> bool:
    return any(
        field.python_name == ERROR_CODE
        or (field.struct_name is not None and _has_code(schema, schema.structs[field.struct_name]))
        for field in fields
    )
