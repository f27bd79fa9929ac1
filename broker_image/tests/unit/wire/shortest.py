"""The shortest bytes that a schema allows: what asks for most objects per byte."""

from logfleet.wire.primitives import uvarint
from logfleet.wire.schema import FIXED_BYTES, FIXED_FORMATS, Field, Message


def emptiest(fields: tuple[Field, ...], schema: Message, version: int) -> bytes:
    """The shortest bytes of a struct with empty arrays; its integers are not cached objects."""
    flexible = schema.is_flexible(version)
    out = b""
    for field in fields:
        if field.exists(version) and not field.is_tagged(version):
            out += shortest(field, field.type, schema, version)
    return out + b"\0" * flexible


def shortest(field: Field, type_name: str, schema: Message, version: int) -> bytes:
    if field.is_struct and field.is_nullable(version):
        return b"\xff"
    if (code := FIXED_FORMATS.get(type_name)) is not None:
        return b"\x90" * FIXED_BYTES[code]
    if type_name[0].isupper():
        return emptiest(schema.structs[type_name], schema, version)
    if schema.is_flexible(version):
        return b"\x01"
    return bytes(2) if type_name == "string" else bytes(4)


def full_of(crowded: Field, schema: Message, version: int, size: int) -> bytes:
    """A message with about `size` bytes of elements in one array of its top level.

    All else is as short as can be.
    """
    frame, flexible = b"", schema.is_flexible(version)
    for field in schema.fields:
        if field is crowded:
            element = shortest(field, field.element_type, schema, version)
            count = size // len(element)
            frame += uvarint(count + 1) if flexible else count.to_bytes(4, "big")
            frame += element * count
        elif field.exists(version) and not field.is_tagged(version):
            frame += shortest(field, field.type, schema, version)
    return frame + b"\0" * flexible
