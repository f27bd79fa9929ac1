"""Waiters for stable records at a replica: of what they are notified."""

from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from logfleet.log.config import LogConfig
from logfleet.log.partition_log import PartitionLog
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.replication.ends import UNCOUNTED_BYTES
from logfleet.replication.waiters import NEXT_COMMITTED, STABLE, Waiter
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.log_rig import LogRig, truncate
from broker_image.tests.unit.node.handlers.transactions_rig import EPOCH, NOW, PLAIN, History

ID = bytes(range(16))


def _calls(name: str, **given_: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(name), st.fixed_dictionaries(given_))


ACTIONS = st.lists(
    st.one_of(
        _calls("write", producer_id=st.sampled_from([PLAIN, 1, 2]), count=st.integers(1, 3)),
        _calls("end", producer_id=st.sampled_from([1, 2]), commit=st.booleans()),
        _calls("commit", behind=st.integers(0, 4)),
    ),
    max_size=30,
)


class Waiting(Waiter):
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.commits: list[int] = []

    def stable(self, size: int) -> None:
        self.sizes.append(size)

    def committed(self, size: int) -> None:
        self.commits.append(size)


class Follower:
    """A replica that follows, and the history of its leader's log."""

    def __init__(self, log: PartitionLog) -> None:
        self.history = History()
        self.replica = FollowerPartition(Replica("topic", ID, 0, log), 2, LeaderEpoch(5))

    def write(self, producer_id: int, count: int = 1) -> None:
        self._append(self.history.write(producer_id, count))

    def end(self, producer_id: int, *, commit: bool) -> None:
        self._append(self.history.end(producer_id, commit=commit))

    def commit(self, behind: int = 0) -> None:
        """All but that many batches."""
        ends = [0, *(end for _, end in self.history.ends)]
        self.replica.advance_high_watermark(ends[max(0, len(ends) - 1 - behind)])

    def _append(self, batch: bytearray) -> None:
        self.replica.log.append_as_follower(memoryview(batch), EPOCH, NOW)
        self.replica.appended(len(batch))

    def bytes_below(self, offset: int) -> int:
        return max([size for size, end in self.history.ends if end <= offset], default=0)


@given(before=ACTIONS, after=ACTIONS)
@settings(max_examples=100, deadline=None)
def test_they_are_notified_of_each_byte_that_becomes_stable_and_of_nothing_else(
    before: list[Any], after: list[Any]
) -> None:
    with TemporaryDirectory() as directory:
        follower = Follower(LogRig(directory).open())
        replica = follower.replica
        for name, arguments in before:
            getattr(follower, name)(**arguments)
        waiting, begin = Waiting(), replica.last_stable_offset
        replica.add_waiter(waiting, STABLE)
        replica.add_waiter(Waiting(), STABLE)
        for name, arguments in after:
            former, moves = replica.last_stable_offset, len(waiting.sizes)
            getattr(follower, name)(**arguments)
            stable_end = replica.last_stable_offset
            assert stable_end == follower.history.last_stable_offset(replica.high_watermark)
            assert former <= stable_end <= replica.high_watermark
            assert len(waiting.sizes) - moves == (stable_end > former)
        stable = follower.bytes_below(replica.last_stable_offset) - follower.bytes_below(begin)
        assert sum(waiting.sizes) == stable


def test_records_of_many_segments_count_as_many(rig: Any) -> None:
    """They have not been counted; a waiter reads them anyway."""
    follower, waiting = Follower(rig.open(LogConfig(segment_bytes=200))), Waiting()
    follower.write(1)
    follower.commit()
    follower.replica.add_waiter(waiting, STABLE)
    for _ in range(5):
        follower.write(PLAIN)
    follower.end(1, commit=True)
    follower.commit()
    assert waiting.sizes == [UNCOUNTED_BYTES]


def test_the_next_commit_is_reported_once_whatever_is_stable(rig: Any) -> None:
    follower, waiting = Follower(rig.open()), Waiting()
    follower.replica.add_waiter(waiting, STABLE | NEXT_COMMITTED)
    for _ in range(3):
        follower.write(1)
        follower.commit()
    assert (waiting.commits, waiting.sizes) == ([follower.history.ends[0][0]], [])


def test_the_last_stable_offset_is_never_before_the_log_start(rig: Any) -> None:
    """DeleteRecords and retention go up to the high watermark, through open transactions."""
    follower, waiting = Follower(rig.open()), Waiting()
    for producer_id in (PLAIN, 1, PLAIN, PLAIN):
        follower.write(producer_id)
    follower.commit()
    replica = follower.replica
    replica.add_waiter(waiting, STABLE)
    assert replica.last_stable_offset == 1
    replica.log.delete_records_before(3)
    assert replica.last_stable_offset == 3
    follower.end(1, commit=False)
    follower.commit()
    assert replica.last_stable_offset == replica.high_watermark == 5
    assert waiting.sizes == [UNCOUNTED_BYTES]


def test_a_truncation_reopens_a_transaction_and_what_becomes_stable_then_is_reported(
    rig: Any,
) -> None:
    follower, waiting = Follower(rig.open()), Waiting()
    follower.write(PLAIN)
    follower.write(1)
    follower.commit()
    follower.replica.add_waiter(waiting, STABLE)
    follower.end(1, commit=True)
    truncate(follower.replica.log, 2)
    assert follower.replica.last_stable_offset == 1
    history = follower.history
    marker = bytes(history.data[history.ends[1][0] :])
    follower.replica.log.append_as_follower(memoryview(bytearray(marker)), EPOCH, NOW)
    follower.replica.appended(len(marker))
    assert waiting.sizes == []
    follower.commit()
    assert follower.replica.last_stable_offset == 3
    assert waiting.sizes == [history.ends[2][0] - history.ends[0][0]]


def test_a_replica_that_nobody_reads_keeps_no_list_of_transactions_that_have_ended(
    rig: Any,
) -> None:
    follower = Follower(rig.open())
    for _ in range(200):
        follower.write(1)
        follower.end(1, commit=True)
        follower.commit()
    assert len(follower.replica.log.producers.states.unstable.queue) <= 1
