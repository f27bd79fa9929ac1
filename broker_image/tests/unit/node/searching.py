"""Offsets by time as ListOffsets finds them, without its thread."""

from typing import Any

from logfleet.node.log_search import BatchToSearch, batch_for_timestamp, youngest_batch
from logfleet.node.partition_log import PartitionLog


def by_time(log: PartitionLog, timestamp: int) -> Any:
    """The first record that is at least so young (ms), a FoundRecord or None."""
    return _first(log, batch_for_timestamp(log, timestamp))


def youngest(log: PartitionLog) -> Any:
    """The record with the largest timestamp, likewise."""
    return _first(log, youngest_batch(log))


def _first(log: PartitionLog, batch: BatchToSearch | None) -> Any:
    while batch is not None:
        record = batch.first_record()
        if record is not None:
            return record
        batch = batch_for_timestamp(log, batch.timestamp, batch.header.next_offset)
    return None
