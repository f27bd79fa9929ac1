"""The four requests of a member: join, sync, heartbeat, leave.

Follows Kafka's GroupMetadataManager (classicGroupJoin, classicGroupSync ...). KIP-394: a new member
first gets an id and joins with it; KIP-559: protocol type and name are checked; KIP-800: reasons.
`logfleet.groups.classic.static_members` handles static members that restart.
"""

from functools import partial

from logfleet.coordinators.turn import Waiter, answer_to_append_error
from logfleet.groups.classic.group import ClassicGroup, GroupState, Member
from logfleet.groups.classic.join import (
    MEMBER_ID_REQUIRED_VERSION,
    UNKNOWN_MEMBER,
    Join,
    update_member,
)
from logfleet.groups.classic.rebalance import Rebalancer, generation_answer
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.classic.static_members import StaticMembers
from logfleet.groups.classic.table import ClassicTable
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


class Membership:
    """Handles the requests of members for all groups of a table."""

    def __init__(self, table: ClassicTable, rebalancer: Rebalancer) -> None:
        self._table = table
        self._config = table.shared.config
        self._rebalancer = rebalancer
        self._static = StaticMembers(table, rebalancer)

    # -- join

    def join(self, turn: GroupTurn, join: Join) -> None:
        """Handle a JoinGroup. The reply comes now, or with the group's next generation."""
        request = join.request
        if not request.group_id:
            join.refuse(turn, ErrorCode.INVALID_GROUP_ID, request.member_id)
            return
        allowed = range(
            self._config.min_session_timeout_ms, self._config.max_session_timeout_ms + 1
        )
        if request.session_timeout_ms not in allowed:
            join.refuse(turn, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            return
        group = self._table.shared.groups.get(request.group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER:
                join.refuse(turn, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
                return
            self._join_new_group(turn, join)
        elif isinstance(group, ClassicGroup):
            self._join_group(turn, group, join)
        else:
            join.refuse(turn, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)

    def _join_new_group(self, turn: GroupTurn, join: Join) -> None:
        group = self._rebalancer.new_group(join.request.group_id)
        group.state_since_ms = turn.wall_ms
        self._join_group(turn, group, join)
        record = GroupMetadataRecord(
            GroupMetadataKey(group=group.group_id),
            GroupMetadataValue(
                protocol_type="",
                generation=0,
                protocol=None,
                leader=None,
                current_state_timestamp=turn.wall_ms,
            ),
        )
        turn.write([record], partial(self._new_group_stored, group))

    def _new_group_stored(self, group: ClassicGroup, turn: GroupTurn, error: ErrorCode) -> None:
        if error is ErrorCode.NONE or self._table.find(group.group_id) is not group:
            return
        if group.group_id in self._table.stored:
            return  # appended, but the wait for its commit failed: the group stays
        answer = answer_to_append_error(error)
        turn.log("new_group_not_stored", group=group.group_id, error=answer.name)
        for member in group.members.values():
            if member.join_waiter is not None:
                turn.reply(member.join_waiter, JoinGroupResponse(error_code=answer))
        self._rebalancer.forget_group(group)

    def _join_group(self, turn: GroupTurn, group: ClassicGroup, join: Join) -> None:
        member_id = join.request.member_id
        if not self._has_room(group, member_id):
            member = group.members.get(member_id)
            join.refuse(turn, ErrorCode.GROUP_MAX_SIZE_REACHED)
            if member is not None:
                # Kafka lets the others wait for it until the rebalance timeout
                self._rebalancer.drop_member(group, member, turn)
                self._rebalancer.try_complete(group, turn)
        elif not group.supports(join.request.protocol_type, join.protocols):
            join.refuse(turn, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id != UNKNOWN_MEMBER:
            self._rejoin(turn, group, join)
        elif join.request.group_instance_id is not None:
            if join.request.group_instance_id in group.static_members:
                self._static.replace(turn, group, join)
            else:
                self._add(turn, group, join, join.fresh_id)
        elif join.caller.api_version >= MEMBER_ID_REQUIRED_VERSION:
            session_ms = join.request.session_timeout_ms
            self._rebalancer.add_pending(group, join.fresh_id, session_ms, turn)
            join.refuse(turn, ErrorCode.MEMBER_ID_REQUIRED, join.fresh_id)
        else:
            self._add(turn, group, join, join.fresh_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the member fits into group.max.size.

        During a join phase only members that have joined count. So a group that is too large, as
        the limit was lowered, loses the members that join last.
        """
        member = group.members.get(member_id)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                is_joined = member is not None and member.join_waiter is not None
                return is_joined or group.awaiting_join < self._config.max_size
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < self._config.max_size
            case _:
                return True

    def _rejoin(self, turn: GroupTurn, group: ClassicGroup, join: Join) -> None:
        request = join.request
        member_id = request.member_id
        if member_id in group.pending:
            if request.group_instance_id is not None:
                # only dynamic members get an id in advance; Kafka raises an IllegalStateException
                # here
                join.refuse(turn, ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
                return
            self._rebalancer.drop_pending(group, member_id)
            self._add(turn, group, join, member_id)
            return
        error = group.check_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            join.refuse(turn, error, member_id)
            return
        member = group.members[member_id]
        reason = self._reason_to_rebalance(group, member, join)
        if reason is None:
            # the member may have missed only the response, so send it again
            turn.reply(join.waiter, generation_answer(group, member_id))
            return
        update_member(turn, group, member, join)
        self._rebalancer.prepare_or_complete(
            group, turn, f"{reason}; client: {join.reason}", member_id
        )

    def _reason_to_rebalance(self, group: ClassicGroup, member: Member, join: Join) -> str | None:
        """Why a member that joins again makes the group rebalance, None if it does not."""
        if group.state is GroupState.PREPARING_REBALANCE:
            return f"member {member.member_id} joins again"
        if member.protocols != join.protocols:
            return f"member {member.member_id} joins with other metadata"
        if group.state is GroupState.STABLE and group.leader_id == member.member_id:
            # a leader joins again when it sees, for example, new partitions of a topic
            return f"leader {member.member_id} joins again"
        return None

    def _add(self, turn: GroupTurn, group: ClassicGroup, join: Join, member_id: str) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=join.request.group_instance_id,
            client_id=join.caller.client_id,
            client_host=join.caller.host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.request.session_timeout_ms,
            protocols=join.protocols,
            on_session_deadline=partial(self._rebalancer.session_deadline_passed, group),
            is_new=True,
            join_waiter=join.waiter,
        )
        if group.initial_wait is not None:
            group.initial_wait.member_added = True
        group.add(member, join.request.protocol_type)
        self._rebalancer.start_first_join(member, turn)
        self._rebalancer.prepare_or_complete(
            group, turn, f"new member {member_id}; client: {join.reason}", member_id
        )

    # -- sync

    def sync(self, turn: GroupTurn, request: SyncGroupRequest, waiter: Waiter) -> None:
        """Handle a SyncGroup.

        The leader's request has the assignment, which is stored before it is sent.
        """
        if not request.group_id:
            turn.reply(waiter, SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        group = self._table.find(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else check_sync(group, request)
        if group is None or error is not ErrorCode.NONE:
            turn.reply(waiter, SyncGroupResponse(error_code=error))
            return
        member = group.members[request.member_id]
        if group.state is GroupState.PREPARING_REBALANCE:
            turn.reply(waiter, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is GroupState.STABLE:
            self._rebalancer.synced(group, member)
            turn.reply(waiter, self._rebalancer.assignment_answer(group, member))
        else:
            self._park_sync(turn, member, waiter)
            self._rebalancer.synced(group, member)
            if group.leader_id == member.member_id:
                self._store_assignment(turn, group, request)

    def _park_sync(self, turn: GroupTurn, member: Member, waiter: Waiter) -> None:
        if member.sync_waiter is not None:
            turn.reply(
                member.sync_waiter, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            )
        member.sync_waiter = waiter

    def _store_assignment(
        self, turn: GroupTurn, group: ClassicGroup, request: SyncGroupRequest
    ) -> None:
        assignments = {
            assigned.member_id: bytes(assigned.assignment) for assigned in request.assignments
        }
        left_out = sorted(group.members.keys() - assignments.keys())
        turn.log(
            "assignment_received",
            group=group.group_id,
            generation=group.generation,
            leader=request.member_id,
            members=len(group.members),
            without_assignment=left_out,
        )
        record = self._rebalancer.metadata_record(group, assignments)
        turn.write([record], partial(self._assignment_stored, group, group.generation))

    def _assignment_stored(
        self, group: ClassicGroup, generation: int, turn: GroupTurn, error: ErrorCode
    ) -> None:
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
            return  # another rebalance began meanwhile, and answered the members
        if error is ErrorCode.NONE:
            self._rebalancer.stabilize(group, turn)
        else:
            answer = answer_to_append_error(error)
            self._rebalancer.fail_syncs(group, turn, answer)
            self._rebalancer.prepare(group, turn, f"the assignment was not stored: {answer.name}")

    # -- heartbeat

    def heartbeat(self, turn: GroupTurn, request: HeartbeatRequest) -> HeartbeatResponse:
        """Handle a Heartbeat: extend the session; the response says whether to join again."""
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        group = self._table.find(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and request.generation_id != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return HeartbeatResponse(error_code=error)
        self._rebalancer.start_session(group.members[request.member_id], turn)
        if group.state is GroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    # -- leave

    def leave(self, turn: GroupTurn, request: LeaveGroupRequest, waiter: Waiter) -> None:
        """Handle a LeaveGroup in the form of version 3: several members, each with its own result.

        If the group's new state has to be stored, the reply comes after that.
        """
        if not request.group_id:
            turn.reply(waiter, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        group = self._table.find(request.group_id)
        answers = []
        left = []
        for identity in request.members:
            error = (
                ErrorCode.UNKNOWN_MEMBER_ID
                if group is None
                else self._leave_one(turn, group, identity)
            )
            if error is ErrorCode.NONE:
                left.append(identity.member_id or identity.group_instance_id or "")
            answers.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        if left and group is not None and group.state is not GroupState.EMPTY:
            alone = left[0] if len(left) == 1 else None
            self._rebalancer.prepare_or_complete(group, turn, f"left: {', '.join(left)}", alone)
        response = LeaveGroupResponse(members=answers)
        if turn.writes:
            turn.write([], partial(_answer_leave, waiter, response))
        else:
            turn.reply(waiter, response)

    def _leave_one(
        self, turn: GroupTurn, group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity
    ) -> ErrorCode:
        member_id = identity.member_id
        if member_id == UNKNOWN_MEMBER:
            # an administrator removes a static member by its instance id alone (KIP-345)
            member_id = group.static_members.get(identity.group_instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending:
            self._rebalancer.drop_pending(group, member_id)
            return ErrorCode.NONE
        else:
            error = group.check_member(member_id, identity.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        turn.log(
            "member_left",
            group=group.group_id,
            generation=group.generation,
            member=member_id,
            instance=identity.group_instance_id,
            why=identity.reason or "not provided",
        )
        self._rebalancer.drop_member(group, group.members[member_id], turn)
        return ErrorCode.NONE


def check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    """NONE if a member of the present generation sent it, with the group's protocol or none."""
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in {None, group.protocol_type}:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in {None, group.protocol_name}:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _answer_leave(
    waiter: Waiter, response: LeaveGroupResponse, turn: GroupTurn, error: ErrorCode
) -> None:
    if error is not ErrorCode.NONE:
        response = LeaveGroupResponse(error_code=answer_to_append_error(error))
    turn.reply(waiter, response)
