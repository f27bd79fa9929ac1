import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.replay import Replay
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
A, B = 7, 8


class Log:
    """A log that is replayed while it is written. offsets: partition -> what is committed for it."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.replay = Replay(self.take_over)
        self.end = 0

    def take_over(self, record: GroupRecord) -> None:
        assert isinstance(record, OffsetRecord)
        if record.value is None:
            self.offsets.pop(record.key.partition, None)
        else:
            self.offsets[record.key.partition] = record.value.offset

    def write(self, value: int | None, producer_id: int | None = None, partition: int = 0) -> None:
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        stored = None if value is None else OffsetCommitValue(offset=value, metadata="")
        if producer_id is None:
            self.replay.apply(OffsetRecord(key, stored))
        else:
            self.replay.apply_transactional(OffsetRecord(key, stored), producer_id, self.end)
        self.end += 1

    def marker(self, producer_id: int, key: bytes = COMMIT) -> None:
        self.replay.end_transaction(producer_id, key)
        self.end += 1


def test_what_a_transaction_commits_counts_from_its_marker_on():
    log = Log()
    log.write(5, A)
    log.write(6, A, partition=1)
    log.write(7, A, partition=1)
    assert (log.offsets, log.replay.pending) == ({}, 2)
    log.marker(B)
    log.marker(A, b"\0\0\0\2")
    assert log.offsets == {}
    log.marker(A)
    assert (log.offsets, log.replay.pending) == ({0: 5, 1: 7}, 0)


def test_what_an_aborted_transaction_committed_never_counts():
    log = Log()
    log.write(5, A)
    log.marker(A, ABORT)
    log.marker(A)
    assert (log.offsets, log.replay.pending) == ({}, 0)


def test_a_tombstone_counts_at_once_and_for_what_is_pending():
    log = Log()
    log.write(5)
    log.write(6, A)
    log.write(None, B)
    assert log.offsets == {}
    log.marker(A)
    assert log.offsets == {}


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_that_is_none_is_told(key):
    with pytest.raises(MalformedMessage):
        Log().replay.end_transaction(A, key)


class Kafka:
    """OffsetMetadataManager as it is written: every offset is kept with where its record stands in the log."""

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


producers = st.sampled_from([A, B])
writes = st.tuples(
    st.none() | producers, st.integers(0, 1), st.none() | st.integers(0, 9), st.just("write")
)
markers = st.tuples(producers, st.just(0), st.sampled_from([0, 1]), st.just("marker"))


@given(st.lists(writes | markers, max_size=20))
def test_the_same_offsets_hold_as_in_kafka(steps):
    log, kafka = Log(), Kafka()
    for producer_id, partition, value, kind in steps:
        if kind == "write":
            kafka.write(log.end, producer_id, partition, value)
            log.write(value, producer_id, partition)
        else:
            kafka.marker(producer_id, is_commit=value == 1)
            log.marker(producer_id, COMMIT if value else ABORT)
        assert log.offsets == {place: value for place, (_, value) in kafka.offsets.items()}
