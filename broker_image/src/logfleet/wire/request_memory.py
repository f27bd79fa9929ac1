"""How much memory a request may take, counted while it is decoded and before anything is made of it.

Python's objects are much larger than what stands for them on the wire: three bytes can ask for a struct of 150 bytes, for its part
in the handler's work and for a row of the answer. So each element of an array has a price that follows from its type, and
a request pays from a purse that grows with its frame. Only what the arrays hold is counted: all else is bounded by the schema.
"""

from logfleet.wire.schema import FIXED_FORMATS, Field

# What the elements of a request's arrays may take while it is answered, answer included: that of about 44,000 partitions of as
# many topics in one Fetch, 75,000 topics to be created, 250,000 offsets to be fetched, and more with longer names and values.
REQUEST_MEMORY_BYTES = 48 * 1024 * 1024
REQUEST_MEMORY_PER_BYTE = 4
# And never more than that, however large the frame: a quarter of a million elements keep the loop for about 0.3 s. The frame's own
# bytes (assignments of members, records) are not counted here.
REQUEST_MEMORY_BYTES_MAX = 112 * 1024 * 1024

# What large requests that wait for something (records, members, the controller) may take together: the connection of a larger
# one is closed then. Small ones are always taken; each client has one at a time.
WAITING_MEMORY_BYTES = 1024 * 1024 * 1024
SMALL_REQUEST_BYTES = 64 * 1024

# What one element of a request's array takes of the handler's memory and of the answer's, beside itself, measured over all
# APIs: most for the names of groups (a row of ten fields each) and for what is refused with a text. A few take four times that.
_HANDLING_BYTES = 384
_HANDLING_STRING_BYTES = 768
_HANDLING_NUMBER_BYTES = 128
_SLOT_BYTES = (
    16  # a pointer, twice: lists grow by copying, and arrays of numbers come as a tuple first
)
_STRUCT_BYTES = 16
_LIST_BYTES = 64
# Objects of CPython on 64 bits, rounded to the allocator's 16; the content of strings and bytes is the frame's own size.
_OBJECT_BYTES = {"?": 0, "q": 48, "16s": 64, "string": 80, "bytes": 48, "records": 192}
_NUMBER_BYTES = 32


def element_memory(field: Field, structs: dict[str, tuple[Field, ...]], version: int) -> int:
    """Bytes of memory that answering takes for each element of a request's array, without inner arrays' elements."""
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
            total += _LIST_BYTES  # also where the version lacks it: it is empty then
        elif field.is_struct:
            total += _struct_memory(structs[field.element_type], structs, version)
        elif field.exists(version):
            total += _object_bytes(field.type)
    return total


def _object_bytes(type_name: str) -> int:
    return _OBJECT_BYTES.get(FIXED_FORMATS.get(type_name, type_name), _NUMBER_BYTES)
