"""Decode fetched batches to Arrow columns: numpy walks the fields of many batches at once. PURE.

`logfleet.records.record` reads one record at a time; this module reads the same format one column
at a time. It refuses all that the other refuses, and also offsets that lie outside their batch or
do not rise, and times that Spark cannot hold. Records that are not compressed are sliced out of the
fetch response without a copy. Source of the format: KIP-98, DefaultRecord of Apache Kafka.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from logfleet.records.aborted import AbortedTransaction, visible_batches
from logfleet.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    TimestampType,
    crc_matches,
    iterate_headers,
    read_codec,
)
from logfleet.records.checksum import Buffer
from logfleet.records.compression import Codec, decompressed_pieces
from logfleet.records.errors import CorruptRecords, RecordsError
from logfleet.records.record import DECOMPRESSED_BYTES_MAX
from logfleet.records.varint import VARLONG_BYTES_MAX
from logfleet.wire.java_text import java_text

from logfleet_spark.boundaries import NotRecords, record_starts

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

HEADER_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of records that become one Arrow batch.

It is large enough to make numpy's cost per call negligible, and small enough for any worker's
memory. A single batch may be larger.
"""
RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and the number of headers take a byte each."""
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
"""Largest time: Spark holds times as microseconds in 64 bits."""


class Part(msgspec.Struct, frozen=True):
    """Whole batches of one partition. Records from `start` to `end` (exclusive) are wanted.

    aborted: the transactions whose batches are left out.
    """

    topic: str
    partition: int
    batches: Buffer
    start: int
    end: int
    aborted: tuple[AbortedTransaction, ...] = ()

    def refuse(self, why: object) -> NoReturn:
        """Raise CorruptRecords with a text that names the partition."""
        raise CorruptRecords(f"{self.topic}-{self.partition}: {why}")


def decode(parts: Iterable[Part], *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of all parts, in their order.

    columns: names out of the columns of Spark's Kafka source, in the order of the result. Other
    columns are not built. Raises CorruptRecords, which names partition and offset, if a checksum is
    wrong or if a batch does not follow the format.
    """
    group = _Group()
    for part in parts:
        for position, header in _headers(part):
            if group.size >= GROUP_BYTES:
                yield from group.decoded(columns)
                group = _Group()
            if not header.is_control and part.start <= header.last_offset:
                if header.base_offset >= part.end:
                    break
                group.add(part, position, header)
    yield from group.decoded(columns)


def _headers(part: Part) -> Iterator[tuple[int, BatchHeader]]:
    try:
        if part.aborted:
            yield from visible_batches(part.batches, part.aborted)
        else:
            yield from iterate_headers(part.batches)
    except CorruptRecords as error:
        part.refuse(error)


def _refuse(part: Part, header: BatchHeader, why: object) -> NoReturn:
    part.refuse(f"batch at offset {header.base_offset}: {why}")


class _BadRow(Exception):
    """A row of a group is not a valid record."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


@dataclass(slots=True)
class _Group:
    """Batches that are decoded together.

    pieces: the uncompressed records of each batch. size: of all pieces, in bytes.
    """

    parts: list[Part] = field(default_factory=list)
    batch_headers: list[BatchHeader] = field(default_factory=list)
    pieces: list[Buffer] = field(default_factory=list)
    size: int = 0

    def add(self, part: Part, position: int, header: BatchHeader) -> None:
        """Check a batch and keep its records."""
        if not crc_matches(part.batches, header, position):
            _refuse(part, header, "its checksum is wrong")
        body = memoryview(part.batches)[position + HEADER_SIZE : position + header.size]
        piece: Buffer = body
        try:
            codec = read_codec(header)
            if codec is not Codec.NONE:
                several = list(decompressed_pieces(codec, body, DECOMPRESSED_BYTES_MAX))
                piece = several[0] if len(several) == 1 else b"".join(several)
        except RecordsError as error:
            _refuse(part, header, error)
        room = len(piece)
        if not 0 <= header.record_count <= room // RECORD_BYTES_MIN or (
            room and not header.record_count
        ):
            _refuse(part, header, f"{header.record_count} records in {room} bytes")
        self.parts.append(part)
        self.batch_headers.append(header)
        self.pieces.append(piece)
        self.size += room

    def decoded(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield one batch of rows, or none if no row is wanted."""
        counts = np.array([header.record_count for header in self.batch_headers], np.int64)
        if not counts.sum():
            return
        try:
            rows = _read(*_in_one(self.pieces), counts)
            batch = self._batch(rows, counts, columns)
        except _BadRow as bad:
            index = int(np.searchsorted(np.cumsum(counts), bad.row, side="right"))
            _refuse(self.parts[index], self.batch_headers[index], bad)
        if batch.num_rows:
            yield batch

    def _batch(self, rows: "_Rows", counts: Ints, columns: Sequence[str]) -> pa.RecordBatch:
        offsets = self._offsets(rows, counts)
        build: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: _slices(rows.body, rows.key, rows.key_length),
            "value": lambda: _slices(rows.body, rows.value, rows.value_length),
            "topic": lambda: self._topics(counts),
            "partition": lambda: _repeated([p.partition for p in self.parts], counts),
            "offset": lambda: pa.array(offsets),
            "timestamp": lambda: self._timestamps(rows, counts),
            "timestampType": lambda: _repeated(
                [h.timestamp_type for h in self.batch_headers], counts
            ),
            "headers": lambda: rows.headers.column(rows.body),
        }
        batch = pa.RecordBatch.from_arrays([build[name]() for name in columns], names=list(columns))
        start = np.repeat(np.array([p.start for p in self.parts], np.int64), counts)
        end = np.repeat(np.array([p.end for p in self.parts], np.int64), counts)
        wanted = (offsets >= start) & (offsets < end)
        return batch if wanted.all() else batch.filter(pa.array(wanted))

    def _offsets(self, rows: "_Rows", counts: Ints) -> Ints:
        """Return the offset of each row.

        Raises _BadRow for an offset that lies outside its batch or is not above the previous one.
        """
        delta = rows.offset_delta
        last = np.repeat(
            np.array([h.last_offset_delta for h in self.batch_headers], np.int64), counts
        )
        _check((delta < 0) | (delta > last), "its offset is not one of the batch's")
        rising = np.ones(len(delta), np.bool_)
        rising[1:] = delta[1:] > delta[:-1]
        rising[(np.cumsum(counts) - counts)[counts > 0]] = True
        _check(~rising, "offsets do not rise")
        return (
            np.repeat(np.array([h.base_offset for h in self.batch_headers], np.int64), counts)
            + delta
        )

    def _topics(self, counts: Ints) -> pa.Array:
        names = [part.topic for part in self.parts]
        if len(set(names)) == 1:
            return pa.repeat(pa.scalar(names[0], pa.string()), int(counts.sum()))
        return pa.array(names, pa.string()).take(
            pa.array(np.repeat(np.arange(len(names), dtype=np.int64), counts))
        )

    def _timestamps(self, rows: "_Rows", counts: Ints) -> pa.Array:
        """Return the time of each row (KIP-32).

        If the broker sets times, it is the largest time of the row's batch, else the record's own.
        """
        appended = [h.timestamp_type is TimestampType.LOG_APPEND_TIME for h in self.batch_headers]
        base = np.repeat(
            np.array(
                [
                    h.max_timestamp if set_by_broker else h.base_timestamp
                    for h, set_by_broker in zip(self.batch_headers, appended, strict=True)
                ],
                np.int64,
            ),
            counts,
        )
        delta = rows.timestamp_delta
        if any(appended):
            delta = np.where(np.repeat(np.array(appended), counts), 0, delta)
        # with both within bounds their sum cannot overflow; a delta may span from one bound to the
        # other, which is why half of it is checked
        _check(_beyond(base) | _beyond(delta // 2), "a time beyond what Spark can hold")
        millis = base + delta
        _check(_beyond(millis), "a time beyond what Spark can hold")
        return pa.array(millis * 1000).cast(pa.timestamp("us", tz="UTC"))


def _repeated(values: Sequence[int], counts: Ints) -> pa.Array:
    """Make an int column that repeats each batch's value for all records of the batch."""
    return pa.array(np.repeat(np.array(values, np.int32), counts))


def _in_one(pieces: Sequence[Buffer]) -> tuple[Buffer, Ints, Ints]:
    """Return one buffer that holds all pieces, and where each begins and ends in it.

    If all pieces are slices of one buffer, that buffer is returned, else a copy.
    """
    views = [memoryview(piece) for piece in pieces]
    sizes = np.array([len(view) for view in views], np.int64)
    whole = views[0].obj
    if len(views) > 1 and any(view.obj is not whole for view in views):
        ends = np.cumsum(sizes)
        return b"".join(pieces), ends - sizes, ends
    body = memoryview(whole).cast("B")
    starts = np.array([_address(view) for view in views], np.int64) - _address(body)
    return body, starts, starts + sizes


def _address(view: memoryview) -> int:
    place: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return place


def _beyond(millis: Ints) -> Flags:
    return (millis > TIMESTAMP_MS_MAX) | (millis < -TIMESTAMP_MS_MAX)


def _check(bad: Flags, why: str) -> None:
    """Raise _BadRow for the first row that is bad."""
    if bad.any():
        raise _BadRow(int(np.argmax(bad)), why)


@dataclass(frozen=True, slots=True)
class _Headers:
    """Headers of all rows, one after another.

    counts: headers of each row. name, value: positions at which each begins. value_length: -1 is
    null.
    """

    counts: Ints
    name: Ints
    name_length: Ints
    value: Ints
    value_length: Ints

    def column(self, body: Buffer) -> pa.Array:
        """Build the column of headers.

        A row without headers is null, not an empty list, as in Spark's source.
        """
        names = _slices(body, self.name, self.name_length)
        try:
            keys = names.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8: decode it as Java does
            keys = pa.array([java_text(name) for name in names.to_pylist()], pa.string())
        values = _slices(body, self.value, self.value_length)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
        offsets = np.zeros(len(self.counts) + 1, np.int32)
        np.cumsum(self.counts, out=offsets[1:])
        column = pa.ListArray.from_arrays(pa.array(offsets), structs, type=HEADER_TYPE)
        if self.counts.all():
            return column
        some = pa.array(np.arange(len(self.counts)), mask=self.counts == 0)
        return column.take(some)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Positions of the fields of all records in `body`; a length of -1 or less is null."""

    body: Buffer
    timestamp_delta: Ints
    offset_delta: Ints
    key: Ints
    key_length: Ints
    value: Ints
    value_length: Ints
    headers: _Headers


def _read(body: Buffer, batch_starts: Ints, batch_ends: Ints, counts: Ints) -> _Rows:
    """Find all fields of the records in `body`.

    batch_starts, batch_ends, counts: of each batch. Raises _BadRow.
    """
    a = np.frombuffer(body, np.uint8)
    last = np.cumsum(counts) - 1
    try:
        at = record_starts(body, batch_starts.tolist(), batch_ends.tolist(), counts.tolist())
    except NotRecords as bad:
        why = f"its bytes are not those of {counts[bad.batch]} records"
        raise _BadRow(int(last[bad.batch]), why) from None
    size, start = _varints(a, at)
    end = start + size
    behind = np.append(at[1:], 0)
    behind[last[counts > 0]] = batch_ends[counts > 0]
    _check((size < 0) | (end != behind), "a record's length is wrong")
    # the byte at `start` holds the record's attributes; Kafka defines none
    timestamp_delta, at = _varints(a, start + 1)
    offset_delta, at = _varints(a, at)
    key_length, key = _varints(a, at)
    _check(key_length > end - key, "a key longer than its record")
    value_length, value = _varints(a, key + np.maximum(key_length, 0))
    _check(value_length > end - value, "a value longer than its record")
    header_counts, at = _varints(a, value + np.maximum(value_length, 0))
    _check(
        (header_counts < 0) | (header_counts > (end - at) >> 1), "its headers have no room in it"
    )
    headers, at = _read_headers(a, header_counts, at, end)
    _check(at != end, "its fields do not fill it")
    return _Rows(body, timestamp_delta, offset_delta, key, key_length, value, value_length, headers)


def _read_headers(a: Bytes, counts: Ints, at: Ints, end: Ints) -> tuple[_Headers, Ints]:
    """Read the headers that begin at `at`; return them and the positions behind them.

    Takes as many steps as the row with most headers has.
    """
    total = int(counts.sum())
    columns = [np.empty(total, np.int64) for _ in range(4)]
    first = np.cumsum(counts) - counts
    at = at.copy()
    rows = np.flatnonzero(counts)
    step = 0
    while rows.size:
        ends = end[rows]
        try:
            name_length, name = _varints(a, at[rows])
            _check(name_length < 0, "a header without a name")
            _check(name_length > ends - name, "a header longer than its record")
            value_length, value = _varints(a, name + name_length)
            _check(value_length > ends - value, "a header longer than its record")
        except _BadRow as bad:
            raise _BadRow(int(rows[bad.row]), str(bad)) from None
        into = first[rows] + step
        for column, found in zip(columns, (name, name_length, value, value_length), strict=True):
            column[into] = found
        at[rows] = value + np.maximum(value_length, 0)
        step += 1
        rows = rows[counts[rows] > step]
    return _Headers(counts, *columns), at


def _varints(a: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Read a zigzag varint at each position in `at`; return (values, positions behind them).

    Raises _BadRow where `read_varint` would raise.
    """
    try:
        byte = a[at]
        rest = (byte & 127).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte > 127)
        shift = 7
        while more.size:
            if shift >= 7 * VARLONG_BYTES_MAX:
                raise _BadRow(int(more[0]), "a number longer than 10 bytes")
            byte = a[at[more]]
            if shift == 7 * (VARLONG_BYTES_MAX - 1) and (byte & 127 > 1).any():
                raise _BadRow(int(more[np.argmax(byte & 127 > 1)]), "a number beyond 64 bits")
            rest[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[byte > 127]
            shift += 7
    except IndexError:
        raise _BadRow(int(np.argmax(at)), "a record ends early") from None
    return (rest >> np.uint64(1)).view(np.int64) ^ -(rest & np.uint64(1)).view(np.int64), at


def _slices(body: Buffer, start: Ints, length: Ints) -> pa.Array:
    """Build a binary column of the bytes from each start on; null where the length is negative.

    Starts must rise, and slices must not overlap.

    The body is wrapped as one array, cut wherever a slice begins or ends. Arrow's `take` then
    copies only the wanted pieces.
    """
    count = len(start)
    nulls = length < 0
    cuts = np.empty(2 * count + 2, np.int32)
    cuts[0], cuts[-1] = 0, len(body)
    cuts[1:-1:2], cuts[2:-1:2] = start, start + np.maximum(length, 0)
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count + 1, [None, pa.py_buffer(cuts), pa.py_buffer(body)]
    )
    wanted = pa.array(np.arange(1, 2 * count + 1, 2), mask=nulls if nulls.any() else None)
    return pieces.take(wanted)
