from logfleet.groups.records import OffsetRecord
from logfleet.groups.staged import StagedOffsets
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue

A, B = 7, 8


def record(offset: int, group: str = "g", topic: str = "t", partition: int = 0) -> OffsetRecord:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return OffsetRecord(key, OffsetCommitValue(offset=offset, metadata=""))


def ended(staged: StagedOffsets, producer_id: int) -> list[tuple[int, int]]:
    """(Offset, log offset) of what the transaction may commit."""
    return [(each.value.offset, at) for each, at in staged.end(producer_id) if each.value]


def test_nothing_is_staged_at_first():
    staged = StagedOffsets()
    assert not staged
    assert len(staged) == 0
    assert not staged.has_group("g")
    assert not staged.is_staged("g", "t", 0)
    assert staged.partitions("g") == []
    assert ended(staged, A) == []


def test_each_producer_has_its_own_offset_of_a_partition():
    staged = StagedOffsets()
    staged.stage(record(5), A, 10)
    staged.stage(record(6), B, 11)
    staged.stage(record(7), A, 12)
    assert len(staged) == 2
    assert sorted(value.offset for value in staged.values("g", "t", 0)) == [6, 7]
    assert ended(staged, A) == [(7, 12)]
    assert staged.is_staged("g", "t", 0)
    assert ended(staged, B) == [(6, 11)]
    assert not staged


def test_a_partition_is_staged_by_group_topic_and_number():
    staged = StagedOffsets()
    staged.stage(record(5, "g", "t", 1), A, 0)
    staged.stage(record(5, "h", "u", 2), A, 1)
    assert staged.has_group("g")
    assert staged.is_staged("g", "t", 1)
    assert not staged.is_staged("g", "t", 2)
    assert not staged.is_staged("g", "u", 2)
    assert staged.partitions("h") == [("u", 2)]


def test_an_overtaken_offset_keeps_its_mark_and_loses_its_value():
    staged = StagedOffsets()
    staged.stage(record(5), A, 10)
    staged.stage(record(6), B, 20)
    staged.overtake(record(0).key, 15)
    assert [value.offset for value in staged.values("g", "t", 0)] == [6]
    staged.overtake(record(0).key)
    assert list(staged.values("g", "t", 0)) == []
    assert len(staged) == 2
    assert ended(staged, A) == ended(staged, B) == []
    assert not staged


def test_what_is_removed_is_neither_staged_nor_committed_later():
    staged = StagedOffsets()
    staged.stage(record(5), A, 10)
    staged.stage(record(5, partition=1), A, 11)
    staged.stage(record(6), B, 12)
    staged.remove(record(0).key)
    staged.remove(record(0, "another").key)
    assert staged.partitions("g") == [("t", 1)]
    assert ended(staged, B) == []
    assert ended(staged, A) == [(5, 11)]
