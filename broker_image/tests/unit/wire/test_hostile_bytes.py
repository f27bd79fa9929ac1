"""What a hostile peer may send, for every message in every version.

One typed error or a message, and bounded memory.
"""

import random
import tracemalloc
from typing import Any

import msgspec
import pytest
from logfleet.wire import messages
from logfleet.wire.codec import MEMORY_PER_BYTE_MAX, decode, encode_bytes
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.schema import FIXED_BYTES, FIXED_FORMATS, Field, load_table

POSITIONS_MAX = 40
"""Places per message that are cut, flipped and overwritten; half of all messages are shorter
than that."""
LENGTHS = [
    b"\x7f\xff\xff\xff",  # int32 and, in its first bytes, int16: as many as there can be
    b"\xff\xff\xff\xff\x07",  # the same as a varint
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x00\x00\x00",  # negative
    b"\xff\xff\xff\xff\xff\xff",  # a varint that does not end
]
ERROR_BYTES = 20_000
"""An exception with its traceback, and what the measuring itself takes."""


def full_message(name: str, version: int, choose: random.Random) -> msgspec.Struct:
    """A message whose every field of that version is set.

    Structs in a list are one, all else two.
    """
    schema, top = load_table()[name], getattr(messages, name)

    def struct(cls: type[msgspec.Struct], fields: tuple[Field, ...]) -> msgspec.Struct:
        return cls(**{f.python_name: value(f) for f in fields if f.exists(version)})

    def value(field: Field) -> Any:
        if field.is_array:
            return [element(field) for _ in range(2 if field.struct_name is None else 1)]
        return element(field)

    def element(field: Field) -> Any:
        if field.struct_name is not None:
            cls = getattr(top, field.struct_name)
            return struct(cls, schema.structs[field.struct_name])
        if field.element_type == "string":
            return choose.choice(["", "topic", "x" * 130])
        if field.element_type in {"bytes", "records", "uuid"}:
            return choose.randbytes(16)
        if field.element_type in {"bool", "float64"}:
            return choose.choice([True, False])
        width = 8 * FIXED_BYTES[FIXED_FORMATS[field.element_type]] - 1
        return choose.getrandbits(width)

    return struct(top, schema.fields)


def decodes(cls: type[msgspec.Struct], version: int, frame: bytes) -> bool:
    try:
        message, end = decode(cls, version, memoryview(frame))
    except MalformedMessage:
        return False
    assert isinstance(message, cls)
    assert end <= len(frame)
    return True


def mutations(whole: bytes, choose: random.Random) -> list[bytes]:
    mutated = []
    for at in choose.sample(range(len(whole)), min(len(whole), POSITIONS_MAX)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << choose.randrange(8)
        mutated.append(bytes(flipped))
        length = choose.choice(LENGTHS)
        mutated.append(whole[:at] + length + whole[at + len(length) :])
    return mutated


@pytest.mark.parametrize("name", load_table())
def test_cut_flipped_and_overlong(name: str) -> None:
    low, high = load_table()[name].versions
    cls = getattr(messages, name)
    for version in range(low, high + 1):
        choose = random.Random(f"{name} {version}")
        whole = encode_bytes(full_message(name, version, choose), version)
        assert decodes(cls, version, whole)
        for length in choose.sample(range(len(whole)), min(len(whole), POSITIONS_MAX)):
            assert not decodes(cls, version, whole[:length]), f"{version} cut at {length}"
        frames = mutations(whole, choose)
        for frame in frames:
            decodes(
                cls, version, frame
            )  # generates the replacing decoder, which is not to be measured
        tracemalloc.start()
        for frame in frames:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            decodes(cls, version, frame)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= MEMORY_PER_BYTE_MAX * len(frame) + ERROR_BYTES, frame
        tracemalloc.stop()
