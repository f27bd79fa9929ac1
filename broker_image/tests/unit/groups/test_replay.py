"""I34 and I37 of one partition's offsets, against Kafka's own bookkeeping."""

from hypothesis import given
from hypothesis import strategies as st
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.replay import Replay
from logfleet.groups.staged import StagedOffsets
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

A, B, C = 7, 8, 9


class Log:
    """A log that is replayed while it is written. offsets: partition -> what is committed for it."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.others: list[GroupRecord] = []
        self.groups: list[str] = []
        self.staged = StagedOffsets()
        self.replay = Replay(self.take_over, self.staged, self.groups.append)
        self.end = 0

    def take_over(self, record: GroupRecord) -> None:
        if not isinstance(record, OffsetRecord):
            self.others.append(record)
        elif record.value is None:
            self.offsets.pop(record.key.partition, None)
        else:
            self.offsets[record.key.partition] = record.value.offset

    def write(self, value: int | None, producer_id: int | None = None, partition: int = 0) -> None:
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        stored = None if value is None else OffsetCommitValue(offset=value, metadata="")
        self.replay.read(OffsetRecord(key, stored), self.end, producer_id)
        self.end += 1

    def marker(self, producer_id: int, *, is_commit: bool = True) -> None:
        self.replay.end_transaction(producer_id, is_commit=is_commit)
        self.end += 1

    def unstable(self) -> set[int]:
        return {partition for _, partition in self.staged.partitions("g")}


def test_what_a_transaction_commits_counts_from_its_marker_on():
    log = Log()
    log.write(5, A)
    log.write(6, A, partition=1)
    log.write(7, A, partition=1)
    assert (log.offsets, log.unstable(), len(log.staged)) == ({}, {0, 1}, 2)
    log.marker(B)
    assert (log.offsets, log.unstable()) == ({}, {0, 1})
    log.marker(A)
    assert (log.offsets, log.unstable(), len(log.staged)) == ({0: 5, 1: 7}, set(), 0)


def test_what_an_aborted_transaction_committed_never_counts():
    log = Log()
    log.write(5, A)
    log.marker(A, is_commit=False)
    log.marker(A)
    assert (log.offsets, log.unstable()) == ({}, set())


def test_a_plain_commit_between_staging_and_marker_wins_and_the_partition_stays_unstable():
    log = Log()
    log.write(5, A)
    log.write(6)
    assert (log.offsets, log.unstable()) == ({0: 6}, {0})
    log.marker(A)
    assert (log.offsets, log.unstable()) == ({0: 6}, set())


def test_the_offset_staged_last_wins_whichever_transaction_ends_last():
    log = Log()
    log.write(5, A)
    log.write(6, B)
    log.marker(B)
    assert (log.offsets, log.unstable()) == ({0: 6}, {0})
    log.marker(A)
    assert log.offsets == {0: 6}


def test_a_tombstone_removes_what_is_committed_and_what_is_staged():
    log = Log()
    log.write(5)
    log.write(6, A)
    log.write(7, A, partition=1)
    log.write(None, B)
    assert (log.offsets, log.unstable()) == ({}, {1})
    log.marker(A)
    assert log.offsets == {1: 7}


def test_other_records_of_a_transaction_apply_at_once():
    log = Log()
    record = GroupRecord(GroupMetadataKey(group="g"), GroupMetadataValue())
    log.replay.read(record, 0, A)
    log.marker(A, is_commit=False)
    assert log.others == [record]


def test_a_group_exists_from_its_first_staged_offset_on():
    log = Log()
    log.write(5, A)
    assert log.groups == ["g"]


def test_topics_of_staged_offsets_are_read_too():
    log = Log()
    log.write(5, A)
    log.write(None, partition=1)
    assert log.replay.topics == {("t", bytes(16))}


class Kafka:
    """OffsetMetadataManager as it is written: each offset has the place of its record in the log."""

    def __init__(self) -> None:
        self.offsets: dict[int, tuple[int, int]] = {}
        self.pending: dict[int, dict[int, tuple[int, int]]] = {}

    def write(self, at: int, producer_id: int | None, partition: int, value: int | None) -> None:
        if value is None:
            self.offsets.pop(partition, None)
            for commits in self.pending.values():
                commits.pop(partition, None)
        elif producer_id is None:
            self.offsets[partition] = (at, value)
        else:
            self.pending.setdefault(producer_id, {})[partition] = (at, value)

    def marker(self, producer_id: int, *, is_commit: bool) -> None:
        for partition, commit in self.pending.pop(producer_id, {}).items():
            if is_commit and commit[0] > self.offsets.get(partition, (-1, 0))[0]:
                self.offsets[partition] = commit

    def unstable(self) -> set[int]:
        return {partition for commits in self.pending.values() for partition in commits}


producers = st.sampled_from([A, B, C])
writes = st.tuples(
    st.none() | producers, st.integers(0, 1), st.none() | st.integers(0, 9), st.just("write")
)
markers = st.tuples(producers, st.just(0), st.sampled_from([0, 1]), st.just("marker"))


@given(st.lists(writes | markers, max_size=25))
def test_the_same_offsets_are_committed_and_unstable_as_in_kafka(steps):
    log, kafka = Log(), Kafka()
    for producer_id, partition, value, kind in steps:
        if kind == "write":
            kafka.write(log.end, producer_id, partition, value)
            log.write(value, producer_id, partition)
        else:
            kafka.marker(producer_id, is_commit=value == 1)
            log.marker(producer_id, is_commit=value == 1)
        assert log.offsets == {place: value for place, (_, value) in kafka.offsets.items()}
        assert log.unstable() == kafka.unstable()
    for producer_id in (A, B, C):
        log.marker(producer_id, is_commit=False)
    assert (log.unstable(), bool(log.staged), len(log.staged)) == (set(), False, 0)
