"""Kafka's rules for the batch that a client sends: when one breaks each, and what it is answered.

Source: `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`,
`LogValidator.validateBatch`. `logfleet.log.validation` tests a batch for all of them at once, and
asks here only if one is broken.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from logfleet.log.config import LogConfig
from logfleet.records.batch import (
    CRC_COVERS_FROM,
    HEADER_SIZE,
    LENGTH_MIN,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from logfleet.records.checksum import Buffer, crc32c
from logfleet.records.compression import Codec
from logfleet.wire.errors import ErrorCode

_LENGTH_AT, _MAGIC_AT = 8, 16


class RecordError(msgspec.Struct, frozen=True):
    """A record that made the batch invalid (KIP-467). index: its number within the batch."""

    index: int
    message: str


class BatchRefusal(msgspec.Struct, frozen=True):
    """Why a batch is not appended, as the Produce response reports it.

    message: None if the error code says it all. is_before_log: the reason has nothing to do with
    the log; a Produce response then has no log start offset.
    """

    error: ErrorCode
    message: str | None = None
    records: tuple[RecordError, ...] = ()
    is_before_log: bool = False


def malformed(buffer: Buffer) -> BatchRefusal | None:
    """Why these bytes are not one whole batch of magic 2; None if they are.

    Source: ByteBufferLogInputStream, ProduceRequest.validateRecords. Another batch may begin behind
    it, but not be whole. The rules for size and magic apply to both.
    """
    size = _batch_size(buffer, 0)
    if size is None:
        return no_batch()
    if isinstance(size, BatchRefusal):
        return size
    magic = buffer[_MAGIC_AT]
    if magic != MAGIC:
        return no_batch(f"Record batches must have magic 2, not {magic}.")
    following = _batch_size(buffer, size)
    if isinstance(following, BatchRefusal):
        return following
    if following is not None:
        return no_batch()
    return _corrupt(f"A batch has at least {HEADER_SIZE} bytes.") if size < HEADER_SIZE else None


def _batch_size(buffer: Buffer, position: int) -> int | BatchRefusal | None:
    """Size of the whole batch at `position`, None if there is none."""
    rest = len(buffer) - position
    if rest < LENGTH_OVERHEAD:
        return None
    start = position + _LENGTH_AT
    length = int.from_bytes(buffer[start : start + 4], "big", signed=True)
    if length < LENGTH_MIN:
        return _corrupt(
            f"Record size {length} is less than the minimum record overhead ({LENGTH_MIN})"
        )
    if rest <= _MAGIC_AT:
        return None
    magic = int.from_bytes(buffer[position + _MAGIC_AT : position + _MAGIC_AT + 1], signed=True)
    if not 0 <= magic <= MAGIC:
        return _corrupt(f"Invalid magic found in record: {magic}")
    size = length + LENGTH_OVERHEAD
    return size if size <= rest else None


def no_batch(
    why: str = "Produce requests must carry exactly one record batch per partition.",
) -> BatchRefusal:
    return BatchRefusal(ErrorCode.INVALID_RECORD, why, is_before_log=True)


def _corrupt(why: str) -> BatchRefusal:
    return BatchRefusal(ErrorCode.CORRUPT_MESSAGE, why, is_before_log=True)


class SentBatch(NamedTuple):
    """One whole batch of magic 2 as a client sent it, and its topic's configuration."""

    buffer: Buffer
    header: BatchHeader
    config: LogConfig

    @property
    def computed_crc(self) -> int:
        return crc32c(memoryview(self.buffer)[CRC_COVERS_FROM:])


class BatchRule(NamedTuple):
    """A rule that a client's batch may break. message: a format string about `sent`."""

    is_broken: Callable[[SentBatch], bool]
    error: ErrorCode
    message: str

    def refuse(self, sent: SentBatch) -> BatchRefusal:
        """The refusal of a batch that breaks this rule."""
        is_before_log = self.error is ErrorCode.CORRUPT_MESSAGE
        return BatchRefusal(self.error, self.message.format(sent=sent), is_before_log=is_before_log)


SIZE_RULE = BatchRule(
    lambda sent: sent.header.size > sent.config.max_message_bytes,
    ErrorCode.MESSAGE_TOO_LARGE,
    "The record batch size in the append is {sent.header.size} bytes which exceeds the maximum "
    "configured value of {sent.config.max_message_bytes}.",
)

BATCH_RULES = (
    # UnifiedLog.analyzeAndValidateRecords
    BatchRule(
        lambda sent: sent.header.base_offset != 0,
        ErrorCode.INVALID_RECORD,
        "The base offset of a produced batch is 0, not {sent.header.base_offset}.",
    ),
    SIZE_RULE,
    BatchRule(
        lambda sent: sent.computed_crc != sent.header.crc,
        ErrorCode.CORRUPT_MESSAGE,
        "Record is corrupt (stored crc = {sent.header.crc}, computed crc = {sent.computed_crc})",
    ),
    # LogValidator.validateBatch
    BatchRule(
        lambda sent: sent.header.record_count <= 0,
        ErrorCode.INVALID_RECORD,
        "Record count {sent.header.record_count} is not positive.",
    ),
    BatchRule(
        lambda sent: sent.header.last_offset_delta + 1 != sent.header.record_count,
        ErrorCode.INVALID_RECORD,
        "Last offset delta {sent.header.last_offset_delta} does not fit "
        "{sent.header.record_count} records.",
    ),
    BatchRule(
        lambda sent: sent.header.is_control,
        ErrorCode.INVALID_RECORD,
        "Clients are not allowed to write control records.",
    ),
    BatchRule(
        lambda sent: sent.header.has_producer_id and sent.header.base_sequence < 0,
        ErrorCode.INVALID_RECORD,
        "Invalid sequence number {sent.header.base_sequence} in record batch with producerId "
        "{sent.header.producer_id}",
    ),
    BatchRule(
        lambda sent: sent.header.codec_bits > Codec.ZSTD,
        ErrorCode.INVALID_RECORD,
        "Unknown compression type {sent.header.codec_bits}.",
    ),
)
"""Kafka's, in its order. `prepare` tests them all at once; a new rule goes there as well."""


def explain(sent: SentBatch) -> BatchRefusal | None:
    """The refusal by the first rule that the batch breaks; None if it breaks none."""
    broken = next((rule for rule in BATCH_RULES if rule.is_broken(sent)), None)
    return None if broken is None else broken.refuse(sent)
