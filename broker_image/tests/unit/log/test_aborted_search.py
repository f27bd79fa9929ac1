"""Where a log may have aborted transactions: readers elsewhere search for none."""

from typing import Any

from logfleet.log.config import LogConfig
from logfleet.log.partition_log import PartitionLog
from logfleet.records.batch import assign_offsets
from logfleet.records.control import marker_batch
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.log_rig import truncate

NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(0)
SMALL = LogConfig(segment_bytes=300)


def append(log: PartitionLog, batch: bytearray) -> None:
    assign_offsets(batch, log.log_end_offset, EPOCH)
    log.append_as_follower(memoryview(batch), EPOCH, NOW)


def transaction(log: PartitionLog, *, commit: bool) -> None:
    """Two offsets: a record and its marker."""
    stamp = ProducerStamp(7, log.log_end_offset, 0, transactional=True)
    append(log, build_batch([Record(None, b"value", NOW)], producer=stamp))
    epoch = log.log_end_offset - 1
    append(log, marker_batch(7, epoch, commit=commit, coordinator_epoch=0, now_ms=NOW))


def plain(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        append(log, build_batch([Record(None, b"value", NOW)]))


def where(log: PartitionLog) -> list[int]:
    return [offset for offset in range(log.log_end_offset + 1) if log.has_aborted(offset)]


def first_offsets(log: PartitionLog) -> list[int]:
    return [entry.first_offset for entry in log.aborted(0, log.log_end_offset)]


def test_a_log_of_plain_and_committed_records_has_none(rig: Any) -> None:
    log = rig.open(SMALL)
    plain(log, 3)
    transaction(log, commit=True)
    assert (where(log), first_offsets(log)) == ([], [])
    rig.close(log)
    assert where(rig.open(SMALL)) == []


def test_there_may_be_one_up_to_the_last_abort_and_after_a_start_up_to_its_segments_end(
    rig: Any,
) -> None:
    log = rig.open(SMALL)
    transaction(log, commit=False)
    plain(log, 2)
    transaction(log, commit=False)
    transaction(log, commit=True)
    plain(log, 9)
    assert where(log) == list(range(6))
    assert first_offsets(log) == [0, 4]
    rig.close(log)
    opened = rig.open(SMALL)
    ends = [segment.base_offset for segment in opened.segments]
    assert where(opened) == list(range(min(end for end in ends if end >= 6)))
    assert first_offsets(opened) == [0, 4]


def test_after_a_truncation_the_next_abort_is_found(rig: Any) -> None:
    log = rig.open(SMALL)
    plain(log, 3)
    transaction(log, commit=False)
    plain(log, 9)
    truncate(log, 3)
    assert first_offsets(log) == []
    transaction(log, commit=False)
    assert first_offsets(log) == [3]
    assert set(where(log)) >= set(range(5))
