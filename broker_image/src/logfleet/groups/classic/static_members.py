"""Static members (KIP-345): a member with an instance id keeps its place when its client restarts.

The new incarnation joins without a member id, gets a new id and the old one's assignment. There is
no rebalance if the group is stable and would still choose the same protocol. The change is stored
before the response. A client that still uses the old id is fenced (FENCED_INSTANCE_ID).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from logfleet.coordinators.turn import answer_to_append_error
from logfleet.groups.classic.group import ClassicGroup, GroupState, Member, Protocol
from logfleet.groups.classic.join import SKIP_ASSIGNMENT_VERSION, Join, update_member
from logfleet.groups.classic.rebalance import Rebalancer, generation_answer
from logfleet.groups.classic.table import ClassicTable
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import JoinGroupResponse, SyncGroupResponse


@dataclass(frozen=True, slots=True)
class Replacement:
    """A static member's replacement that is being stored, and the state to restore on failure."""

    group: ClassicGroup
    member: Member
    old_id: str
    old_leader: str | None
    was: tuple[Sequence[Protocol], int, int]


class StaticMembers:
    """Handles restarts of static members, for all groups of a table."""

    def __init__(self, table: ClassicTable, rebalancer: Rebalancer) -> None:
        self._table = table
        self._rebalancer = rebalancer

    def replace(self, turn: GroupTurn, group: ClassicGroup, join: Join) -> None:
        """A static member of the group joins without a member id: its client has restarted."""
        instance_id = join.request.group_instance_id
        assert instance_id is not None
        old_id = group.static_members[instance_id]
        member = group.members[old_id]
        old_leader = group.leader_id
        was = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        assignments = self._stored_assignments(group)
        self._fence(turn, group, member)
        group.replace_id(member, join.fresh_id)
        member.is_new = False
        self._rebalancer.start_session(member, turn)
        update_member(turn, group, member, join)
        turn.log(
            "static_member_replaced",
            group=group.group_id,
            generation=group.generation,
            instance=instance_id,
            old_member=old_id,
            member=join.fresh_id,
            state=group.state.value,
        )
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            if old_id in assignments:
                assignments[join.fresh_id] = assignments.pop(old_id)
            record = self._rebalancer.metadata_record(group, assignments)
            replacement = Replacement(group, member, old_id, old_leader, was)
            turn.write([record], partial(self._replacement_stored, replacement, join))
        else:
            self._rebalancer.prepare_or_complete(
                group,
                turn,
                f"static member {instance_id} is back; client: {join.reason}",
                join.fresh_id,
            )

    def _fence(self, turn: GroupTurn, group: ClassicGroup, member: Member) -> None:
        """Answer requests parked under the old id with FENCED_INSTANCE_ID."""
        waiter = group.park_join(member, None)
        if waiter is not None:
            turn.reply(
                waiter,
                JoinGroupResponse(
                    member_id=member.member_id, error_code=ErrorCode.FENCED_INSTANCE_ID
                ),
            )
        if member.sync_waiter is not None:
            turn.reply(
                member.sync_waiter, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
            )
            member.sync_waiter = None

    def _replacement_stored(
        self, replacement: Replacement, join: Join, turn: GroupTurn, error: ErrorCode
    ) -> None:
        """The new id is stored: the member keeps its generation and assignment."""
        group, member = replacement.group, replacement.member
        if member.join_waiter is not join.waiter:
            return  # answered meanwhile: fenced by a further restart, dropped, or by a rebalance
        if error is not ErrorCode.NONE:
            self._not_stored(turn, replacement, join, answer_to_append_error(error))
        elif group.state is not GroupState.PREPARING_REBALANCE:
            group.park_join(member, None)
            self._rebalancer.start_session(member, turn)
            answer = generation_answer(group, member.member_id)
            if join.caller.api_version >= SKIP_ASSIGNMENT_VERSION:
                answer.skip_assignment = group.leader_id == member.member_id
            else:
                # a leader that cannot skip the assignment must not assign: do not name it as the
                # leader
                answer.leader = replacement.old_leader or ""
                answer.members = []
            turn.reply(join.waiter, answer)

    def _not_stored(
        self, turn: GroupTurn, replacement: Replacement, join: Join, error: ErrorCode
    ) -> None:
        """Report the failure, and restore the old id unless the new one was appended after all."""
        group, member = replacement.group, replacement.member
        turn.log(
            "static_member_not_stored",
            group=group.group_id,
            member=member.member_id,
            old_member=replacement.old_id,
            error=error.name,
        )
        group.park_join(member, None)
        if member.member_id not in self._stored_assignments(group):
            protocols, member.rebalance_timeout_ms, member.session_timeout_ms = replacement.was
            group.change_protocols(member, protocols)
            group.replace_id(member, replacement.old_id)
        self._rebalancer.start_session(member, turn)
        turn.reply(
            join.waiter,
            JoinGroupResponse(
                generation_id=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=replacement.old_leader or "",
                error_code=error,
            ),
        )

    def _stored_assignments(self, group: ClassicGroup) -> dict[str, bytes]:
        stored = self._table.stored.get(group.group_id)
        return dict(stored.assignments) if stored is not None else {}
