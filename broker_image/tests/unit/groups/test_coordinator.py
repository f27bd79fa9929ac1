import pytest
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.records import OffsetRecord
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

from broker_image.tests.scenario.group_host import WALL_MS, GroupHost
from broker_image.tests.scenario.group_script import Script


def stable_host() -> GroupHost:
    script = Script()
    for line in ("join a version=3 static=one meta=sub", "wait 3000", "sync a a=share"):
        script.run(line)
    return script.host


def test_a_stable_group_is_described_in_full():
    group = stable_host().coordinator.describe("g", 6)
    assert group.error_code == ErrorCode.NONE
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.client_id, member.client_host, member.group_instance_id) == (
        "a",
        "/127.0.0.1",
        "one",
    )
    assert (member.member_metadata, member.member_assignment) == (b"sub", b"share")


def test_while_it_rebalances_only_the_members_are_told():
    script = Script()
    script.run("join a version=3 meta=sub")
    group = script.host.coordinator.describe("g", 6)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert (group.members[0].member_metadata, group.members[0].member_assignment) == (b"", b"")


def test_an_assignment_is_shown_until_a_generation_ends_without_one():
    script = Script()
    shown = []
    for line in (
        "join a version=3",
        "wait 3000",
        "sync a a=share",
        "join a version=3 meta=other",  # completes at once: a is alone
        "join a version=3 meta=third",  # before anything was assigned
    ):
        script.run(line)
        (member,) = script.host.coordinator.describe("g", 6).members
        shown.append(member.member_assignment)
    assert shown == [b"", b"", b"share", b"share", b""]


@pytest.mark.parametrize(
    "version,error,message",
    [(5, ErrorCode.NONE, None), (6, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")],
)
def test_a_missing_group_is_dead(version, error, message):
    group = GroupHost().coordinator.describe("g", version)
    assert (group.group_state, group.error_code, group.error_message) == ("Dead", error, message)


@pytest.mark.parametrize(
    "states,types,listed",
    [
        ([], [], True),
        (["Stable"], [], True),
        (["empty", "STABLE"], [], True),
        (["Empty"], [], False),
        ([], ["Classic"], True),
        ([], ["consumer", "classic"], True),
        ([], ["consumer"], False),
        (["Empty"], ["classic"], False),
    ],
)
def test_groups_are_listed_by_state_and_type(states, types, listed):
    groups = stable_host().coordinator.list_groups(states, types)
    assert [group.group_id for group in groups] == (["g"] if listed else [])
    for group in groups:
        assert (group.protocol_type, group.group_state, group.group_type) == (
            "consumer",
            "Stable",
            "classic",
        )


def test_what_is_stored_is_what_kafka_stores():
    (first, second) = stable_host().records()
    assert first == GroupMetadataRecord(
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=WALL_MS,
        ),
    )
    assert second == GroupMetadataRecord(
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader="a-1",
            current_state_timestamp=WALL_MS + 3_000,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id="a-1",
                    group_instance_id="one",
                    client_id="a",
                    client_host="/127.0.0.1",
                    rebalance_timeout=60_000,
                    session_timeout=10_000,
                    subscription=b"sub",
                    assignment=b"share",
                )
            ],
        ),
    )


def with_a_member_of_7_s(group_id: str) -> GroupMetadataRecord:
    member = GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=7_000)
    value = GroupMetadataValue(
        protocol_type="consumer", protocol="range", leader="m", members=[member]
    )
    return GroupMetadataRecord(GroupMetadataKey(group=group_id), value)


def test_a_rebalance_timeout_that_old_brokers_did_not_store_is_the_session_timeout():
    host = GroupHost()
    host.coordinator = GroupCoordinator(host.config)
    host.coordinator.apply(with_a_member_of_7_s("g"))
    host.take_up()
    group = host.classic("g")
    assert group is not None
    assert group.rebalance_timeout_ms() == 7_000
    assert group.state_since_ms is None
    assert host.coordinator.next_deadline_ms() == 7_000


def test_a_members_session_begins_when_its_group_is_taken_up():
    host = GroupHost()
    host.coordinator = GroupCoordinator(host.config)
    for group_id in ("a", "b"):
        host.coordinator.apply(with_a_member_of_7_s(group_id))
    for turn in host.coordinator.take_up(host.turn):
        host.run(turn)
        host.wait(3_000)
    assert host.now_ms == 9_000
    states = {each.group_id: each.group_state for each in host.coordinator.list_groups([], [])}
    assert states == {"a": "Empty", "b": "Stable"}


def test_tombstones_of_what_is_not_there_change_nothing():
    coordinator = GroupCoordinator(GroupHost().config)
    coordinator.apply(GroupMetadataRecord(GroupMetadataKey(group="g"), None))
    coordinator.apply(OffsetRecord(OffsetCommitKey(group="g", topic="t", partition=0), None))
    assert coordinator.list_groups([], []) == []


def test_a_group_that_only_committed_offsets_is_there_after_loading():
    coordinator = GroupCoordinator(GroupHost().config)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    coordinator.apply(OffsetRecord(key, OffsetCommitValue(offset=5)))
    host = GroupHost()
    host.coordinator = coordinator
    host.take_up()
    (group,) = coordinator.list_groups([], [])
    assert (group.group_id, group.protocol_type, group.group_state) == ("g", "", "Empty")


def test_nothing_expires_after_unloading():
    host = stable_host()
    host.unload()
    assert host.coordinator.next_deadline_ms() is None
    host.wait(100_000)
    assert host.coordinator.list_groups([], []) == []


def test_deletes_that_could_not_be_stored_are_told():
    host = stable_host()
    host.wait(20_000)
    host.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    turn = host.turn()
    host.coordinator.delete(turn, ["g", "other"], "delete")
    host.run(turn)
    results = host.replies[-1][1]
    assert isinstance(results, list)
    assert [ErrorCode(result.error_code).name for result in results] == [
        "NOT_COORDINATOR",
        "GROUP_ID_NOT_FOUND",
    ]
    assert [group.group_id for group in host.coordinator.list_groups([], [])] == ["g"]
