"""Compacts one batch (Kafka's Cleaner.cleanInto and MemoryRecords.filterTo).

Upholds I20: of each key the newest record stays, at its offset; a tombstone stays for
delete.retention.ms after it was first cleaned (KIP-534: the time of its removal replaces the
batch's base timestamp, attribute bit 6). A batch keeps its base offset, last offset, sequences,
producer, leader epoch and codec, whichever records are removed. Two batches stay even without
records: the last batch of an active producer, which holds its sequence, and the last batch of the
cleaned part, which holds the log's offset (I10, I9).

The records of an aborted transaction go at once. A marker goes as a tombstone does, counted from
the first round that finds no batch of its transaction (`transactions`): until then a reader may
have some of its records. Only the last marker of an active producer stays, as it holds its epoch
and that of its coordinator; Kafka keeps such a one without its record, and so forgets both if it
has to rebuild the producer's state (I33).
"""

from collections.abc import Callable, Mapping

import msgspec

from logfleet.log.config import LONG_MAX
from logfleet.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    read_codec,
    write_crc,
)
from logfleet.records.checksum import Buffer
from logfleet.records.compression import Codec, compress, decompress
from logfleet.records.errors import CorruptRecords
from logfleet.records.spans import record_spans
from logfleet.records.varint import append_varint, read_varint


class CleaningRules(msgspec.Struct, frozen=True):
    """The inputs of one round of compaction.

    newest_offset: of a key among the mapped records, which lie below mapped_end; -1 for a key that
    has none. upper_bound: first offset that this round may not clean. producers: id of each active
    producer whose state the cleaned part holds -> offset of its last record there, or a smaller
    one. markers: id of each active producer that has ended a transaction -> its epoch, and the time
    of its last batch or marker.
    """

    newest_offset: Callable[[bytes], int]
    mapped_end: int
    upper_bound: int
    producers: Mapping[int, int]
    markers: Mapping[int, tuple[int, int]]
    now_ms: int
    delete_retention_ms: int
    decompressed_bytes_max: int

    def keeps_empty(self, header: BatchHeader) -> bool:
        """Whether the batch stays even if all its records are removed."""
        return (
            header.next_offset == self.upper_bound
            or self.producers.get(header.producer_id, LONG_MAX) <= header.last_offset
        )

    def is_last_marker(self, header: BatchHeader) -> bool:
        """Whether this may be the last marker of an active producer, and nothing follows it."""
        last = (header.producer_epoch, header.max_timestamp)
        return self.markers.get(header.producer_id) == last


class CleanedBatch(msgspec.Struct, frozen=True):
    """The rest of a batch. buffer: None if nothing is left.

    keyless: dropped records that have no key.
    """

    buffer: Buffer | None
    records: int
    keyless: int = 0


def clean_batch(batch: bytes, header: BatchHeader, rules: CleaningRules) -> CleanedBatch:
    """Remove obsolete records from one whole batch, which holds no marker and was not aborted.

    Raises CorruptRecords or DecompressedTooLarge if its records cannot be read; the caller checks
    the checksum.
    """
    payload = read_payload(batch, header, rules.decompressed_bytes_max)
    kept = _select(payload, header, rules)
    if kept.records == 0:
        return CleanedBatch(_emptied(batch, header, rules), 0, kept.keyless)
    sets_horizon = kept.tombstones and not header.has_delete_horizon
    if kept.records == header.record_count and not sets_horizon:
        return CleanedBatch(batch, kept.records)
    horizon_ms = rules.now_ms + rules.delete_retention_ms if sets_horizon else None
    return CleanedBatch(_rebuilt_batch(header, kept, horizon_ms), kept.records, kept.keyless)


def clean_aborted(batch: bytes, header: BatchHeader, rules: CleaningRules) -> CleanedBatch:
    """Remove all records of one whole batch, as its transaction was aborted."""
    return CleanedBatch(_emptied(batch, header, rules), 0)


def clean_marker(batch: bytes, header: BatchHeader, rules: CleaningRules) -> CleanedBatch:
    """Remove the marker of a transaction that has no batch left, or let it go later.

    batch: a whole control batch. One that has lost its record already only stays if it is the last
    one of its producer or of the cleaned part. Raises CorruptRecords.
    """
    if header.record_count and not header.has_delete_horizon:
        payload = read_payload(batch, header, rules.decompressed_bytes_max)
        max_delta = header.max_timestamp - header.base_timestamp
        kept = _Selection(payload, header.record_count, 0, tombstones=False, max_delta=max_delta)
        horizon_ms = rules.now_ms + rules.delete_retention_ms
        return CleanedBatch(_rebuilt_batch(header, kept, horizon_ms), kept.records)
    if rules.is_last_marker(header) or (
        header.record_count and rules.now_ms < header.base_timestamp
    ):
        return CleanedBatch(batch, header.record_count)
    is_last = header.next_offset == rules.upper_bound
    return CleanedBatch(_emptied(batch, header, rules) if is_last else None, 0)


def read_payload(batch: bytes, header: BatchHeader, budget_bytes: int) -> bytes:
    """The batch's records, decompressed. Raises CorruptRecords, DecompressedTooLarge."""
    codec = read_codec(header)
    if codec is Codec.NONE:
        return batch[HEADER_SIZE:]
    return bytes(decompress(codec, memoryview(batch)[HEADER_SIZE:], budget_bytes))


class _Selection(msgspec.Struct):
    """The records that stay, as encoded in their batch.

    max_delta: the largest of their timestamp deltas.
    """

    payload: bytes | bytearray
    records: int
    keyless: int
    tombstones: bool
    max_delta: int


def _select(payload: bytes, header: BatchHeader, rules: CleaningRules) -> _Selection:
    base_offset, newest_offset = header.base_offset, rules.newest_offset
    mapped = rules.mapped_end - base_offset
    drops_tombstones = header.has_delete_horizon and rules.now_ms >= header.base_timestamp
    kept = bytearray()
    run_start = count = dropped = keyless = 0
    tombstones, max_delta = False, -(2**63)
    for start, end, timestamp_delta, offset_delta, key, has_value in record_spans(payload):
        count += 1
        stays = offset_delta >= mapped  # its key was not mapped in this round
        if not stays:
            if key is None:
                keyless += 1
            elif has_value or not drops_tombstones:
                stays = base_offset + offset_delta >= newest_offset(key)
        if stays:
            tombstones = tombstones or not has_value
            max_delta = max(max_delta, timestamp_delta)
        else:
            dropped += 1
            kept += payload[run_start:start]
            run_start = end
    if count != header.record_count:
        raise CorruptRecords(f"{count} records, but the header counts {header.record_count}")
    if not dropped:
        return _Selection(payload, count, 0, tombstones, max_delta)
    kept += payload[run_start:]
    return _Selection(kept, count - dropped, keyless, tombstones, max_delta)


def _emptied(batch: bytes, header: BatchHeader, rules: CleaningRules) -> Buffer | None:
    """The batch without its records (`DefaultRecordBatch.writeEmptyHeader`), if it stays."""
    if not rules.keeps_empty(header):
        return None
    if not header.record_count:
        return batch
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _batch(header, attributes, b"", (NO_TIMESTAMP, header.max_timestamp, 0))


def _rebuilt_batch(header: BatchHeader, kept: _Selection, horizon_ms: int | None) -> bytearray:
    """The batch with the records that stay.

    horizon_ms: when its tombstones may be removed, None to leave that as it is.
    """
    codec, attributes = read_codec(header), header.attributes
    payload, base_timestamp = kept.payload, header.base_timestamp
    if horizon_ms is not None:
        payload = _shift_timestamps(bytes(payload), base_timestamp - horizon_ms)
        base_timestamp, attributes = horizon_ms, attributes | DELETE_HORIZON_BIT
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = header.base_timestamp + kept.max_delta
    body = payload if codec is Codec.NONE else compress(codec, payload)
    return _batch(header, attributes, body, (base_timestamp, max_timestamp, kept.records))


def _shift_timestamps(payload: bytes, by_ms: int) -> bytearray:
    """The same records for a batch whose base timestamp is lower by `by_ms`."""
    shifted = bytearray()
    for start, end, timestamp_delta, _, _, _ in record_spans(payload):
        _, cursor = read_varint(payload, start)
        _, rest = read_varint(payload, cursor + 1)
        body = bytearray(payload[cursor : cursor + 1])
        append_varint(body, timestamp_delta + by_ms)
        body += payload[rest:end]
        append_varint(shifted, len(body))
        shifted += body
    return shifted


def _batch(
    header: BatchHeader, attributes: int, body: Buffer, changed: tuple[int, int, int]
) -> bytearray:
    """Encode a batch.

    changed: base timestamp, max timestamp, record count; the rest is from the header.
    """
    batch = bytearray(HEADER_SIZE)
    base_timestamp, max_timestamp, record_count = changed
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(body),
        header.leader_epoch,
        header.magic,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    batch += body
    write_crc(batch)
    return batch
