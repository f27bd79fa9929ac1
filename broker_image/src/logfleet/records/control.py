"""Transaction markers: the control batch that ends a producer's transaction in one partition.

Source: KIP-98; Kafka's `EndTransactionMarker`, `ControlRecordType`,
`MemoryRecords.withEndTransactionMarker`. A marker is a batch of one record, always 78 bytes:

    key    version i16, type i16 (0 abort, 1 commit)
    value  version i16, coordinator epoch i32
"""

import struct
from typing import Final

import msgspec

from logfleet.records.batch import HEADER_SIZE, NO_SEQUENCE, parse_header
from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import ProducerStamp, batch_of, read_records

MARKER_BYTES: Final = 78
"""Size of a marker's batch."""

_ABORT: Final = 0
_COMMIT: Final = 1
_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")

_RECORD: Final = struct.Struct(">4s b hh b hi b")
_USUAL_HEAD: Final = bytes((32, 0, 0, 0))
"""Length 16, then attributes, timestamp delta and offset delta, all 0."""
_KEY_SIZE: Final = 2 * _KEY.size
_VALUE_SIZE: Final = 2 * _VALUE.size
"""As varints: twice the number of bytes."""


class Marker(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one transaction. coordinator_epoch: leader epoch of its coordinator."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int


def marker_batch(
    producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytearray:
    """The batch that writes this marker, byte for byte as Kafka does; its base offset is 0."""
    kind = _COMMIT if commit else _ABORT
    record = _RECORD.pack(
        _USUAL_HEAD, _KEY_SIZE, _VERSION, kind, _VALUE_SIZE, _VERSION, coordinator_epoch, 0
    )
    stamp = ProducerStamp(producer_id, epoch, NO_SEQUENCE, transactional=True)
    return batch_of(record, 1, now_ms, now_ms, producer=stamp, control=True)


def read_marker(batch: Buffer, position: int = 0) -> Marker | None:
    """The marker in the batch at `position`.

    None if it holds none: it is no transactional control batch, compaction emptied it, its control
    record is of another type, or malformed. A version of key or value above ours is read as ours,
    as Kafka does. Raises CorruptRecords if there is no whole header.
    """
    header = parse_header(batch, position)
    if not (header.is_control and header.is_transactional and header.record_count):
        return None
    if header.size == MARKER_BYTES and len(batch) - position >= MARKER_BYTES:
        head, _, _, kind, _, _, coordinator_epoch, _ = _RECORD.unpack_from(
            batch, position + HEADER_SIZE
        )
        if head == _USUAL_HEAD and kind in (_ABORT, _COMMIT):
            return Marker(
                header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch
            )
    try:
        return _read_any_marker(batch, position)
    except CorruptRecords:
        return None


def _read_any_marker(batch: Buffer, position: int) -> Marker | None:
    """As `read_marker`, of a batch whose record is laid out otherwise, as a later version may."""
    header = parse_header(batch, position)
    record = next(read_records(batch, position))
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise CorruptRecords(f"a control record with a key of {len(key)} bytes")
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if len(value) < _VALUE.size:
        raise CorruptRecords(f"a marker with a value of {len(value)} bytes")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch)
