"""Many records at once, as columns, without an object for each.

For programs that pass keys and values through and look at nothing else. `record` reads and writes
everything; here the usual records take a few instructions each, and a payload with anything else is
left to `record`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from logfleet.records.errors import CorruptRecords
from logfleet.records.record import Header, bytes_field, headers_field
from logfleet.records.varint import append_varint, read_varint

NULL_SIZE = 1
"""-1 as a zigzag varint."""


class Columns(NamedTuple):
    """Keys and values of records, in their order."""

    keys: list[bytes | None]
    values: list[bytes | None]


def read_columns(payload: bytes, count: int) -> Columns | None:
    """Keys and values of `count` records without headers; None for any other payload.

    payload: the decompressed part of a batch behind its header. It is corrupt, or not,
    if the result is None: `record.read_records` reads it or raises. Varints of one byte, the usual
    ones, are read in place: a call for each would double the cost.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    add_key, add_value = keys.append, values.append
    cursor, total = 0, len(payload)
    try:
        while cursor < total:
            size, cursor = payload[cursor], cursor + 1
            if size > 0x7F:
                size, cursor = _unsigned(payload, cursor - 1)
            if size & 1:  # negative, as all odd ones
                return None
            end = cursor + (size >> 1)
            if payload[cursor + 1] < 0x80:  # timestamp delta, behind the attributes
                cursor += 2
            else:
                cursor = _unsigned(payload, cursor + 1)[1]
            if payload[cursor] < 0x80:  # offset delta
                cursor += 1
            elif payload[cursor + 1] < 0x80:
                cursor += 2
            else:
                cursor = _unsigned(payload, cursor)[1]
            size, cursor = payload[cursor], cursor + 1
            if size == NULL_SIZE:
                add_key(None)
            else:
                if size > 0x7F:
                    size, cursor = _unsigned(payload, cursor - 1)
                if size & 1:
                    return None
                start, cursor = cursor, cursor + (size >> 1)
                add_key(payload[start:cursor])
            size, cursor = payload[cursor], cursor + 1
            if size == NULL_SIZE:
                add_value(None)
            else:
                if size > 0x7F:
                    size, cursor = _unsigned(payload, cursor - 1)
                if size & 1:
                    return None
                start, cursor = cursor, cursor + (size >> 1)
                add_value(payload[start:cursor])
            if payload[cursor] or cursor + 1 != end:
                return None
            cursor = end
    except (IndexError, CorruptRecords):
        return None
    return Columns(keys, values) if len(values) == count else None


def _unsigned(payload: bytes, cursor: int) -> tuple[int, int]:
    """A varint before zigzag is undone, and the position after it. Raises as `read_varint`."""
    value, cursor = read_varint(payload, cursor)
    return (value << 1) ^ (value >> 63), cursor


class _Varints(dict[int, bytes]):
    """number -> `before` and the number as a varint, `behind`; made once for each number."""

    def __init__(self, before: bytes = b"", behind: bytes = b"") -> None:
        super().__init__()
        self._before, self._behind = before, behind

    def __missing__(self, number: int) -> bytes:
        varint = bytearray()
        append_varint(varint, number)
        self[number] = found = self._before + varint + self._behind
        return found


_DELTAS = _Varints()


def encode_values(
    values: Sequence[bytes],
    *,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
    timestamp_delta: int = 0,
    first_delta: int = 0,
) -> bytes:
    """Records of these values, encoded as `record.build_batch` does; their offset deltas rise by 1.

    key, headers, timestamp_delta: of all of them. first_delta: the offset delta of the first one.
    """
    if not values:
        return b""
    end = headers_field(headers)
    begin = b"\0" + _Varints()[timestamp_delta]  # attributes: none are defined
    sizes = _Varints(before=end, behind=begin)  # a record begins where another one ends
    fields = _Varints(before=bytes_field(key))
    deltas = [_DELTAS[delta] for delta in range(first_delta, first_delta + len(values))]
    rest = len(begin) + len(end)
    parts: list[bytes] = []
    add = parts.append
    for delta, value in zip(deltas, values, strict=True):
        field = fields[len(value)]
        add(sizes[rest + len(delta) + len(field) + len(value)])
        add(delta)
        add(field)
        add(value)
    parts.append(end)
    parts[0] = parts[0][len(end) :]
    return b"".join(parts)
