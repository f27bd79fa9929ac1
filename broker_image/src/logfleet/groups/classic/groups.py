"""The classic groups of one coordinator: their records, and the requests of their members.

A group that only commits offsets, a simple group, has no members and no record of its own. It is a
classic group too, as in Kafka.

Upholds I14: a partition has one owner per generation, because members get only the leader's stored
assignment, generations only grow, and commits of old generations are refused.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from logfleet.coordinators.turn import Waiter
from logfleet.groups.classic.group import ClassicGroup, GroupState, Member
from logfleet.groups.classic.join import Join
from logfleet.groups.classic.membership import Membership
from logfleet.groups.classic.rebalance import Rebalancer
from logfleet.groups.classic.records import GROUP_METADATA, GroupMetadataRecord
from logfleet.groups.classic.table import ClassicTable, StoredGroup
from logfleet.groups.kind import GroupKind
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn
from logfleet.wire.messages import (
    GroupMetadataValue,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)


class ClassicGroups:
    """Only `apply` changes the stored state, while loading and afterwards."""

    def __init__(self, table: GroupTable) -> None:
        self._shared = table
        self._table = ClassicTable(table)
        self._rebalancer = Rebalancer(self._table)
        self._membership = Membership(self._table, self._rebalancer)

    def groups(self) -> list[ClassicGroup]:
        """All classic groups; live objects that keep changing."""
        return [group for group in self._shared.groups.values() if isinstance(group, ClassicGroup)]

    # -- stored state

    def apply(self, record: GroupMetadataRecord, /) -> None:
        group_id, value = record.key.group, record.value
        if value is not None:
            assignments = {member.member_id: bytes(member.assignment) for member in value.members}
            self._table.stored[group_id] = StoredGroup(value, assignments)
            if group_id not in self._shared.groups:
                self._rebalancer.new_group(group_id)
            return
        self._table.stored.pop(group_id, None)
        group = self._table.find(group_id)
        if group is not None:
            self._rebalancer.forget_group(group)

    def add_simple(self, group_id: str) -> None:
        """Add a group that only commits offsets."""
        self._rebalancer.new_group(group_id)

    def take_up(self, begin_turn: Callable[[], GroupTurn]) -> Iterator[GroupTurn]:
        """Activate the stored groups, each group in a turn.

        Each member gets a full session timeout from its turn on: while there was no coordinator it
        could not send heartbeats.
        """
        size_max = self._shared.config.max_size
        for group_id, stored in list(self._table.stored.items()):
            group = self._table.find(group_id)
            if group is None:  # its id belongs to a group of another kind now
                continue
            turn = begin_turn()
            self._restore(group, stored.value)
            for member in group.members.values():
                self._rebalancer.start_session(member, turn)
            if len(group.members) > size_max:
                self._rebalancer.prepare(
                    group, turn, f"the loaded group has more than {size_max} members"
                )
            yield turn

    def _restore(self, group: ClassicGroup, value: GroupMetadataValue) -> None:
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

    # -- members

    def rebalance(self, turn: GroupTurn, group: ClassicGroup, reason: str) -> None:
        """Have all members join again, if the group is not waiting for that already."""
        self._rebalancer.prepare_or_complete(group, turn, reason)

    def join(self, turn: GroupTurn, join: Join) -> None:
        self._membership.join(turn, join)

    def sync(self, turn: GroupTurn, request: SyncGroupRequest, waiter: Waiter) -> None:
        self._membership.sync(turn, request, waiter)

    def heartbeat(self, turn: GroupTurn, request: HeartbeatRequest) -> HeartbeatResponse:
        return self._membership.heartbeat(turn, request)

    def leave(self, turn: GroupTurn, request: LeaveGroupRequest, waiter: Waiter) -> None:
        self._membership.leave(turn, request, waiter)


CLASSIC: Final = GroupKind((GROUP_METADATA,), ClassicGroups)
