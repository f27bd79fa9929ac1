"""The memory limit of a request, counted while it is decoded and before it is allocated.

Python's objects are much larger than their encoding: three bytes can ask for a struct of 150 bytes,
for its part in the handler's work and for a row of the response. So each array element has a cost
that depends on its type, and a request has a budget that grows with its frame. Only array elements
are counted: the schema bounds the rest.
"""

from logfleet.wire.schema import FIXED_FORMATS, Field

# Limit of the memory for the elements of a request's arrays while it is handled, response included:
# enough for about 44,000 partitions of as many topics in one Fetch, 75,000 topics to create,
# 250,000 offsets to fetch; the part below adds to it for longer names and values.
REQUEST_MEMORY_BYTES = 48 * 1024 * 1024
REQUEST_MEMORY_PER_BYTE = 4
# The limit for any frame: a quarter of a million elements keep the loop busy for about 0.3 s. The
# frame's own bytes (assignments of members, records) are not counted here.
REQUEST_MEMORY_BYTES_MAX = 112 * 1024 * 1024

# Limit for all large requests that wait for something (records, members, the controller): beyond it
# the connection of another large one is closed. Small ones are always accepted; each client has one
# at a time.
WAITING_MEMORY_BYTES = 1024 * 1024 * 1024
SMALL_REQUEST_BYTES = 64 * 1024

# Memory that one element of a request's array takes in the handler and in the response, besides
# itself, measured over all APIs: most for group names (a row of ten fields each) and for refusals
# with a message. A few take four times that.
_HANDLING_BYTES = 384
_HANDLING_STRING_BYTES = 768
_HANDLING_NUMBER_BYTES = 128
_SLOT_BYTES = (
    16  # a pointer, twice: lists grow by copying, and arrays of numbers come as a tuple first
)
_STRUCT_BYTES = 16
_LIST_BYTES = 64
# Objects of CPython on 64 bits, rounded to the allocator's 16; the content of strings and bytes is
# limited by the frame's size.
_OBJECT_BYTES = {"?": 0, "q": 48, "16s": 64, "string": 80, "bytes": 48, "records": 192}
_NUMBER_BYTES = 32


def element_memory(field: Field, structs: dict[str, tuple[Field, ...]], version: int) -> int:
    """Bytes of memory for an element of a request's array, until the request is answered.

    Elements of inner arrays are not included.
    """
    if field.struct_name is not None:
        handling = _HANDLING_BYTES
        element = _struct_memory(structs[field.struct_name], structs, version)
    else:
        numbers = field.element_type in FIXED_FORMATS
        handling = _HANDLING_NUMBER_BYTES if numbers else _HANDLING_STRING_BYTES
        element = _object_bytes(field.element_type)
    return _SLOT_BYTES + handling + element


def _struct_memory(
    fields: tuple[Field, ...], structs: dict[str, tuple[Field, ...]], version: int
) -> int:
    total = _STRUCT_BYTES + 8 * len(fields)
    for field in fields:
        if field.is_array:
            total += _LIST_BYTES  # an empty list even if the version lacks the field
        elif field.is_struct:
            total += _struct_memory(structs[field.element_type], structs, version)
        elif field.exists(version):
            total += _object_bytes(field.type)
    return total


def _object_bytes(type_name: str) -> int:
    return _OBJECT_BYTES.get(FIXED_FORMATS.get(type_name, type_name), _NUMBER_BYTES)
