import asyncio

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.validation import Prepared, Rejected, prepare
from logfleet.node.partitions.partition import NotLeading, Partition
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.storage.partition_log import AppendResult
from logfleet.wire.errors import ErrorCode

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


class Told:
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.lost = 0
        self.starts = 0

    def log_start_moved(self) -> None:
        self.starts += 1

    def appended(self, size: int) -> None:
        self.sizes.append(size)

    def leadership_lost(self) -> None:
        self.lost += 1


@pytest.fixture
def partition(rig) -> Partition:
    return Partition("topic", TOPIC_ID, 0, rig.open(), 3)


def batch(*values: bytes, producer=None) -> bytearray:
    return build_batch([Record(None, value, NOW) for value in values], producer=producer)


def test_what_is_appended_is_committed(partition) -> None:
    assert partition.high_watermark == 0
    assert partition.append(batch(b"a", b"b"), NOW) == AppendResult(0, 1, -1)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
    asyncio.run(partition.wait_committed(2))


def test_waiters_are_told_of_what_is_new_only(partition) -> None:
    told = Told()
    partition.wait(told)
    first = batch(b"a", producer=ProducerStamp(1, 0, 0))
    again = bytearray(first)
    partition.append(first, NOW)
    partition.append(again, NOW)
    assert isinstance(partition.append(bytearray(10), NOW), Rejected)
    prepared = prepare(batch(b"b"), partition.log.config, NOW, partition.log.partition)
    assert isinstance(prepared, Prepared)
    partition.append(prepared, NOW)
    assert told.sizes == [len(first), len(prepared.buffer)]
    partition.forget(told)
    partition.append(batch(b"c"), NOW)
    assert len(told.sizes) == 2


def test_what_is_committed_stays_so_when_less_of_it_is_on_disk(partition) -> None:
    """A flush that began before the last append, which flush.messages does not hold back, tells where it began."""
    partition.append(batch(b"a"), NOW)
    partition.append(batch(b"b"), NOW)
    partition.commit(1)
    assert partition.high_watermark == 2


def test_the_end_of_leadership_is_told_and_ends_everything(partition) -> None:
    told = Told()
    partition.wait(told)
    partition.end()
    assert told.lost == 1
    with pytest.raises(NotLeading):
        asyncio.run(partition.wait_committed(0))
    with pytest.raises(AssertionError, match="led elsewhere"):
        partition.append(batch(b"a"), NOW)


def test_waiters_are_told_that_old_records_went(partition) -> None:
    told = Told()
    partition.append(batch(b"a", b"b"), NOW)
    partition.wait(told)
    for offset in (1, 1, 2):
        partition.log.delete_records_before(offset)
    assert told.starts == 2


def test_internal_topics_are_known(rig) -> None:
    log = rig.open()
    assert Partition("__consumer_offsets", TOPIC_ID, 0, log, 0).is_internal
    assert not Partition("topic", TOPIC_ID, 0, log, 0).is_internal


def test_committed_records_are_deleted_up_to_an_offset(partition) -> None:
    for value in (b"a", b"b", b"c"):
        partition.append(batch(value), NOW)
    assert partition.delete_records(1) == 1
    assert partition.delete_records(0) == 1
    assert partition.delete_records(4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.log.read(0, 100) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-1) == 3
    assert partition.log.log_start_offset == 3


def test_records_of_a_compacted_topic_are_not_deleted(partition) -> None:
    partition.append(batch(b"a"), NOW)
    for policy, refused in (({"compact"}, True), ({"compact", "delete"}, False)):
        partition.log.config = LogConfig(cleanup_policy=frozenset(policy))
        assert (partition.delete_records(1) is ErrorCode.POLICY_VIOLATION) == refused
