"""A classic consumer group in its coordinator's memory: members, protocols, state.

Nothing here is replicated. Only the last generation that the group's leader stored survives a
coordinator, as a GroupMetadata record (`logfleet.groups.classic.groups`). A rebalance that has not
got that far is lost with the coordinator, and the members join again. The state machine is that of
Kafka's ClassicGroup:

    EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE
                  ^  (join again)        |                    |
                  +----------------------+--------------------+    DEAD: unloaded or deleted
"""

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum
from functools import partial

from logfleet.coordinators.timers import Deadline, Timers
from logfleet.coordinators.turn import Waiter
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.records import GroupRecord
from logfleet.groups.turn import GroupTurn
from logfleet.wire.consumer_protocol import PROTOCOL_TYPE, read_subscription
from logfleet.wire.errors import ErrorCode, MalformedMessage
from logfleet.wire.messages import (
    DescribeGroupsResponse,
    GroupMetadataKey,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetFetchRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
)

CLASSIC_TYPE = "classic"
"""The type that ListGroups reports for these groups."""
CONSUMER_PROTOCOL_TYPE = "consumer"
"""Protocol type of consumers with a client-side assignor; Kafka Connect workers use "connect"."""

Protocol = tuple[str, bytes]
"""(Name of an assignment strategy, the member's metadata for the leader that assigns by it)."""


class GroupState(Enum):
    """States, by their names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}
"""Source: ClassicGroupState.validPreviousStates."""


@dataclass(slots=True, eq=False)
class Member:
    """One member. `join_waiter` and `sync_waiter` are its parked requests, or None.

    assignment: its newest assignment, for DescribeGroups; empty if a generation ended without one.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    on_session_deadline: InitVar[Callable[["Member", GroupTurn], None]]
    is_new: bool = False
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None
    assignment: bytes = b""
    session: Deadline[GroupTurn] = field(init=False)

    def __post_init__(self, on_session_deadline: Callable[["Member", GroupTurn], None]) -> None:
        self.session = Deadline(partial(on_session_deadline, self))

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol. Raises AssertionError if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol}")

    def vote(self, candidates: set[str]) -> str:
        """The first of the member's protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def start_session(self, turn: GroupTurn, timers: Timers[GroupTurn]) -> None:
        """The member sent a request: its session timeout starts again."""
        timers.schedule(self.session, turn.now_ms + self.session_timeout_ms)

    def keeps_session_by_waiting(self) -> bool:
        """Whether the member stays although its session deadline has passed.

        A member with a parked request cannot send heartbeats (one request per connection at a
        time). A new member is removed even so: its client may have given up and joined under
        another id.
        """
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)


@dataclass(slots=True)
class InitialWait:
    """The initial delay of an empty group's first rebalance, for more members to join (KIP-134).

    delay_ms: the current wait. remaining_ms: how much longer it may become.
    """

    delay_ms: int
    remaining_ms: int
    member_added: bool = False


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """The members of a group, its protocol and its state: a `Group`.

    Only `rebalance` and `membership` change it.

    generation: counts completed rebalances, never decreases (I14). pending: ids that were sent with
    MEMBER_ID_REQUIRED and not used yet. state_since_ms: wall clock, None if the record lacks it.
    """

    group_id: str
    on_join_deadline: InitVar[Callable[["ClassicGroup", GroupTurn], None]]
    on_sync_deadline: InitVar[Callable[["ClassicGroup", GroupTurn], None]]
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    state_since_ms: int | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation: int = 0
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending: dict[str, Deadline[GroupTurn]] = field(default_factory=dict)
    pending_sync: set[str] = field(default_factory=set)
    awaiting_join: int = 0
    initial_wait: InitialWait | None = None
    join_deadline: Deadline[GroupTurn] = field(init=False)
    sync_deadline: Deadline[GroupTurn] = field(init=False)
    _supporters: dict[str, int] = field(default_factory=dict)
    _subscribed: frozenset[str] | None = None

    def __post_init__(
        self,
        on_join_deadline: Callable[["ClassicGroup", GroupTurn], None],
        on_sync_deadline: Callable[["ClassicGroup", GroupTurn], None],
    ) -> None:
        self.join_deadline = Deadline(partial(on_join_deadline, self))
        self.sync_deadline = Deadline(partial(on_sync_deadline, self))

    # -- as a Group

    @property
    def type(self) -> str:
        return CLASSIC_TYPE

    @property
    def state_name(self) -> str:
        return self.state.value

    def described(self) -> DescribeGroupsResponse.DescribedGroup:
        """The group with its members; their subscriptions only while it is stable."""
        stable = self.state is GroupState.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol_name or "") if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(self.protocol_name) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def check_commit(self, request: OffsetCommitRequest, _api_version: int, /) -> ErrorCode:
        """NONE for a member of the present generation, or for a client outside an empty group.

        A commit of an older generation is refused (I14): after a rebalance another member may own
        the partition. Source: ClassicGroup.validateOffsetCommit.
        """
        if request.generation_id_or_member_epoch < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._check_committer(request)
        if error is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            # the member has the new generation but no assignment yet: make it rejoin, not fail
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_transactional_commit(
        self, request: TxnOffsetCommitRequest, _api_version: int, /
    ) -> ErrorCode:
        """As `check_commit`, but in any state, and a client need not be a member (before v3)."""
        if request.generation_id_or_member_epoch < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        return self._check_committer(request) or ErrorCode.NONE

    def _check_committer(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest
    ) -> ErrorCode | None:
        """Whether a commit is that of a member of the present generation; None: of no member."""
        generation = request.generation_id_or_member_epoch
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            return None
        error = self.check_member(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def record_commit(self, member_id: str, turn: GroupTurn, timers: Timers[GroupTurn], /) -> None:
        """A commit counts as a heartbeat."""
        if self.state in {GroupState.STABLE, GroupState.PREPARING_REBALANCE}:
            self.members[member_id].start_session(turn, timers)

    def check_fetch(self, _request: OffsetFetchRequest.OffsetFetchRequestGroup, /) -> ErrorCode:
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """Groups of other types than "consumer" keep all offsets while they have members."""
        is_allowed = self.state is GroupState.EMPTY or self.protocol_type == PROTOCOL_TYPE
        return ErrorCode.NONE if is_allowed else ErrorCode.NON_EMPTY_GROUP

    def retention_begins(self, value: OffsetCommitValue) -> int | None:
        """See `logfleet.groups.expiry`. Records from before Kafka 2.1 lack `state_since_ms`."""
        if self.protocol_type is None:
            return value.commit_timestamp
        if self.state is GroupState.EMPTY:
            return value.commit_timestamp if self.state_since_ms is None else self.state_since_ms
        if self.state is GroupState.STABLE and self.protocol_type == PROTOCOL_TYPE:
            return value.commit_timestamp
        return None

    def check_delete(self) -> ErrorCode:
        is_empty = self.state is GroupState.EMPTY
        return ErrorCode.NONE if is_empty else ErrorCode.NON_EMPTY_GROUP

    def may_expire(self) -> bool:
        """An empty group expires, unless it has just sent a member its id (KIP-394).

        Kafka removes that group too; its member would have to join again.
        """
        return self.state is GroupState.EMPTY and not self.pending

    def tombstones(self) -> list[GroupRecord]:
        return [GroupMetadataRecord(GroupMetadataKey(group=self.group_id), None)]

    def unload(self, turn: GroupTurn) -> None:
        for member in self.members.values():
            waiter = self.park_join(member, None)
            if waiter is not None:
                turn.reply(
                    waiter,
                    JoinGroupResponse(
                        member_id=member.member_id, error_code=ErrorCode.NOT_COORDINATOR
                    ),
                )
            if member.sync_waiter is not None:
                turn.reply(
                    member.sync_waiter, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
                )
                member.sync_waiter = None
        self.transition(GroupState.DEAD, turn.wall_ms)

    # -- state

    def transition(self, state: GroupState, wall_ms: int) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = wall_ms

    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def everybody_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending

    # -- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member. The caller has checked that all members still share a protocol."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.join_waiter is not None:
            self.awaiting_join += 1

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; if it was the leader another one is.

        The caller has answered its parked requests.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.join_waiter is not None:
                self.awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync.discard(member_id)
        return member

    def replace_id(self, member: Member, new_id: str) -> None:
        """Give a static member the id of its new incarnation; everything else stays (KIP-345)."""
        assert member.group_instance_id is not None
        assert member.join_waiter is None
        assert member.sync_waiter is None
        old_id = member.member_id
        member.member_id = new_id
        del self.members[old_id]
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.static_members[member.group_instance_id] = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)

    def change_protocols(self, member: Member, protocols: Sequence[Protocol]) -> None:
        self._count(member, -1)
        member.protocols = tuple(protocols)
        self._count(member, 1)

    def park_join(self, member: Member, waiter: Waiter | None) -> Waiter | None:
        """Park a join request (None: unpark). Returns the one that was parked before."""
        before = member.join_waiter
        member.join_waiter = waiter
        self.awaiting_join += (waiter is not None) - (before is not None)
        return before

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE if both ids belong to one member.

        FENCED_INSTANCE_ID if another member has the instance id.
        """
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader. False if none has joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_waiter is not None:
            return True
        joined = (
            member_id
            for member_id, member in self.members.items()
            if member.join_waiter is not None
        )
        successor = next(joined, None)
        if successor is None:
            return False
        self.leader_id = successor
        return True

    # -- protocols

    def supports(self, protocol_type: str, protocols: Collection[Protocol]) -> bool:
        """Whether a member with these protocols shares a protocol with all present members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == size for name, _ in protocols
        )

    def is_subscribed(self, topic: str) -> bool:
        """Whether the last generation subscribes to the topic.

        True if a subscription is unreadable.

        Members that join the current rebalance do not count: they may not support the protocol of
        the last generation. Source: ClassicGroup.isSubscribedToTopic.
        """
        if self._subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE and bool(self.members)
        return topic in self._subscribed

    def record_subscriptions(self) -> None:
        """Record the topics of a new generation. Called when it has a protocol, and after loading.

        Source: ClassicGroup.computeSubscribedTopics.
        """
        self._subscribed = None
        if self.protocol_type != PROTOCOL_TYPE:
            return
        # an unreadable subscription may name any topic: leave None
        with contextlib.suppress(MalformedMessage):
            self._subscribed = frozenset(
                topic
                for member in self.members.values()
                for topic in read_subscription(member.metadata(self.protocol_name))
            )

    def select_protocol(self) -> str:
        """Choose the protocol with most votes among those that all members support.

        On a tie the first voted for.
        """
        candidates = {
            name for name, count in self._supporters.items() if count == len(self.members)
        }
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def next_generation(self, wall_ms: int) -> None:
        """End the join phase: wait for the leader's assignment; without members become empty."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.transition(GroupState.EMPTY, wall_ms)
        self.record_subscriptions()

    def _count(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
