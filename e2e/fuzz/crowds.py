"""Frames that hold as many elements as fit: what of all requests takes most memory per byte. No input or output here."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from logfleet.wire.apis import Api
from logfleet.wire.primitives import uvarint
from logfleet.wire.schema import FIXED_BYTES, FIXED_FORMATS, Field, Message, load_table

CLIENT_ID: Final = b"crowd"
UUID_BYTES: Final = 16
DISTINCT: Final = 2048
"""Elements that differ; then they come again."""


class Crowd(NamedTuple):
    """array: the fields from the request down to the array that is full."""

    array: str
    frame: bytes


def crowds(api: Api, version: int, frame_bytes: int, texts: tuple[str, ...]) -> Iterator[Crowd]:
    """For every array of the request: about so many bytes of elements, the integers in which count on.

    texts: what strings hold, in turns. Everything outside the array is as short as can be.
    """
    schema = load_table()[f"{api.name}Request"]
    writer = _Writer(schema, version, texts)
    head = b"".join(
        part.to_bytes(size, "big")
        for part, size in ((api.key, 2), (version, 2), (1, 4), (len(CLIENT_ID), 2))
    )
    head += CLIENT_ID + b"\0" * (api.request_header_version(version) == 2)
    for path in _array_paths(schema, schema.fields, version):
        writer.full(path, frame_bytes)
        yield Crowd(".".join(field.name for field in path), head + writer.struct(schema.fields, 0))


def _array_paths(
    schema: Message, fields: tuple[Field, ...], version: int
) -> Iterator[tuple[Field, ...]]:
    for field in fields:
        if not field.exists(version) or field.is_tagged(version):
            continue
        if field.is_array:
            yield (field,)
        if field.struct_name is not None:
            inner = schema.structs[field.struct_name]
            yield from ((field, *rest) for rest in _array_paths(schema, inner, version))


class _Writer:
    def __init__(self, schema: Message, version: int, texts: tuple[str, ...]) -> None:
        self._structs: Mapping[str, tuple[Field, ...]] = schema.structs
        self._version = version
        self._flexible = schema.is_flexible(version)
        self._texts = [text.encode() for text in texts]
        self._path: tuple[Field, ...] = ()
        self._bytes = 0

    def full(self, path: tuple[Field, ...], size: int) -> None:
        """From now on the array at the path's end holds so many bytes."""
        self._path, self._bytes = path, size

    def struct(self, fields: tuple[Field, ...], number: int) -> bytes:
        present = [
            self._value(field, number)
            for field in fields
            if field.exists(self._version) and not field.is_tagged(self._version)
        ]
        return b"".join(present) + b"\0" * self._flexible

    def _value(self, field: Field, number: int) -> bytes:
        if field.is_array:
            return self._array(field)
        if field.is_struct:
            marker = b"\1" if field.is_nullable(self._version) else b""
            return marker + self._element(field, number)
        return self._element(field, number)

    def _array(self, field: Field) -> bytes:
        count = 0
        content = b""
        if field is self._path[-1]:
            size = len(self._element(field, 1 << 20)) + 1
            count = self._bytes // size
            some = [self._element(field, number) for number in range(min(count, DISTINCT))]
            content = b"".join(some[number % DISTINCT] for number in range(count))
        elif field in self._path:
            count, content = 1, self._element(field, 0)
        return self._length(count, 4) + content

    def _element(self, field: Field, number: int) -> bytes:
        kind = field.element_type
        if field.struct_name is not None:
            return self.struct(self._structs[field.struct_name], number)
        if kind == "uuid":
            return number.to_bytes(UUID_BYTES, "big")
        if kind == "string":
            text = self._texts[number % len(self._texts)]
            return self._length(len(text), 2) + text
        if kind in {"bytes", "records"}:
            return self._length(0, 4)
        size = FIXED_BYTES[FIXED_FORMATS[kind]]
        return (number % (1 << (8 * size - 1))).to_bytes(size, "big")

    def _length(self, length: int, size: int) -> bytes:
        return uvarint(length + 1) if self._flexible else length.to_bytes(size, "big")
