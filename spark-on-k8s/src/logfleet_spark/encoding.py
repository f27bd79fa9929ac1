"""Encode Arrow columns as records: each field is encoded for all rows at once, then joined. PURE.

The bytes equal those of `logfleet.records.record.build_batch`. Source of the format: KIP-98,
DefaultRecord of Apache Kafka.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

RECORD_OVERHEAD_BYTES = 24
"""Largest size of a record's lengths, deltas and attributes, without those of its headers."""
_SEED, _FACTOR = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def partitions_of_keys(keys: pa.Array, partitions: int) -> Ints:
    """Return the partition that Kafka's default partitioner chooses for each key.

    The result for a null key has no meaning. Source: BuiltInPartitioner.partitionForKey.
    """
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Hash each key of a binary column; each step takes the next four bytes of all keys.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    offsets, data = buffers_of(keys)
    start, length = offsets[:-1], np.diff(offsets)
    value = _SEED ^ length.astype(np.uint32)
    rows = np.flatnonzero(length >= 4)
    position = 0
    while rows.size:
        at = start[rows] + position
        word = _bytes_at(data, at, 4) * _FACTOR
        word = (word ^ (word >> np.uint32(24))) * _FACTOR
        value[rows] = value[rows] * _FACTOR ^ word
        position += 4
        rows = rows[length[rows] - position >= 4]
    for count in (1, 2, 3):
        rows = np.flatnonzero(length % 4 == count)
        tail = _bytes_at(data, start[rows] + (length[rows] - count), count)
        value[rows] = (value[rows] ^ tail) * _FACTOR
    value = (value ^ (value >> np.uint32(13))) * _FACTOR
    return value ^ (value >> np.uint32(15))


def _bytes_at(data: npt.NDArray[np.uint8], at: Ints, count: int) -> npt.NDArray[np.uint32]:
    """Read little-endian numbers of `count` bytes."""
    value = data[at].astype(np.uint32)
    for shift in range(1, count):
        value |= data[at + shift].astype(np.uint32) << np.uint32(8 * shift)
    return value


def buffers_of(column: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the offsets (one more than rows) and the bytes of a large_binary column."""
    assert column.type == pa.large_binary(), column.type
    _, offsets, data = column.buffers()
    if len(column) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    whole = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return whole, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def header_bytes(headers: pa.Array) -> pa.Array:
    """Encode the headers of each row as its record holds them, as large_binary.

    headers: list<struct<key, value>>; lists and values may be null, keys may not.
    """
    offsets = np.frombuffer(
        headers.offsets.cast(pa.int64()).buffers()[1], np.int64, len(headers) + 1
    )
    structs = headers.values
    name = structs.field("key").cast(pa.large_binary())
    value = structs.field("value").cast(pa.large_binary())
    one_by_one = _joined(_varints([_lengths(name)]), name, _varints([_lengths(value)]), value)
    # a null list has no headers, even if Arrow's offsets give it some
    counts = np.where(np.asarray(headers.is_valid()), np.diff(offsets), 0)
    before = np.cumsum(counts) - counts
    wanted = np.repeat(offsets[:-1] - before, counts) + np.arange(counts.sum())
    ends, data = buffers_of(one_by_one.take(pa.array(wanted)))
    cuts = ends[np.append(before, counts.sum())]
    blocks = pa.Array.from_buffers(
        pa.large_binary(), len(headers), [None, pa.py_buffer(cuts), pa.py_buffer(data)]
    )
    return _joined(_varints([counts]), blocks)


def record_sizes(key: pa.Array, value: pa.Array, headers: pa.Array | None) -> Ints:
    """Return an upper bound for the bytes of each record. headers: as encoded by `header_bytes`."""
    size = np.maximum(_lengths(key), 0) + np.maximum(_lengths(value), 0) + RECORD_OVERHEAD_BYTES
    return size if headers is None else size + _lengths(headers)


def encoded(
    key: pa.Array, value: pa.Array, headers: pa.Array | None, offset_deltas: Ints
) -> pa.Array:
    """Encode each row as a record of its batch, as large_binary without gaps.

    headers: as encoded by `header_bytes`. offset_deltas: of each record in its batch. Every record
    has the time of its batch.
    """
    key_length, value_length = _lengths(key), _lengths(value)
    before_value = _varints([value_length])
    headers = (
        pa.repeat(pa.scalar(b"\0", pa.large_binary()), len(key)) if headers is None else headers
    )
    size = (
        2  # attributes and the delta of the time, both 0
        + _widths(offset_deltas)
        + _widths(key_length)
        + np.maximum(key_length, 0)
        + _lengths(before_value)
        + np.maximum(value_length, 0)
        + _lengths(headers)
    )
    nothing = np.zeros(len(key), np.int64)
    before_key = _varints([size, nothing, nothing, offset_deltas, key_length])
    return _joined(before_key, key, before_value, value, headers)


def batch_starts(sizes: Ints, bytes_max: int) -> list[int]:
    """Return the row at which each batch begins.

    A batch holds as many rows as fit into `bytes_max`, and at least one.
    """
    ends = np.cumsum(sizes)
    starts, row, before = [], 0, 0
    while row < len(sizes):
        starts.append(row)
        row = max(int(np.searchsorted(ends, before + bytes_max, side="right")), row + 1)
        before = int(ends[row - 1])
    return starts


def _lengths(column: pa.Array) -> Ints:
    """Return the bytes of each cell, -1 for null."""
    found = pc.binary_length(column)
    return np.asarray(found.fill_null(-1) if found.null_count else found, np.int64)


def _joined(*columns: pa.Array) -> pa.Array:
    """Join the cells of each row one after another; a null cell adds nothing."""
    return pc.binary_join_element_wise(
        *columns,
        pa.scalar(b"", pa.large_binary()),
        null_handling="replace",
        null_replacement="",
    )


def _zigzag(values: Ints) -> Ints:
    return (values << 1) ^ (values >> 63)


def _widths(values: Ints) -> Ints:
    """Return the bytes that each number takes as a zigzag varint. Numbers must be below 2**34."""
    rest = _zigzag(values)
    width = np.ones(len(values), np.int64)
    for bits in (7, 14, 21, 28):
        width += rest >= 1 << bits
    return width


def _varints(columns: Sequence[Ints]) -> pa.Array:
    """Encode the numbers of each row as zigzag varints one after another, as large_binary.

    Numbers must be below 2**34.
    """
    count = len(columns[0])
    widths = [_widths(values) for values in columns]
    room = [int(width.max(initial=1)) for width in widths]
    cells = np.empty((count, sum(room)), np.uint8)
    used = np.empty((count, sum(room)), np.bool_)
    at = 0
    for values, width, most in zip(columns, widths, room, strict=True):
        rest = _zigzag(values)
        for place in range(most):
            more = width > place + 1
            cells[:, at] = (rest & 127) | (more << 7)
            used[:, at] = width > place
            rest = rest >> 7
            at += 1
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sum(widths), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(cells[used])]
    )
