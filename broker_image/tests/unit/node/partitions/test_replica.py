from typing import Any

import pytest
from logfleet.node.partitions.replica import FollowedPartition, Replica
from logfleet.records.record import Record, build_batch

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
    followed = FollowedPartition(Replica("topic", ID, 0, log), 2, 7)
    assert (followed.leader, followed.leader_epoch, followed.high_watermark) == (2, 7, 0)
    followed.high_watermark = 1
    after = Replica.of(followed)
    assert (after.leader_epoch, after.high_watermark, after.log) == (-1, 1, log)
