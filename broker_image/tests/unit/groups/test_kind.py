"""A second kind of groups, declared here: it commits, is listed, described, expires and is deleted as classic groups."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from logfleet.coordinators.timers import Timers
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.join import Caller, Join, protocols_of
from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.group import Group
from logfleet.groups.kind import GroupKind
from logfleet.groups.records import GroupRecord, RecordType
from logfleet.groups.registry import KINDS, record_types
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeGroupsResponse,
    GroupMetadataKey,
    GroupMetadataValue,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

from broker_image.tests.scenario.group_host import GroupHost

RETENTION_MS = 60_000
TICK_MS = 5_000


@dataclass(frozen=True, slots=True)
class EpochRecord(GroupRecord):
    """The epoch of a group, and its only member; without one the group is empty."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


EPOCH: Final = RecordType(
    EpochRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    key_version=99,
    value_version=lambda _: 3,
    value_newest=3,
)


class EpochGroup:
    """One member reads all of topic t, and commits with the group's epoch."""

    type = "epoch"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.member = ""
        self.commits: list[str] = []

    @property
    def state_name(self) -> str:
        return "Stable" if self.member else "Empty"

    def described(self) -> DescribeGroupsResponse.DescribedGroup:
        return DescribeGroupsResponse.DescribedGroup(
            group_id=self.group_id, group_state=self.state_name, protocol_data=str(self.epoch)
        )

    def check_commit(self, request: OffsetCommitRequest, api_version: int, /) -> ErrorCode:
        if api_version < 9:
            return ErrorCode.UNSUPPORTED_VERSION
        is_newest = request.generation_id_or_member_epoch == self.epoch
        return ErrorCode.NONE if is_newest else ErrorCode.STALE_MEMBER_EPOCH

    def check_transactional_commit(
        self, request: TxnOffsetCommitRequest, _api_version: int, /
    ) -> ErrorCode:
        is_newest = request.generation_id_or_member_epoch == self.epoch
        return ErrorCode.NONE if is_newest else ErrorCode.STALE_MEMBER_EPOCH

    def record_commit(
        self, member_id: str, _turn: GroupTurn, _timers: Timers[GroupTurn], /
    ) -> None:
        self.commits.append(member_id)

    def check_fetch(self, request: OffsetFetchRequest.OffsetFetchRequestGroup, /) -> ErrorCode:
        is_member = request.member_id in {None, self.member}
        return ErrorCode.NONE if is_member else ErrorCode.UNKNOWN_MEMBER_ID

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        return bool(self.member) and topic == "t"

    def retention_begins(self, value: OffsetCommitValue) -> int | None:
        return None if self.member else value.commit_timestamp

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.member else ErrorCode.NONE

    def may_expire(self) -> bool:
        return not self.member

    def tombstones(self) -> list[GroupRecord]:
        return [EpochRecord(GroupMetadataKey(group=self.group_id), None)]

    def unload(self, turn: GroupTurn) -> None:
        turn.log("epoch_group_unloaded", group=self.group_id)


class EpochGroups:
    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def apply(self, record: EpochRecord, /) -> None:
        group_id, value = record.key.group, record.value
        if value is None:
            self._table.groups.pop(group_id, None)
            return
        group = self._table.groups.get(group_id)
        if not isinstance(group, EpochGroup):
            group = self._table.groups[group_id] = EpochGroup(group_id)
        group.epoch, group.member = value.generation, value.leader or ""

    def take_up(self, begin_turn: Callable[[], GroupTurn]) -> Iterator[GroupTurn]:
        for group in list(self._table.groups.values()):
            if isinstance(group, EpochGroup):
                turn = begin_turn()
                turn.log("epoch_group_loaded", group=group.group_id)
                yield turn

    def set(self, turn: GroupTurn, group_id: str, epoch: int, member: str | None) -> None:
        """What a request of its own would do."""
        value = GroupMetadataValue(generation=epoch, protocol=None, leader=member)
        record = EpochRecord(GroupMetadataKey(group=group_id), value)
        turn.write([record], lambda *_: None)


EPOCHS: Final = GroupKind((EPOCH,), EpochGroups)
BOTH: Final = (*KINDS, EPOCHS)


def host_with_both(**config: Any) -> GroupHost:
    return GroupHost(GroupConfig(**config), kinds=BOTH)


def set_epoch(host: GroupHost, group: str, epoch: int, member: str | None) -> None:
    turn = host.turn()
    host.coordinator.of(EPOCHS).set(turn, group, epoch, member)
    host.run(turn)


def commit(host: GroupHost, group: str, generation: int = -1, member: str = "", version: int = 9):
    """Commit offset 5 of t-0; how it ended."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[topic],
    )
    response: Any = answer(host, host.coordinator.commit, request, version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def fetch(host: GroupHost, group: str, member: str | None = None) -> tuple[ErrorCode, int | None]:
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group, member_id=member, topics=[topic]
    )
    response: Any = answer(host, host.coordinator.fetch, request)
    found = [each.committed_offset for topic in response.topics for each in topic.partitions]
    return ErrorCode(response.error_code), next(iter(found), None)


def answer(host: GroupHost, method: Callable[..., None], *arguments: Any) -> Any:
    turn, waiter = host.turn(), object()
    method(turn, *arguments, waiter)
    host.run(turn)
    return dict(host.replies)[waiter]


def listed(host: GroupHost, states: tuple[str, ...] = (), types: tuple[str, ...] = ()):
    return {
        (row.group_id, row.group_type, row.group_state)
        for row in host.coordinator.list_groups(states, types)
    }


def test_it_is_a_group():
    group: Group = EpochGroup("g")
    assert group.type == "epoch"


def test_both_kinds_commit_by_their_own_rules_and_share_their_offsets():
    host = host_with_both()
    set_epoch(host, "e", 3, "m")
    assert commit(host, "e", 2, "m") is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(host, "e", 3, "m", version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(host, "e", 3, "m") is ErrorCode.NONE
    assert commit(host, "c") is ErrorCode.NONE
    (group,) = (each for each in host.coordinator.groups() if isinstance(each, EpochGroup))
    assert group.commits == ["m"]
    assert {found[:3] for found in host.coordinator.committed_offsets()} == {
        ("e", "t", 0),
        ("c", "t", 0),
    }
    assert fetch(host, "e", "m") == (ErrorCode.NONE, 5)
    assert fetch(host, "e", "other") == (ErrorCode.UNKNOWN_MEMBER_ID, None)


@pytest.mark.parametrize(
    "version,expected", [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)]
)
def test_a_stale_epoch_in_a_transaction_has_a_code_of_its_own_since_version_6(version, expected):
    host = host_with_both()
    set_epoch(host, "e", 3, "m")
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5
    )
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    request = TxnOffsetCommitRequest(
        group_id="e", producer_id=7, generation_id_or_member_epoch=2, member_id="m", topics=[topic]
    )
    response = answer(host, host.coordinator.commit_in_transaction, request, version)
    assert response.topics[0].partitions[0].error_code == expected


def test_both_kinds_are_listed_and_described():
    host = host_with_both()
    set_epoch(host, "e", 3, "m")
    commit(host, "c")
    assert listed(host) == {("e", "epoch", "Stable"), ("c", "classic", "Empty")}
    assert listed(host, types=("Epoch",)) == {("e", "epoch", "Stable")}
    assert listed(host, states=("empty",)) == {("c", "classic", "Empty")}
    assert host.coordinator.describe("e", 6).protocol_data == "3"
    assert host.coordinator.describe("c", 6).group_state == "Empty"


def test_both_kinds_are_there_after_loading():
    host = host_with_both()
    set_epoch(host, "e", 3, "m")
    commit(host, "e", 3, "m")
    commit(host, "c")
    before = listed(host)
    host.unload()
    assert "epoch_group_unloaded" in [line.event for line in host.log_lines]
    assert listed(host) == set()
    host.load()
    assert listed(host) == before
    assert [line.event for line in host.log_lines][-2:] == ["epoch_group_loaded", "groups_loaded"]
    assert fetch(host, "e", "m") == (ErrorCode.NONE, 5)


def test_both_kinds_are_deleted_with_their_offsets():
    host = host_with_both()
    set_epoch(host, "e", 3, "m")
    commit(host, "e", 3, "m")
    commit(host, "c")

    def delete() -> list[ErrorCode]:
        results = answer(host, host.coordinator.delete, ["e", "c"])
        return [ErrorCode(result.error_code) for result in results]

    assert delete() == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE]
    set_epoch(host, "e", 4, None)
    assert delete() == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert host.records()[-1] == EpochRecord(GroupMetadataKey(group="e"), None)
    assert listed(host) == set()
    assert list(host.coordinator.committed_offsets()) == []
    host.load()
    assert listed(host) == set()


def test_offsets_of_its_topics_are_deleted_only_without_a_subscription():
    host = host_with_both()
    set_epoch(host, "e", 3, "m")
    commit(host, "e", 3, "m")
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[partition])
    request = OffsetDeleteRequest(group_id="e", topics=[topic])

    def delete() -> ErrorCode:
        response = answer(host, host.coordinator.delete_offsets, request)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    assert delete() is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    set_epoch(host, "e", 4, None)
    assert delete() is ErrorCode.NONE
    assert list(host.coordinator.committed_offsets()) == []


def test_it_expires_with_its_last_offset():
    host = host_with_both(offsets_retention_ms=RETENTION_MS)
    set_epoch(host, "e", 3, "m")
    commit(host, "e", 3, "m")
    host.wait(RETENTION_MS)

    def expire() -> None:
        turn = host.turn()
        host.coordinator.expiry.step(turn)
        host.run(turn)

    expire()
    assert listed(host) == {("e", "epoch", "Stable")}
    set_epoch(host, "e", 4, None)
    expire()
    assert listed(host) == set()
    assert host.records()[-1] == EpochRecord(GroupMetadataKey(group="e"), None)


def test_members_of_classic_groups_cannot_use_it():
    """Source: GroupMetadataManager.classicGroupJoin, classicGroupHeartbeat ..."""
    host = host_with_both()
    set_epoch(host, "e", 3, "m")
    classic = host.coordinator.of(CLASSIC)
    request = JoinGroupRequest(
        group_id="e",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range")],
    )
    turn = host.turn()
    join = Join(request, protocols_of(request), Caller("c", "/h", 3), "join", "c-1")
    classic.join(turn, join)
    heartbeat = classic.heartbeat(turn, HeartbeatRequest(group_id="e", member_id="m"))
    assert heartbeat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    classic.sync(turn, SyncGroupRequest(group_id="e", member_id="m"), "sync")
    identity = LeaveGroupRequest.MemberIdentity(member_id="m")
    classic.leave(turn, LeaveGroupRequest(group_id="e", members=[identity]), "leave")
    host.run(turn)
    answers: dict[Any, Any] = dict(host.replies)
    assert isinstance(answers["join"], JoinGroupResponse)
    assert answers["join"].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert answers["sync"].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answers["leave"].members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.groups() == []


def test_a_classic_record_of_an_id_that_another_kind_took_over_changes_nothing():
    host = host_with_both()
    coordinator = host.coordinator = GroupCoordinator(host.config, BOTH)
    key = GroupMetadataKey(group="e")
    value = GroupMetadataValue(generation=1, protocol=None, leader=None)
    (classic,) = CLASSIC.records
    coordinator.apply(classic.record(key, value))
    coordinator.apply(EpochRecord(key, GroupMetadataValue(generation=3, protocol=None)))
    host.take_up()
    coordinator.apply(classic.record(key, None))
    assert listed(host) == {("e", "epoch", "Empty")}


@pytest.mark.parametrize("version", [1, 2])
def test_no_two_types_of_records_have_one_key_version(version: int):
    same = RecordType(
        EpochRecord,
        GroupMetadataKey,
        GroupMetadataValue,
        key_version=version,
        value_version=lambda _: 3,
        value_newest=3,
    )
    with pytest.raises(AssertionError):
        record_types((*KINDS, GroupKind((same,), EpochGroups)))
