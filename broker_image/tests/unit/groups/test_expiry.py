import pytest
from logfleet.groups.classic.group import ClassicGroup, GroupState
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.expiry import CHECKED_PER_STEP, PARTITIONS_PER_PIECE, REMOVED_PER_STEP
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.turn import GroupTurn
from logfleet.records.record import ProducerStamp
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

from broker_image.tests.scenario.group_host import WALL_MS, GroupHost
from broker_image.tests.scenario.group_script import Script

RETENTION_MS = 60_000
READS_T = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
"""A subscription of version 0 to the topic t: topics, no user data."""


def offset(
    group: str = "g", topic: str = "t", partition: int = 0, at_ms: int = 0, expires_ms: int = -1
) -> OffsetRecord:
    """An offset committed at_ms after the host's clock began."""
    return OffsetRecord(
        OffsetCommitKey(group=group, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=5, commit_timestamp=WALL_MS + at_ms, expire_timestamp=expires_ms, metadata=""
        ),
    )


def generation(
    group: str = "g", kind: str = "consumer", empty_since_ms: int | None = None, meta: bytes = b""
) -> GroupMetadataRecord:
    """The record of a group that is empty since then, or with None of one with a member."""
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        session_timeout=10_000_000,
        rebalance_timeout=10_000_000,
        subscription=meta,
    )
    has_member = empty_since_ms is None
    return GroupMetadataRecord(
        GroupMetadataKey(group=group),
        GroupMetadataValue(
            protocol_type=kind,
            generation=1,
            protocol="range" if has_member else None,
            leader="m" if has_member else None,
            current_state_timestamp=-1 if empty_since_ms is None else WALL_MS + empty_since_ms,
            members=[member] if has_member else [],
        ),
    )


def host_with(*records: GroupRecord) -> GroupHost:
    """A coordinator that has read these records from its log."""
    host = GroupHost(GroupConfig(offsets_retention_ms=RETENTION_MS))
    host.coordinator = GroupCoordinator(host.config)
    for record in records:
        host.coordinator.apply(record)
    host.take_up()
    return host


def expire(host: GroupHost, at_ms: int) -> int:
    """Let the coordinator look for expired offsets at that time; how many steps it took."""
    host.now_ms = at_ms
    steps = 0
    unfinished = True
    while unfinished:
        step(host)
        unfinished = host.coordinator.expiry.is_under_way
        steps += 1
    return steps


def step(host: GroupHost) -> None:
    turn = host.turn()
    host.coordinator.expiry.step(turn)
    host.run(turn)


def stage(host: GroupHost, record: OffsetRecord, producer_id: int) -> None:
    turn = host.turn()
    turn.write([record], lambda *_: None, ProducerStamp(producer_id, 0, transactional=True))
    host.run(turn)


def left(host: GroupHost) -> set[tuple[str, str, int]]:
    return {
        (group, topic, number)
        for group, topics in host.coordinator._table.offsets.items()
        for topic, partitions in topics.items()
        for number in partitions
    }


def groups(host: GroupHost) -> set[str]:
    return {group.group_id for group in host.coordinator.list_groups([], [])}


def is_gone(host: GroupHost) -> bool:
    """Whether there is no offset and no group any more."""
    return not left(host) and not groups(host)


def test_an_offset_that_a_transaction_may_change_does_not_expire():
    host = host_with(offset(), offset(partition=1))
    stage(host, offset(), producer_id=7)
    expire(host, RETENTION_MS)
    assert left(host) == {("g", "t", 0)}
    host.end_transaction(7, is_commit=False)
    expire(host, RETENTION_MS)
    assert is_gone(host)


def test_a_group_with_nothing_but_staged_offsets_does_not_expire():
    host = host_with()
    stage(host, offset(), producer_id=7)
    expire(host, RETENTION_MS)
    assert groups(host) == {"g"}
    host.end_transaction(7, is_commit=True)
    assert left(host) == {("g", "t", 0)}
    expire(host, RETENTION_MS)
    assert is_gone(host)


def test_the_offset_of_a_simple_consumer_expires_the_retention_after_its_commit():
    host = host_with(offset(at_ms=0), offset(partition=1, at_ms=10_000))
    expire(host, RETENTION_MS - 1)
    assert host.log == []
    expire(host, RETENTION_MS)
    assert left(host) == {("g", "t", 1)}
    assert groups(host) == {"g"}
    expire(host, RETENTION_MS + 10_000)
    assert is_gone(host)
    assert host.records() == [
        OffsetRecord(OffsetCommitKey(group="g", topic="t", partition=0), None),
        OffsetRecord(OffsetCommitKey(group="g", topic="t", partition=1), None),
        GroupMetadataRecord(GroupMetadataKey(group="g"), None),
    ]
    expiries = [note for note in host.log_lines if note.event == "offsets_expired"]
    assert [note.fields["groups_removed"] for note in expiries] == [[], ["g"]]


def test_the_offsets_of_a_group_expire_the_retention_after_it_became_empty():
    host = host_with(offset(at_ms=0), generation(empty_since_ms=50_000))
    expire(host, 50_000 + RETENTION_MS - 1)
    assert left(host) == {("g", "t", 0)}
    expire(host, 50_000 + RETENTION_MS)
    assert is_gone(host)


@pytest.mark.parametrize("crash", [False, True])
def test_a_new_coordinator_does_not_begin_the_retention_anew(crash):
    script = Script()
    script.run(f"config initial-delay=0 offsets-retention={RETENTION_MS}")
    script.run("join a version=3; wait 0; sync a a=p0; commit a t-0=5; wait 1000; leave a")
    script.run("wait 30000")
    script.run("crash" if crash else "unload; load")
    expire(script.host, 1_000 + RETENTION_MS - 1)
    assert left(script.host) == {("g", "t", 0)}
    expire(script.host, 1_000 + RETENTION_MS)
    assert is_gone(script.host)


def test_a_record_that_does_not_tell_since_when_its_group_is_empty_leaves_the_commit():
    """As brokers before Kafka 2.1 wrote it."""
    record = generation(empty_since_ms=0)
    assert record.value is not None
    record.value.current_state_timestamp = -1
    host = host_with(record, offset(at_ms=7), offset(partition=1, at_ms=0))
    expire(host, RETENTION_MS)
    assert left(host) == {("g", "t", 0)}


def test_consumers_keep_the_offsets_of_topics_that_they_are_subscribed_to():
    host = host_with(
        generation(meta=READS_T), offset(), offset(topic="u"), offset(topic="v", at_ms=1)
    )
    expire(host, RETENTION_MS)
    assert left(host) == {("g", "t", 0), ("g", "v", 0)}
    assert groups(host) == {"g"}


def test_nothing_expires_while_consumers_rebalance():
    host = host_with(generation(meta=READS_T), offset(topic="u"))
    group = host.classic("g")
    assert group is not None
    for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        group.state = state
        expire(host, 10 * RETENTION_MS)
    assert left(host) == {("g", "u", 0)}


def test_members_of_another_kind_and_those_that_cannot_be_read_keep_all_offsets():
    host = host_with(
        generation("connect", kind="connect"),
        offset("connect"),
        generation("odd", meta=b"\0"),
        offset("odd"),
    )
    expire(host, 10 * RETENTION_MS)
    assert left(host) == {("connect", "t", 0), ("odd", "t", 0)}


def test_a_commit_with_a_retention_of_its_own_expires_by_that():
    soon, late = WALL_MS + 5, WALL_MS + 10 * RETENTION_MS
    host = host_with(offset(expires_ms=soon), offset(partition=1, expires_ms=late))
    expire(host, 4)
    assert len(left(host)) == 2
    expire(host, 5)
    assert left(host) == {("g", "t", 1)}
    expire(host, 10 * RETENTION_MS - 1)
    assert left(host) == {("g", "t", 1)}
    expire(host, 10 * RETENTION_MS)
    assert groups(host) == set()


def test_empty_groups_without_offsets_are_removed_and_others_stay():
    host = host_with(
        generation("empty", empty_since_ms=0), generation("stable"), generation("asked", "", 0)
    )
    asked = host.classic("asked")
    assert asked is not None
    host.coordinator.of(CLASSIC)._rebalancer.add_pending(asked, "c-1", 10_000, host.turn())
    expire(host, 1)
    assert groups(host) == {"stable", "asked"}, "one was just given its id to join with"
    host.wait(10_000)
    expire(host, host.now_ms)
    assert groups(host) == {"stable"}


def test_a_round_goes_on_in_short_steps_and_ends():
    many = 3 * REMOVED_PER_STEP
    host = host_with(*[offset(partition=number) for number in range(many)])
    assert expire(host, RETENTION_MS) == 4
    assert is_gone(host)
    crowd = [offset(f"g{number}") for number in range(CHECKED_PER_STEP)]
    host = host_with(*crowd)
    assert expire(host, 0) == 3, "each group is looked at itself, beside its offset"
    wide = [offset(partition=number) for number in range(CHECKED_PER_STEP)]
    assert expire(host_with(*wide), 0) == 2


def test_what_happens_between_two_steps_counts():
    host = host_with(*[offset(partition=number) for number in range(2 * REMOVED_PER_STEP)])
    host.now_ms = RETENTION_MS
    step(host)
    assert host.coordinator.expiry.is_under_way
    again = offset(partition=2 * REMOVED_PER_STEP - 1, at_ms=RETENTION_MS)
    host.coordinator.apply(again)
    expire(host, RETENTION_MS)
    assert left(host) == {("g", "t", 2 * REMOVED_PER_STEP - 1)}
    assert groups(host) == {"g"}


def test_a_group_that_is_deleted_during_a_round_is_passed_over():
    host = host_with(*[offset(f"g{number}") for number in range(CHECKED_PER_STEP)])
    step(host)
    assert host.coordinator.expiry.is_under_way
    turn = host.turn()
    host.coordinator.delete(turn, [f"g{CHECKED_PER_STEP - 1}"], object())
    host.run(turn)
    expire(host, RETENTION_MS)
    assert f"g{CHECKED_PER_STEP - 1}" not in groups(host)


def test_offsets_that_cannot_be_removed_end_the_round_and_stay():
    host = host_with(*[offset(partition=number) for number in range(2 * PARTITIONS_PER_PIECE)])
    host.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert expire(host, RETENTION_MS) == 1
    assert [note.event for note in host.log_lines[-1:]] == ["expired_offsets_not_removed"]
    assert "offsets_expired" not in [note.event for note in host.log_lines]
    assert len(left(host)) == 2 * PARTITIONS_PER_PIECE
    host.append_error = ErrorCode.NONE
    expire(host, RETENTION_MS)
    assert is_gone(host)


def test_the_group_goes_with_the_offsets_that_go_in_the_same_step():
    host = host_with(offset(), offset("h", at_ms=1))
    turn = GroupTurn(RETENTION_MS, WALL_MS + RETENTION_MS)
    host.coordinator.expiry.step(turn)
    assert not host.coordinator.expiry.is_under_way
    (write,) = turn.writes
    assert [type(record) for record in write.records] == [OffsetRecord, GroupMetadataRecord]
    assert isinstance(host.coordinator._table.groups["h"], ClassicGroup)
