import pytest
from logfleet.groups.expiry import REMOVED_PER_STEP
from logfleet.groups.records import OffsetRecord
from logfleet.groups.topic_removal import departed
from logfleet.records.record import ProducerStamp
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue

from broker_image.tests.scenario.group_host import WALL_MS, GroupHost
from broker_image.tests.unit.node.groups.groups_rig import image_of

OLD_ID, NEW_ID, NO_ID = b"o" * 16, b"n" * 16, bytes(16)


def commit(
    host: GroupHost,
    *,
    group: str = "g",
    topic: str = "t",
    partition: int = 0,
    topic_id: bytes = OLD_ID,
) -> None:
    """An offset committed now."""
    value = OffsetCommitValue(
        offset=5, commit_timestamp=WALL_MS + host.now_ms, metadata="", topic_id=topic_id
    )
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    host.coordinator.apply(OffsetRecord(key, value))


def remove(host: GroupHost, *deleted: tuple[str, bytes]) -> int:
    """Tell the coordinator of deleted topics and let it remove their offsets; how many steps it took."""
    removal = host.coordinator.removal
    removal.add(host.turn(), deleted)
    return go_on(host)


def go_on(host: GroupHost) -> int:
    removal = host.coordinator.removal
    steps = 0
    while not steps or removal.is_under_way:
        turn = host.turn()
        removal.step(turn)
        host.run(turn)
        steps += 1
    return steps


def left(host: GroupHost) -> list[tuple[str, str, int]]:
    return [found[:3] for found in host.coordinator.committed_offsets()]


@pytest.mark.parametrize(
    "topic_id, deleted, stays",
    [
        (OLD_ID, ("t", OLD_ID), False),
        (OLD_ID, ("t", NEW_ID), True),
        (OLD_ID, ("other", OLD_ID), True),
        (NO_ID, ("t", NO_ID), False),
        (NO_ID, ("t", OLD_ID), True),
    ],
    ids=["its topic", "a later topic", "another topic", "without an id", "it may be a later one's"],
)
def test_offsets_go_with_their_topic(topic_id, deleted, stays):
    host = GroupHost()
    commit(host, topic_id=topic_id)
    commit(host, topic="stays", topic_id=NEW_ID)
    remove(host, deleted)
    assert (("g", "t", 0) in left(host)) == stays
    assert ("g", "stays", 0) in left(host)
    assert not host.coordinator.removal.is_due


def test_many_go_in_short_steps_and_no_batch_is_long():
    host = GroupHost()
    for group in range(5):
        for partition in range(REMOVED_PER_STEP):
            commit(host, group=f"g{group}", partition=partition)
    removal = host.coordinator.removal
    removal.add(host.turn(), [("t", OLD_ID)])
    written: list[int] = []
    while not written or removal.is_under_way:
        turn = host.turn()
        removal.step(turn)
        written.append(sum(len(write.records) for write in turn.writes))
        host.run(turn)
    assert max(written) == REMOVED_PER_STEP
    assert sum(written) == 5 * REMOVED_PER_STEP
    assert left(host) == []


@pytest.mark.parametrize("partitions", [1, 3 * REMOVED_PER_STEP], ids=["last step", "first step"])
def test_what_cannot_be_written_is_tried_again_and_not_at_once(partitions):
    host = GroupHost()
    for partition in range(partitions):
        commit(host, partition=partition)
    host.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert remove(host, ("t", OLD_ID)) == 1
    assert [note.event for note in host.log_lines[-1:]] == ["offsets_of_deleted_topics_not_removed"]
    assert host.coordinator.removal.is_due
    assert len(left(host)) == partitions
    host.append_error = ErrorCode.NONE
    go_on(host)
    assert left(host) == []
    assert not host.coordinator.removal.is_due


def test_commits_of_a_later_topic_stay_however_late_the_removal_comes():
    host = GroupHost()
    for partition, topic_id in enumerate((OLD_ID, NO_ID)):
        commit(host, partition=partition, topic_id=topic_id)
    host.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    remove(host, ("t", OLD_ID), ("t", NO_ID))
    host.append_error = ErrorCode.NONE
    host.now_ms += 1
    for partition, topic_id in ((2, NEW_ID), (3, NO_ID)):
        commit(host, partition=partition, topic_id=topic_id)
    go_on(host)
    assert left(host) == [("g", "t", 2), ("g", "t", 3)]


def test_a_topic_that_goes_during_a_round_is_looked_for_everywhere():
    host = GroupHost()
    for group in range(3):
        for partition in range(REMOVED_PER_STEP):
            commit(host, group=f"g{group}", partition=partition)
        commit(host, group=f"g{group}", topic="second", topic_id=NEW_ID)
    removal = host.coordinator.removal
    removal.add(host.turn(), [("t", OLD_ID)])
    turn = host.turn()
    removal.step(turn)
    host.run(turn)
    remove(host, ("second", NEW_ID))
    assert left(host) == []


def test_what_transactions_have_staged_goes_with_its_topic():
    host = GroupHost()
    for partition, topic_id in enumerate((OLD_ID, NEW_ID)):
        turn = host.turn()
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        value = OffsetCommitValue(offset=5, metadata="", topic_id=topic_id)
        producer = ProducerStamp(7, 0, transactional=True)
        turn.write([OffsetRecord(key, value)], lambda *_: None, producer)
        host.run(turn)
    remove(host, ("t", OLD_ID))
    host.end_transaction(7, is_commit=True)
    assert left(host) == [("g", "t", 1)]


def test_topics_that_are_not_there_any_more_are_told_from_what_was_committed():
    committed = {(name, each) for name in ("t", "gone") for each in (OLD_ID, NEW_ID, NO_ID)}
    assert set(departed(committed, image_of(("t", NEW_ID, 1)))) == {
        ("t", OLD_ID),
        ("gone", OLD_ID),
        ("gone", NO_ID),
    }
