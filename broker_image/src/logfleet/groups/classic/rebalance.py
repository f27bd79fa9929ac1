"""The rebalance of a classic group: members join, a generation begins, the leader assigns.

Follows Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin, expirePendingSync
...), of which every timer and every answer is visible to clients. Every rebalance and every member
that is removed writes a log line with its reason.
"""

from functools import partial

from logfleet.coordinators.timers import Deadline
from logfleet.coordinators.turn import answer_to_append_error
from logfleet.groups.classic.group import ClassicGroup, GroupState, InitialWait, Member
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.classic.table import ClassicTable
from logfleet.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    JoinGroupResponse,
    SyncGroupResponse,
)


class Rebalancer:
    """The phases of a rebalance and the timers that drive them, for all groups of a table."""

    def __init__(self, table: ClassicTable) -> None:
        self._table = table
        self._config = table.shared.config
        self._timers = table.shared.timers

    # -- making and forgetting groups and members

    def new_group(self, group_id: str) -> ClassicGroup:
        """Add an empty group to the table."""
        group = ClassicGroup(
            group_id,
            on_join_deadline=self._join_deadline_passed,
            on_sync_deadline=self._sync_deadline_passed,
        )
        self._table.shared.groups[group_id] = group
        return group

    def forget_group(self, group: ClassicGroup) -> None:
        """Remove a group and its timers. The caller has answered its parked requests."""
        for member in group.members.values():
            self._timers.cancel(member.session)
        for deadline in group.pending.values():
            self._timers.cancel(deadline)
        self._timers.cancel(group.join_deadline)
        self._timers.cancel(group.sync_deadline)
        del self._table.shared.groups[group.group_id]

    def add_pending(
        self, group: ClassicGroup, member_id: str, session_ms: int, turn: GroupTurn
    ) -> None:
        """Reserve a member id for one session timeout; the member joins again with it (KIP-394)."""
        deadline = Deadline(partial(self._pending_deadline_passed, group, member_id))
        group.pending[member_id] = deadline
        self._timers.schedule(deadline, turn.now_ms + session_ms)

    def drop_pending(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(group.pending.pop(member_id))

    def start_session(self, member: Member, turn: GroupTurn) -> None:
        """The member sent a request: its session timeout starts again."""
        member.start_session(turn, self._timers)

    def start_first_join(self, member: Member, turn: GroupTurn) -> None:
        """Set the deadline of a first join: a member without id cannot send heartbeats."""
        self._timers.schedule(member.session, turn.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def drop_member(self, group: ClassicGroup, member: Member, turn: GroupTurn) -> None:
        """Remove a member.

        Its parked join gets UNKNOWN_MEMBER_ID, so that a live client joins again.
        """
        self._timers.cancel(member.session)
        waiter = group.park_join(member, None)
        if waiter is not None:
            turn.reply(waiter, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if member.sync_waiter is not None:
            turn.reply(
                member.sync_waiter, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            )
            member.sync_waiter = None
        group.remove(member.member_id)

    # -- the join phase

    def prepare_or_complete(
        self, group: ClassicGroup, turn: GroupTurn, reason: str, member_id: str | None = None
    ) -> None:
        """Begin a rebalance, or complete the join phase if all have joined.

        member_id: who caused it.
        """
        if group.can_rebalance():
            self.prepare(group, turn, reason, member_id)
        else:
            self.try_complete(group, turn)

    def prepare(
        self, group: ClassicGroup, turn: GroupTurn, reason: str, member_id: str | None = None
    ) -> None:
        """Begin a rebalance: all members have to join again within the longest rebalance timeout.

        An empty group waits for group.initial.rebalance.delay.ms instead; new members extend it.
        """
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_syncs(group, turn, ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members.values():
                member.assignment = b""
        self._cancel_sync(group)
        is_initial = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, turn.wall_ms)
        turn.log(
            "rebalance_started",
            group=group.group_id,
            generation=group.generation,
            members=len(group.members),
            member=member_id,
            why=reason,
        )
        timeout_ms = group.rebalance_timeout_ms()
        if is_initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            group.initial_wait = InitialWait(delay_ms, max(timeout_ms - delay_ms, 0))
            self._timers.schedule(group.join_deadline, turn.now_ms + delay_ms)
        elif group.everybody_joined():
            self.complete_join(group, turn)
        else:
            self._timers.schedule(group.join_deadline, turn.now_ms + timeout_ms)

    def try_complete(self, group: ClassicGroup, turn: GroupTurn) -> None:
        """End the join phase if all have joined.

        A group's first rebalance always waits its full delay.
        """
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_wait is None
            and group.everybody_joined()
        ):
            self.complete_join(group, turn)

    def complete_join(self, group: ClassicGroup, turn: GroupTurn) -> None:
        """End the join phase with the members that joined, and with all static members."""
        self._timers.cancel(group.join_deadline)
        self._drop_absent(group, turn)
        if not group.elect_joined_leader() and group.members:
            # only static members are left and none has joined: wait for them, or for their sessions
            # to end
            turn.log("rebalance_waits", group=group.group_id, why="no member has joined again")
            self._timers.schedule(group.join_deadline, turn.now_ms + group.rebalance_timeout_ms())
            return
        group.initial_wait = None
        group.next_generation(turn.wall_ms)
        if group.state is GroupState.EMPTY:
            turn.log("group_empty", group=group.group_id, generation=group.generation)
            turn.write([self.metadata_record(group, {})], partial(self._log_if_not_stored, group))
        else:
            self._answer_joins(group, turn)

    def _drop_absent(self, group: ClassicGroup, turn: GroupTurn) -> None:
        absent = [
            member
            for member in group.members.values()
            if member.join_waiter is None and member.group_instance_id is None
        ]
        for member in absent:
            self.drop_member(group, member, turn)
        if absent:
            turn.log(
                "members_dropped",
                group=group.group_id,
                generation=group.generation,
                members=[member.member_id for member in absent],
                why="they did not join again within the rebalance timeout",
            )

    def _answer_joins(self, group: ClassicGroup, turn: GroupTurn) -> None:
        turn.log(
            "generation_formed",
            group=group.group_id,
            generation=group.generation,
            members=len(group.members),
            protocol=group.protocol_name,
            leader=group.leader_id,
        )
        for member in group.members.values():
            waiter = group.park_join(member, None)
            if waiter is not None:
                turn.reply(waiter, generation_answer(group, member.member_id))
            self.start_session(member, turn)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._timers.schedule(group.sync_deadline, turn.now_ms + group.rebalance_timeout_ms())

    # -- the sync phase

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """The member has sent its SyncGroup; once all have, the sync deadline is cancelled."""
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel(group.sync_deadline)

    def fail_syncs(self, group: ClassicGroup, turn: GroupTurn, error: ErrorCode) -> None:
        """Answer all parked syncs with an error: this generation gets no assignment."""
        for member in group.members.values():
            if member.sync_waiter is not None:
                turn.reply(member.sync_waiter, SyncGroupResponse(error_code=error))
                member.sync_waiter = None
                self.start_session(member, turn)

    def stabilize(self, group: ClassicGroup, turn: GroupTurn) -> None:
        """The assignment is stored: send it to the members."""
        group.transition(GroupState.STABLE, turn.wall_ms)
        turn.log("group_stable", group=group.group_id, generation=group.generation)
        for member in group.members.values():
            member.assignment = self._table.assignment(group.group_id, member.member_id)
            if member.sync_waiter is not None:
                turn.reply(member.sync_waiter, self.assignment_answer(group, member))
                member.sync_waiter = None
                # its session deadline may have passed while it was parked
                # (keeps_session_by_waiting)
                self.start_session(member, turn)

    def assignment_answer(self, group: ClassicGroup, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=self._table.assignment(group.group_id, member.member_id),
        )

    def metadata_record(
        self, group: ClassicGroup, assignments: dict[str, bytes]
    ) -> GroupMetadataRecord:
        """The record of the present generation; members without an assignment get an empty one."""
        members = [
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ]
        since_ms = group.state_since_ms
        return GroupMetadataRecord(
            GroupMetadataKey(group=group.group_id),
            GroupMetadataValue(
                protocol_type=group.protocol_type or "",
                generation=group.generation,
                protocol=group.protocol_name,
                leader=group.leader_id,
                current_state_timestamp=-1 if since_ms is None else since_ms,
                members=members,
            ),
        )

    # -- timers

    def session_deadline_passed(self, group: ClassicGroup, member: Member, turn: GroupTurn) -> None:
        """Remove a member that sent nothing for its session timeout."""
        if member.keeps_session_by_waiting():
            return
        turn.log(
            "members_dropped",
            group=group.group_id,
            generation=group.generation,
            members=[member.member_id],
            why=f"no heartbeat within {member.session_timeout_ms} ms",
        )
        self.drop_member(group, member, turn)
        if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            reason = f"member {member.member_id} sent no heartbeat"
            self.prepare(group, turn, reason, member.member_id)
        elif group.state is GroupState.PREPARING_REBALANCE and group.everybody_joined():
            self.complete_join(group, turn)

    def _pending_deadline_passed(
        self, group: ClassicGroup, member_id: str, turn: GroupTurn
    ) -> None:
        del group.pending[member_id]
        turn.log(
            "pending_member_dropped",
            group=group.group_id,
            member=member_id,
            why="it did not join with the id it was given within its session timeout",
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.everybody_joined():
            self.complete_join(group, turn)

    def _join_deadline_passed(self, group: ClassicGroup, turn: GroupTurn) -> None:
        wait = group.initial_wait
        if wait is not None and wait.member_added and wait.remaining_ms > 0:
            wait.member_added = False
            delay_ms = min(self._config.initial_rebalance_delay_ms, wait.remaining_ms)
            wait.remaining_ms = max(wait.remaining_ms - wait.delay_ms, 0)
            wait.delay_ms = delay_ms
            self._timers.schedule(group.join_deadline, turn.now_ms + delay_ms)
        else:
            self.complete_join(group, turn)

    def _sync_deadline_passed(self, group: ClassicGroup, turn: GroupTurn) -> None:
        assert group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        late = sorted(group.pending_sync)
        for member_id in late:
            self.drop_member(group, group.members[member_id], turn)
        turn.log(
            "members_dropped",
            group=group.group_id,
            generation=group.generation,
            members=late,
            why="they did not ask for their assignment within the rebalance timeout",
        )
        self.prepare(group, turn, f"{len(late)} members did not ask for their assignment")

    def _cancel_sync(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        self._timers.cancel(group.sync_deadline)

    def _log_if_not_stored(self, group: ClassicGroup, turn: GroupTurn, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            # harmless: after a failover the last stored generation is loaded, and its members time
            # out
            turn.log(
                "empty_group_not_stored",
                group=group.group_id,
                error=answer_to_append_error(error).name,
            )


def generation_answer(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The present generation, as a JoinGroup response; the leader's also lists the members."""
    assert group.state not in {GroupState.DEAD, GroupState.PREPARING_REBALANCE}
    members = []
    if group.leader_id == member_id:
        members = [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=members,
    )
