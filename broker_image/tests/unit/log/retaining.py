"""Retention to its end."""

from logfleet.log.partition_log import PartitionLog


def retain(log: PartitionLog, now_ms: int, high_watermark: int) -> int:
    """All its steps; how many segments went."""
    count = 0
    while (step := log.apply_retention(now_ms, high_watermark)) is not None:
        count += step.count
    return count
