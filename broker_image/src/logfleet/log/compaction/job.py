"""Finds the part of a log that can be compacted, and makes the job of a round."""

from logfleet.config.cleaner import CleanerSettings
from logfleet.log.compaction.due import Cleanable, CleanableSegment, cleanable
from logfleet.log.compaction.round import UNKNOWN, CleaningJob
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.segment import Segment
from logfleet.records.batch import NO_TIMESTAMP
from logfleet.records.record import DECOMPRESSED_BYTES_MAX


def find_cleanable(partition_log: PartitionLog, committed_end: int, now: int) -> Cleanable:
    """Find the part of a log that can be compacted now.

    committed_end: offset below which everything is committed and decided.
    """
    return cleanable(
        [
            CleanableSegment(
                segment.base_offset,
                segment.size,
                _FirstTimestamp(segment),
                segment.largest_timestamp,
            )
            for segment in partition_log.segments
        ],
        partition_log.config,
        first_dirty=partition_log.first_dirty_offset,
        stable_end=min(committed_end, partition_log.checkpointed_point),
        log_start_offset=partition_log.log_start_offset,
        log_end_offset=partition_log.log_end_offset,
        now_ms=now,
    )


class _FirstTimestamp:
    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def __call__(self) -> int:
        return self._segment.as_active().first_timestamp if self._segment.size else NO_TIMESTAMP


def cleaning_job(
    partition_log: PartitionLog,
    found: Cleanable,
    settings: CleanerSettings,
    now: int,
    room_bytes: int | None = None,
) -> CleaningJob:
    """The job for what was found.

    room_bytes: how much disk space it may take, None for no limit.
    """
    config, end_offset = partition_log.config, found.first_uncleanable
    return CleaningJob(
        directory=partition_log.directory,
        segments=tuple(
            (segment.base_offset, segment.size)
            for segment in partition_log.segments
            if segment.base_offset < end_offset
        ),
        first_dirty=found.first_dirty,
        first_uncleanable=end_offset,
        producers=_producers(partition_log, end_offset),
        markers=dict(partition_log.producers.states.last_markers()),
        aborted=tuple(partition_log.aborted(end_offset, end_offset)),
        now_ms=now,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        map_bytes_max=settings.map_bytes,
        load_factor=settings.load_factor,
        bytes_per_second=settings.bytes_per_second,
        room_bytes=room_bytes,
    )


def _producers(partition_log: PartitionLog, end_offset: int) -> dict[int, int]:
    """Producers whose last batch must be kept if it lies below `end_offset`.

    All but those whose last batch lies behind it and is durable. A batch behind it that is not
    durable may be lost in a power loss; then the one before it is the last.
    """
    last_offsets = dict(partition_log.producers.states.last_offsets())
    return {
        producer_id: offset if offset < end_offset else UNKNOWN
        for producer_id, offset in last_offsets.items()
        if offset < end_offset or offset >= partition_log.checkpointed_point
    }
