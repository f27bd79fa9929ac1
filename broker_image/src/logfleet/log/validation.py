"""What a leader checks and changes in a client's batch before it is appended.

The checks are Kafka's (`ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`,
`LogValidator`), on the header and the checksum. Records are only read if the topic asks for it
(logfleet.record.validation) or a rule concerns them: keys on compacted topics, timestamps if the
header's are out of the window or contradict each other, the size of compressed records if the topic
limits it. Nothing here depends on the log's state, so an expensive batch (another codec) can be
prepared in a thread.
"""

from typing import TypeAlias

import msgspec

from logfleet.log.batch_rules import (
    SIZE_RULE,
    BatchRefusal,
    RecordError,
    SentBatch,
    explain,
    malformed,
    no_batch,
)
from logfleet.log.config import LONG_MAX, LogConfig
from logfleet.log.names import TopicPartition
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
    set_create_time,
    set_log_append_time,
)
from logfleet.records.checksum import Buffer, crc32c
from logfleet.records.compression import Codec, compress, decompress
from logfleet.records.errors import DecompressedTooLarge, RecordsError
from logfleet.records.record import (
    DECOMPRESSED_BYTES_MAX,
    LENGTH_BYTES_MAX,
    ProducerStamp,
    Record,
    read_records,
    stamp_batch,
)
from logfleet.wire.errors import ErrorCode

RECORD_ERRORS_MAX = 100
"""Limit of bad records reported per batch."""

RECORD_ERRORS_SHOWN = 3
"""Number of record errors that the error message of the whole batch quotes."""

# Larger batches are read in a thread. A batch of this size takes the loop at most three
# milliseconds, measured with 2,300 records and with one record of 8,000 headers.
BYTES_ON_LOOP_MAX = 16 * 1024


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Offsets of an appended batch.

    duplicate: it was appended before, at these offsets; it too waits for their commit.
    log_append_time_ms: -1 if the records carry their producer's time.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool = False


class NeedsThread(msgspec.Struct, frozen=True):
    """The batch is sound so far; the rest takes too long for the loop. buffer: the batch alone."""

    buffer: bytearray | memoryview


AppendResult: TypeAlias = Appended | BatchRefusal | NeedsThread
"""What an append returns. Unless it is Appended, nothing has changed."""


class Prepared(msgspec.Struct, frozen=True):
    """A batch that may be appended. buffer: the client's bytes, changed in place, or new ones.

    log_append_time_ms: -1 unless the topic's records carry the broker's time. given: the original
    header's bytes, if they were changed.
    """

    buffer: bytearray | memoryview
    header: BatchHeader
    log_append_time_ms: int
    given: bytes = b""

    def undo(self) -> None:
        """Restore the batch, which is not appended and may be checked again."""
        self.buffer[: len(self.given)] = self.given

    def stamped(self, producer: ProducerStamp) -> "Prepared":
        """The same batch as one of this producer's.

        Coordinators write transactional batches without a sequence, which clients may not.
        """
        stamp_batch(self.buffer, producer)
        return Prepared(self.buffer, parse_header(self.buffer), self.log_append_time_ms)


def prepare(
    buffer: bytearray | memoryview, config: LogConfig, now_ms: int, partition: TopicPartition
) -> Prepared | BatchRefusal | NeedsThread:
    """Check one client's batch and convert it as the topic asks.

    Returns NeedsThread if that takes too long for the loop. buffer: the bytes of one partition,
    writable; a memoryview avoids copies. They are only changed if they are accepted. The append
    sets base offset and leader epoch. partition: for error messages.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        return malformed(buffer) or no_batch()
    header = parse_header(buffer)
    # Every batch of every producer passes here: one fast test for all of BATCH_RULES, and for
    # anything but one whole batch.
    if (
        header.magic != MAGIC
        or header.batch_length != size - LENGTH_OVERHEAD
        or header.base_offset
        or size > config.max_message_bytes
        or crc32c(buffer[CRC_COVERS_FROM:]) != header.crc
        or header.record_count <= 0
        or header.last_offset_delta + 1 != header.record_count
        or header.attributes & CONTROL_BIT
        or header.attributes & CODEC_MASK > Codec.ZSTD
        or (header.producer_id >= 0 and header.base_sequence < 0)
    ):
        refusal = malformed(buffer)
        if refusal is None and header.size < size:  # Kafka too ignores what begins behind a batch
            return prepare(memoryview(buffer)[: header.size], config, now_ms, partition)
        refusal = refusal or explain(SentBatch(buffer, header, config))
        assert refusal is not None, f"no rule refuses {header}"
        return refusal
    if (
        header.base_timestamp
        <= header.max_timestamp
        <= now_ms + config.message_timestamp_after_max_ms
        and config.keeps_as_sent
        and not header.attributes & LOG_APPEND_TIME_BIT
    ):
        if size > config.segment_bytes:
            return _larger_than_a_segment(size, config)
        return Prepared(buffer, header, NO_TIMESTAMP)
    codec = header.codec_bits
    if _recompresses(codec, config) or (
        (codec or size > BYTES_ON_LOOP_MAX) and _needs_records(header, config, now_ms)
    ):
        return NeedsThread(buffer)
    return _prepare_carefully(buffer, header, config, now_ms, partition)


def prepare_fully(
    buffer: bytearray | memoryview, config: LogConfig, now_ms: int, partition: TopicPartition
) -> Prepared | BatchRefusal:
    """Do what `prepare` does, and the checks that it leaves to a thread.

    Best in a thread: (de)compression releases the interpreter lock.
    """
    prepared = prepare(buffer, config, now_ms, partition)
    if isinstance(prepared, NeedsThread):
        buffer = prepared.buffer
        return _prepare_carefully(buffer, parse_header(buffer), config, now_ms, partition)
    return prepared


def _recompresses(codec: int, config: LogConfig) -> bool:
    return config.compression_type is not None and codec != config.compression_type


def _needs_records(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether a rule concerns the records and the header does not show that they obey it."""
    earliest, latest = _timestamp_window(config, now_ms)
    return (
        config.validates_records
        or config.compacts
        or bool(header.attributes & LOG_APPEND_TIME_BIT)
        or _lacks_newest_time(header, config)
        or not (header.max_timestamp <= latest and earliest <= 0)
        or (header.codec_bits != Codec.NONE and config.bounds_decompressed)
    )


def _lacks_newest_time(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the header's largest timestamp is needed but is smaller than its first record's.

    Some clients leave it out (Sarama's PR 3108), so LogValidator computes it: look-ups by time,
    retention and the expiry of producers need it.
    """
    is_needed = config.message_timestamp_type is TimestampType.CREATE_TIME
    return is_needed and header.max_timestamp < header.base_timestamp


def _prepare_carefully(
    buffer: bytearray | memoryview,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    partition: TopicPartition,
) -> Prepared | BatchRefusal:
    """If the topic asks for more than a sound batch: check records, recompress, set timestamps."""
    newest = header.max_timestamp
    if _needs_records(header, config, now_ms):
        found = _Inspection(header, config, now_ms, partition).newest_of(buffer)
        if isinstance(found, BatchRefusal):
            return found
        newest = found
    if _recompresses(header.codec_bits, config):
        recompressed = _recompress(buffer, header, config)
        if isinstance(recompressed, BatchRefusal):
            return recompressed
        buffer, header = recompressed, parse_header(recompressed)
    if header.size > config.segment_bytes:
        return _larger_than_a_segment(header.size, config)
    given = bytes(buffer[:HEADER_SIZE])
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        set_log_append_time(buffer, now_ms)
        return Prepared(buffer, parse_header(buffer), now_ms, given)
    if newest != header.max_timestamp or header.attributes & LOG_APPEND_TIME_BIT:
        set_create_time(buffer, newest)
        header = parse_header(buffer)
    return Prepared(buffer, header, NO_TIMESTAMP, given)


class _Inspection:
    """Checks the records (`LogValidator.validateRecord`), with Kafka's error messages."""

    def __init__(
        self, header: BatchHeader, config: LogConfig, now_ms: int, partition: TopicPartition
    ) -> None:
        self._header = header
        self._config = config
        self._partition = partition
        self._earliest, self._latest = _timestamp_window(config, now_ms)
        self._errors: list[RecordError] = []
        self._count = 0
        self._has_bad_time = False

    def newest_of(self, buffer: Buffer) -> int | BatchRefusal:
        """The largest timestamp of the batch's records, or why they are refused."""
        newest = NO_TIMESTAMP
        packed, limit = self._header.codec_bits != Codec.NONE, None
        budget = DECOMPRESSED_BYTES_MAX
        if packed and self._config.bounds_decompressed:
            limit = self._config.max_decompressed_message_bytes
            budget = min(budget, self._header.record_count * (limit + LENGTH_BYTES_MAX))
        try:
            for index, record in enumerate(
                read_records(buffer, budget_bytes=budget, record_bytes_max=limit)
            ):
                newest = max(newest, record.timestamp)
                self._check(index, record)
        except DecompressedTooLarge as error:
            if limit is not None and budget < DECOMPRESSED_BYTES_MAX:
                return _invalid(f"Some record is larger than {limit} bytes: {error}")
            return BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, str(error))
        except RecordsError as error:
            return _invalid(str(error))
        return self._refusal() if self._errors else newest

    def _check(self, index: int, record: Record) -> None:
        header = self._header
        if record.offset != index:  # readers would miss this record, or others
            self._add_error(index, f"It has offset {record.offset} in its batch, not {index}")
        elif self._config.compacts and record.key is None:
            self._add_error(
                index,
                "Compacted topic cannot accept message without key in topic partition "
                f"{self._partition}",
            )
        elif (
            self._config.message_timestamp_type is TimestampType.CREATE_TIME
            and record.timestamp != NO_TIMESTAMP
        ):
            if not self._earliest <= record.timestamp <= self._latest:
                self._has_bad_time = True
                self._add_error(
                    index,
                    f"Timestamp {record.timestamp} of message with offset {record.offset} is out "
                    "of range. "
                    f"The timestamp should be within [{self._earliest}, {self._latest}]",
                )
        elif header.attributes & LOG_APPEND_TIME_BIT:
            self._has_bad_time = True
            kind = "DefaultRecord" if header.codec_bits == Codec.NONE else "PartialDefaultRecord"
            self._add_error(
                index,
                f"Invalid timestamp type in message {kind}(offset={record.offset}, "
                f"timestamp={record.timestamp}, "
                f"key={len(record.key or b'')} bytes, value={len(record.value or b'')} bytes). "
                "Producer should not set timestamp type to LogAppendTime.",
            )

    def _add_error(self, index: int, message: str) -> None:
        self._count += 1
        if len(self._errors) < RECORD_ERRORS_MAX:
            self._errors.append(RecordError(index, message))

    def _refusal(self) -> BatchRefusal:
        """As `LogValidator.processRecordErrors`: a bad timestamp outweighs other errors."""
        if self._has_bad_time:
            error = ErrorCode.INVALID_TIMESTAMP
            message = "One or more records have been rejected due to invalid timestamp"
        else:
            error = ErrorCode.INVALID_RECORD
            first = ", ".join(
                f"RecordError(batchIndex={each.index}, message='{each.message}')"
                for each in self._errors[:RECORD_ERRORS_SHOWN]
            )
            message = (
                f"One or more records have been rejected due to {self._count} record errors in "
                "total, "
                f"and only showing the first three errors at most: [{first}]"
            )
        return BatchRefusal(error, message, tuple(self._errors))


def _timestamp_window(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Allowed timestamps, both inclusive; with the broker's time there is no limit."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return 0, LONG_MAX
    return (
        now_ms - config.message_timestamp_before_max_ms,
        min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX),
    )


def _recompress(
    buffer: bytearray | memoryview, header: BatchHeader, config: LogConfig
) -> bytearray | BatchRefusal:
    """The batch with its records in the topic's codec; the decompressed bytes are the same."""
    assert config.compression_type is not None
    codec = Codec(header.codec_bits)
    try:
        payload = decompress(codec, memoryview(buffer)[HEADER_SIZE:], DECOMPRESSED_BYTES_MAX)
    except DecompressedTooLarge as error:
        return BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except RecordsError as error:
        return _invalid(str(error))
    body = compress(config.compression_type, payload, config.compression_level)
    batch = replace_payload(buffer, config.compression_type, body)
    recompressed = SentBatch(batch, parse_header(batch), config)
    return SIZE_RULE.refuse(recompressed) if SIZE_RULE.is_broken(recompressed) else batch


def _larger_than_a_segment(size: int, config: LogConfig) -> BatchRefusal:
    return BatchRefusal(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"Message batch size is {size} bytes in append to a partition whose segments "
        f"hold at most {config.segment_bytes} bytes.",
    )


def _invalid(message: str) -> BatchRefusal:
    return BatchRefusal(ErrorCode.INVALID_RECORD, message)
