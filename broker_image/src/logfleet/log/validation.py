"""What a leader checks and changes in a client's batch before it is appended.

The checks are Kafka's (`ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`), on the header and
the checksum; records are looked at only where a rule is about them: keys on compacted topics, timestamps when the header says that one
is out of the window. Nothing here depends on the log's state, so a batch that costs time (another codec) can be prepared in a thread.
"""

import msgspec

from logfleet.log.config import LONG_MAX, LogConfig
from logfleet.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    parse_header,
    replace_payload,
    set_log_append_time,
)
from logfleet.records.checksum import crc32c
from logfleet.records.compression import Codec, compress, decompress
from logfleet.records.errors import DecompressedTooLarge, RecordsError
from logfleet.records.record import read_records
from logfleet.wire.errors import ErrorCode

RECORD_ERRORS_MAX = 100
"""Named in one answer; a batch with more bad records than this is bad enough."""


_NOT_FOR_CLIENTS = CONTROL_BIT | LOG_APPEND_TIME_BIT


class RecordError(msgspec.Struct, frozen=True):
    """A record that made the batch invalid (KIP-467). index: its number within the batch."""

    index: int
    message: str


class Rejected(msgspec.Struct, frozen=True):
    """Why a batch is not appended: what the Produce response carries for its partition."""

    error: ErrorCode
    message: str
    records: tuple[RecordError, ...] = ()


class Prepared(msgspec.Struct, frozen=True):
    """A batch that may be appended. buffer: the client's bytes, changed in place, or new ones.

    log_append_time_ms: -1 unless the topic's records carry the broker's time.
    """

    buffer: bytearray | memoryview
    header: BatchHeader
    log_append_time_ms: int


def needs_thread(buffer: bytearray | memoryview, config: LogConfig) -> bool:
    """Whether `prepare` would decompress or compress: too long for the loop, and it releases the interpreter lock."""
    if len(buffer) < HEADER_SIZE:
        return False
    codec = parse_header(buffer).codec_bits
    if config.compression_type is not None and codec != config.compression_type:
        return True
    looks_inside = config.compacts or config.message_timestamp_before_max_ms < LONG_MAX
    return looks_inside and codec != Codec.NONE


def prepare(buffer: bytearray | memoryview, config: LogConfig, now_ms: int) -> Prepared | Rejected:
    """Check one client's batch and bring it into the topic's form: codec and timestamps.

    buffer: exactly one batch, writable; it is changed only if it is accepted. Base offset and leader epoch are left to the append.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        return _invalid("Produce requests must carry exactly one record batch per partition.")
    header = parse_header(buffer)
    # Every batch of every producer comes through here: first whether anything is wrong at all, then what it is.
    if (
        header.magic != MAGIC
        or header.batch_length != size - LENGTH_OVERHEAD
        or size > config.max_message_bytes
        or crc32c(memoryview(buffer)[CRC_COVERS_FROM:]) != header.crc
    ):
        return _malformed(buffer, header, config)
    if (
        header.record_count <= 0
        or header.last_offset_delta + 1 != header.record_count
        or header.attributes & _NOT_FOR_CLIENTS
        or header.attributes & CODEC_MASK > Codec.ZSTD
        or (header.producer_id >= 0 and header.base_sequence < 0)
    ):
        return _not_allowed(header)
    latest = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp <= latest and config.keeps_as_sent:
        if size > config.segment_bytes:
            return _larger_than_a_segment(size, config)
        if config.message_timestamp_type is TimestampType.CREATE_TIME:
            return Prepared(buffer, header, NO_TIMESTAMP)
    return _prepare_carefully(buffer, header, config, now_ms)


def _prepare_carefully(
    buffer: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> Prepared | Rejected:
    """Where the topic wants more than a sound batch: looks at records, recompresses, sets timestamps."""
    rejected = _check_records(buffer, header, config, now_ms)
    if rejected is not None:
        return rejected
    if config.compression_type is not None and header.codec_bits != config.compression_type:
        recompressed = _recompress(buffer, header, config)
        if isinstance(recompressed, Rejected):
            return recompressed
        buffer, header = recompressed, parse_header(recompressed)
    if header.size > config.segment_bytes:
        return _larger_than_a_segment(header.size, config)
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        set_log_append_time(buffer, now_ms)
        return Prepared(buffer, parse_header(buffer), now_ms)
    return Prepared(buffer, header, NO_TIMESTAMP)


def _malformed(buffer: bytearray | memoryview, header: BatchHeader, config: LogConfig) -> Rejected:
    """Why this is not exactly one whole batch of magic 2 of an allowed size, as its producer sent it."""
    if header.magic != MAGIC:
        return _invalid(f"Record batches must have magic 2, not {header.magic}.")
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        return Rejected(
            ErrorCode.CORRUPT_MESSAGE, f"Batch length {header.batch_length} is too small."
        )
    if header.size != len(buffer):
        return _invalid("Produce requests must carry exactly one record batch per partition.")
    if header.size > config.max_message_bytes:
        return _too_large(header.size, config)
    computed = crc32c(memoryview(buffer)[CRC_COVERS_FROM:])
    return Rejected(
        ErrorCode.CORRUPT_MESSAGE,
        f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})",
    )


def _not_allowed(header: BatchHeader) -> Rejected:
    """What it is that no client may claim about its batch (`LogValidator.validateBatch`)."""
    if header.record_count <= 0:
        return _invalid(f"Record count {header.record_count} is not positive.")
    if header.last_offset_delta + 1 != header.record_count:
        return _invalid(
            f"Last offset delta {header.last_offset_delta} does not fit {header.record_count} records."
        )
    if header.is_control:
        return _invalid("Clients are not allowed to write control records.")
    if header.has_producer_id and header.base_sequence < 0:
        return _invalid(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id}"
        )
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        return _invalid(f"Unknown compression type {header.codec_bits}.")
    return Rejected(
        ErrorCode.INVALID_TIMESTAMP,
        "Clients must not send batches whose timestamp type is LogAppendTime.",
    )


def _check_records(
    buffer: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> Rejected | None:
    """Keys on a compacted topic, and timestamps within the topic's window around now."""
    earliest, latest = _timestamp_window(config, now_ms)
    in_window = header.max_timestamp <= latest and earliest <= 0
    if in_window and not config.compacts:
        return None
    bad_keys, bad_times = [], []
    try:
        for index, record in enumerate(
            read_records(buffer, budget_bytes=config.max_decompressed_message_bytes)
        ):
            if config.compacts and record.key is None:
                bad_keys.append(
                    RecordError(index, "Compacted topic cannot accept message without key.")
                )
            if not in_window and not (
                record.timestamp == NO_TIMESTAMP or earliest <= record.timestamp <= latest
            ):
                bad_times.append(
                    RecordError(index, f"Timestamp {record.timestamp} of message is out of range.")
                )
    except DecompressedTooLarge as error:
        return Rejected(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except RecordsError as error:
        return _invalid(str(error))
    if bad_keys:
        return Rejected(
            ErrorCode.INVALID_RECORD,
            "One or more records have been rejected due to missing keys on a compacted topic.",
            tuple(bad_keys[:RECORD_ERRORS_MAX]),
        )
    if bad_times or header.max_timestamp > latest:
        return Rejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"The timestamp of one or more records is not within [{earliest}, {latest}].",
            tuple(bad_times[:RECORD_ERRORS_MAX]),
        )
    return None


def _timestamp_window(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Allowed timestamps, both inclusive; the topic's own time needs no window."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return 0, LONG_MAX
    return (
        now_ms - config.message_timestamp_before_max_ms,
        min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX),
    )


def _recompress(
    buffer: bytearray | memoryview, header: BatchHeader, config: LogConfig
) -> bytearray | Rejected:
    """The batch with its records in the topic's codec. The records themselves are the same bytes."""
    assert config.compression_type is not None
    codec = Codec(header.codec_bits)
    try:
        payload = decompress(
            codec, memoryview(buffer)[HEADER_SIZE:], config.max_decompressed_message_bytes
        )
    except DecompressedTooLarge as error:
        return Rejected(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except RecordsError as error:
        return _invalid(str(error))
    body = compress(config.compression_type, payload, config.compression_level)
    batch = replace_payload(buffer, config.compression_type, body)
    if len(batch) > config.max_message_bytes:
        return _too_large(len(batch), config)
    return batch


def _larger_than_a_segment(size: int, config: LogConfig) -> Rejected:
    return Rejected(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"Message batch size is {size} bytes in append to a partition whose segments "
        f"hold at most {config.segment_bytes} bytes.",
    )


def _too_large(size: int, config: LogConfig) -> Rejected:
    return Rejected(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append is {size} bytes which exceeds the maximum configured "
        f"value of {config.max_message_bytes}.",
    )


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_RECORD, message)
