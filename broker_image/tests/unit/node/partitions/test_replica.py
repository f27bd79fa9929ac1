from typing import Any

import pytest
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.record import Record, build_batch
from logfleet.replication.waiters import COMMITTED, LOG_START, Waiter
from logfleet.types import LeaderEpoch

ID = bytes(range(16))


@pytest.mark.parametrize("known, begins_at", [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_what_is_committed_begins_as_it_was_known_within_the_log(
    rig: Any, known: int, begins_at: int
) -> None:
    log = rig.open()
    for _ in range(3):
        log.append_as_leader(build_batch([Record(None, b"value", 0)]), 0, 0)
    log.delete_records_before(1)
    replica = Replica("topic", ID, 0, log, high_watermark=known)
    assert (replica.high_watermark, replica.last_stable_offset) == (begins_at, begins_at)


def test_what_is_committed_passes_on_when_the_role_changes(rig: Any) -> None:
    log = rig.open()
    log.append_as_leader(build_batch([Record(None, b"value", 0)]), 0, 0)
    followed = FollowerPartition(Replica("topic", ID, 0, log), 2, LeaderEpoch(7))
    assert (followed.leader, followed.leader_epoch, followed.high_watermark) == (2, 7, 0)
    followed.advance_high_watermark(1)
    after = Replica.of(followed)
    assert (after.leader_epoch, after.high_watermark, after.log) == (-1, 1, log)


class Waiting(Waiter):
    """A waiter: the bytes it was notified of, whether the log start moved and the role ended."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def committed(self, size: int) -> None:
        self.told.append(size)

    def written(self, size: int) -> None:
        raise AssertionError(f"{size} bytes that are not committed")

    def log_start_moved(self) -> None:
        self.told.append("start")

    def role_ended(self) -> None:
        self.told.append("end")


def test_consumers_at_a_follower_are_notified_of_what_the_leader_commits(rig: Any) -> None:
    log, waiting = rig.open(), Waiting()
    followed = FollowerPartition(Replica("topic", ID, 0, log), 2, LeaderEpoch(7))
    followed.add_waiter(waiting, COMMITTED | LOG_START)
    for size in (70, 80):
        log.append_as_leader(build_batch([Record(None, b"value", 0)]), 0, 0)
        followed.appended(size)
    assert waiting.told == []
    followed.advance_high_watermark(1)
    followed.advance_high_watermark(2)
    assert (waiting.told, followed.high_watermark) == ([70, 80], 2)
    log.delete_records_before(1)
    followed.end()
    assert waiting.told == [70, 80, "start", "end"]
    followed.remove_waiter(waiting)
    log.delete_records_before(2)
    assert waiting.told[2:] == ["start", "end"]


def test_what_is_cut_off_a_follower_is_not_committed(rig: Any) -> None:
    log, waiting = rig.open(), Waiting()
    followed = FollowerPartition(Replica("topic", ID, 0, log), 2, LeaderEpoch(7))
    followed.add_waiter(waiting, COMMITTED | LOG_START)
    log.append_as_leader(build_batch([Record(None, b"value", 0)]), 0, 0)
    followed.advance_high_watermark(1)
    followed.appended(70)
    log.ends.truncated(0)
    assert followed.high_watermark == 0
    followed.advance_high_watermark(1)
    assert waiting.told == []
