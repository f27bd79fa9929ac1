"""A topic's configuration as its logs use it.

Kafka's key `segment.bytes` is the field `segment_bytes`.
"""

from functools import cached_property

import msgspec

from logfleet.records.batch import TimestampType
from logfleet.records.compression import Codec

UNLIMITED = -1
"""No limit (`retention.ms=-1`, `retention.bytes=-1`); any other negative number means the same."""

LONG_MAX = 2**63 - 1
RECORD_BYTES_MAX = 2**31 - 9
"""Default of `max.decompressed.message.bytes`: no record exceeds it, as no Java array is longer."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The topic-level keys that the log uses; the defaults are those of Apache Kafka 4.4.0.

    compression_type None is `producer`: batches stay as they were sent. compression_level belongs
    to that codec; None is its default. validates_records is our own logfleet.record.validation.
    Times in milliseconds, sizes in bytes. (dict=True: for cached_property.)
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: Codec | None = None
    compression_level: int | None = None
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    validates_records: bool = False

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether the log keeps the last value of each key, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age at which the active segment is closed; only closed ones are compacted.

        Source: LogConfig.maxSegmentMs.
        """
        return (
            min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
        )

    @cached_property
    def keeps_as_sent(self) -> bool:
        """Whether header and checksum suffice to judge a batch, which is stored as sent."""
        return (
            self.compression_type is None
            and self.message_timestamp_type is TimestampType.CREATE_TIME
            and "compact" not in self.cleanup_policy
            and self.message_timestamp_before_max_ms == LONG_MAX
            and self.max_decompressed_message_bytes == RECORD_BYTES_MAX
            and not self.validates_records
        )

    @property
    def bounds_decompressed(self) -> bool:
        """Whether the records of compressed batches are checked for their size."""
        return self.max_decompressed_message_bytes < RECORD_BYTES_MAX
