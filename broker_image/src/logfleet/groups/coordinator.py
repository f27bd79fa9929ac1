"""The coordinator of the groups in one partition of `__consumer_offsets`.

`logfleet.coordinators.coordinator` describes its life: it gets every record of the partition's log,
then `take_up`, then requests. Each request is a decision that adds records, replies and log lines
to a turn. Only `apply` changes the stored state, while loading and afterwards.

Upholds I14: a partition has one owner per generation, because members get only the leader's stored
assignment, generations only grow, and commits of old generations are refused. Upholds I15
(`offsets`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from logfleet.coordinators.coordinator import Coordinator
from logfleet.coordinators.turn import Waiter, answer_to_append_error
from logfleet.groups.classic.group import ClassicGroup, GroupState, Member
from logfleet.groups.classic.join import Join
from logfleet.groups.classic.membership import Membership
from logfleet.groups.classic.rebalance import Rebalancer
from logfleet.groups.config import GroupConfig
from logfleet.groups.expiry import OffsetExpiry
from logfleet.groups.offsets import OffsetCommits
from logfleet.groups.records import GroupMetadataRecord, GroupRecord, OffsetRecord
from logfleet.groups.replay import Replay
from logfleet.groups.table import GroupTable, StoredGroup
from logfleet.groups.topic_removal import TopicRemoval
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    GroupMetadataKey,
    GroupMetadataValue,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

GROUP_TYPE = "classic"
"""The type that ListGroups reports for these groups."""
EXPIRIES_PER_TICK = 200
"""Deadlines handled in one turn, about 10 us each.

Each may remove a member and start a rebalance.
"""
NOT_FOUND_VERSION = 6
"""Since this version of DescribeGroups a missing group is an error (KIP-1043), before it is "Dead".
"""


class GroupCoordinator(Coordinator[GroupRecord]):
    """All groups of one partition.

    loaded: the transactions and topics that were found while the log was read.
    """

    def __init__(self, config: GroupConfig) -> None:
        self._table = GroupTable(config)
        self._rebalancer = Rebalancer(self._table)
        self._membership = Membership(self._table, self._rebalancer)
        self._offsets = OffsetCommits(self._table, self._rebalancer)
        self.expiry = OffsetExpiry(self._table)
        self.removal = TopicRemoval(self._table)
        self.loaded = Replay(self.apply)

    # -- records of the log

    def apply(self, record: GroupRecord) -> None:
        """Apply a record of the log. Nothing else changes the stored state."""
        match record:
            case OffsetRecord():
                self._apply_offset(record)
            case GroupMetadataRecord():
                self._apply_group(record)

    def replay(self, record: GroupRecord, log_offset: int, producer_id: int | None) -> None:
        if producer_id is None:
            self.loaded.apply(record)
        else:
            self.loaded.apply_transactional(record, producer_id, log_offset)

    def end_transaction(self, producer_id: int, marker_key: bytes | None) -> None:
        self.loaded.end_transaction(producer_id, marker_key)

    def _apply_group(self, record: GroupMetadataRecord) -> None:
        group_id, value = record.key.group, record.value
        if value is not None:
            assignments = {member.member_id: bytes(member.assignment) for member in value.members}
            self._table.stored[group_id] = StoredGroup(value, assignments)
            self._ensure_group(group_id)
            return
        self._table.stored.pop(group_id, None)
        group = self._table.groups.get(group_id)
        if group is not None:
            self._rebalancer.forget_group(group)

    def _apply_offset(self, record: OffsetRecord) -> None:
        key, value = record.key, record.value
        topics = self._table.offsets
        if value is not None:
            partitions = topics.setdefault(key.group, {}).setdefault(key.topic, {})
            partitions[key.partition] = value
            # a group that only commits offsets has no record of its own
            self._ensure_group(key.group)
            return
        offsets = topics.get(key.group, {})
        partitions = offsets.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            offsets.pop(key.topic, None)
        if not offsets:
            topics.pop(key.group, None)

    def _ensure_group(self, group_id: str) -> None:
        if group_id not in self._table.groups:
            self._rebalancer.new_group(group_id)

    def take_up(self, begin_turn: Callable[[], GroupTurn]) -> Iterator[GroupTurn]:
        """Activate the stored groups, each group in a turn.

        Each member gets a full session timeout from its turn on: while there was no coordinator it
        could not send heartbeats.
        """
        for group_id, stored in list(self._table.stored.items()):
            turn = begin_turn()
            group = self._restore(self._table.groups[group_id], stored.value)
            for member in group.members.values():
                self._rebalancer.start_session(member, turn)
            if len(group.members) > self._table.config.max_size:
                self._rebalancer.prepare(
                    group,
                    turn,
                    f"the loaded group has more than {self._table.config.max_size} members",
                )
            yield turn
        if self._table.groups:
            turn = begin_turn()
            turn.log(
                "groups_loaded",
                groups=len(self._table.groups),
                with_offsets=len(self._table.offsets),
            )
            yield turn

    def _restore(self, group: ClassicGroup, value: GroupMetadataValue) -> ClassicGroup:
        group.generation = value.generation
        group.protocol_name = value.protocol
        since_ms = value.current_state_timestamp
        group.state_since_ms = None if since_ms == -1 else since_ms
        for stored in value.members:
            timeout_ms = stored.rebalance_timeout
            member = Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
                session_timeout_ms=stored.session_timeout,
                protocols=((value.protocol or "", bytes(stored.subscription)),),
                on_session_deadline=partial(self._rebalancer.session_deadline_passed, group),
                assignment=bytes(stored.assignment),
            )
            group.add(member, value.protocol_type)
        group.protocol_type = value.protocol_type or None
        group.leader_id = value.leader
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.record_subscriptions()
        return group

    def unload(self, turn: GroupTurn) -> None:
        """This broker is no longer the coordinator: parked requests get NOT_COORDINATOR."""
        for group in self._table.groups.values():
            for member in group.members.values():
                waiter = group.park_join(member, None)
                if waiter is not None:
                    turn.reply(
                        waiter,
                        JoinGroupResponse(
                            member_id=member.member_id, error_code=ErrorCode.NOT_COORDINATOR
                        ),
                    )
                if member.sync_waiter is not None:
                    turn.reply(
                        member.sync_waiter,
                        SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
                    )
                    member.sync_waiter = None
            group.transition(GroupState.DEAD, turn.wall_ms)
        if self._table.groups:
            turn.log("groups_unloaded", groups=len(self._table.groups))
        self._table.groups.clear()
        self._table.timers.clear()

    # -- time

    def next_deadline_ms(self) -> int | None:
        return self._table.timers.next_ms()

    def tick(self, turn: GroupTurn) -> None:
        """Handle deadlines that have passed: sessions, join phases, sync phases.

        At most EXPIRIES_PER_TICK of them; the rest stays due (`next_deadline_ms`). A network
        partition can end thousands of sessions at once.
        """
        self._table.timers.expire_until(turn.now_ms, turn, EXPIRIES_PER_TICK)

    # -- members

    def join(self, turn: GroupTurn, join: Join) -> None:
        self._membership.join(turn, join)

    def sync(self, turn: GroupTurn, request: SyncGroupRequest, waiter: Waiter) -> None:
        self._membership.sync(turn, request, waiter)

    def heartbeat(self, turn: GroupTurn, request: HeartbeatRequest) -> HeartbeatResponse:
        return self._membership.heartbeat(turn, request)

    def leave(self, turn: GroupTurn, request: LeaveGroupRequest, waiter: Waiter) -> None:
        self._membership.leave(turn, request, waiter)

    # -- offsets

    def commit(
        self, turn: GroupTurn, request: OffsetCommitRequest, api_version: int, waiter: Waiter
    ) -> None:
        self._offsets.commit(turn, request, api_version, waiter)

    def fetch(
        self, turn: GroupTurn, request: OffsetFetchRequest.OffsetFetchRequestGroup, waiter: Waiter
    ) -> None:
        self._offsets.fetch(turn, request, waiter)

    def delete_offsets(self, turn: GroupTurn, request: OffsetDeleteRequest, waiter: Waiter) -> None:
        self._offsets.delete(turn, request, waiter)

    def committed_offsets(self) -> Iterator[tuple[str, str, int, OffsetCommitValue]]:
        """(Group, topic, partition, committed offset) of all.

        Groups may change during the iteration.
        """
        return self._offsets.walk()

    # -- administration

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> list[ListGroupsResponse.ListedGroup]:
        """The groups with one of these states and types, in any case; an empty list means all."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        if wanted_types and GROUP_TYPE.lower() not in wanted_types:
            return []
        return [
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in self._table.groups.values()
            if not wanted_states or group.state.value.lower() in wanted_states
        ]

    def groups(self) -> list[ClassicGroup]:
        """All groups; live objects that keep changing."""
        return list(self._table.groups.values())

    def describe(self, group_id: str, api_version: int) -> DescribeGroupsResponse.DescribedGroup:
        """A group with its members; their subscriptions only while it is stable."""
        group = self._table.groups.get(group_id)
        if group is None:
            answer = DescribeGroupsResponse.DescribedGroup(
                group_id=group_id, group_state=GroupState.DEAD.value
            )
            if api_version >= NOT_FOUND_VERSION:
                answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                answer.error_message = f"Group {group_id} not found."
            return answer
        stable = group.state is GroupState.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def delete(self, turn: GroupTurn, group_ids: Sequence[str], waiter: Waiter) -> None:
        """Delete groups without members, with their offsets.

        Replies a list of DeletableGroupResult.
        """
        results = []
        records: list[GroupRecord] = []
        for group_id in group_ids:
            group = self._table.groups.get(group_id)
            error = ErrorCode.NONE
            if group is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif group.state is not GroupState.EMPTY:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                records += self._offsets.tombstones(group_id)
                records.append(GroupMetadataRecord(GroupMetadataKey(group=group_id), None))
                turn.log("group_deleted", group=group_id)
            results.append(
                DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            )
        if records:
            turn.write(records, partial(_answer_delete, results, waiter))
        else:
            turn.reply(waiter, results)


def _answer_delete(
    results: list[DeleteGroupsResponse.DeletableGroupResult],
    waiter: Waiter,
    turn: GroupTurn,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        for result in results:
            if result.error_code == ErrorCode.NONE:
                result.error_code = answer_to_append_error(error)
    turn.reply(waiter, results)
