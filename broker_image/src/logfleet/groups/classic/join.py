"""A request to join a group, with everything its handling needs."""

from dataclasses import dataclass

from logfleet.coordinators.turn import Waiter
from logfleet.groups.classic.group import ClassicGroup, Member, Protocol
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import JoinGroupRequest, JoinGroupResponse

UNKNOWN_MEMBER = ""
"""The member id of a member without one (JoinGroupRequest.UNKNOWN_MEMBER_ID)."""
MEMBER_ID_REQUIRED_VERSION = 4
"""Since this version of JoinGroup a dynamic member joins in two steps (KIP-394)."""
SKIP_ASSIGNMENT_VERSION = 9
"""Since this version of JoinGroup a static leader can skip the assignment (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. host: as Kafka writes it into the group, a slash and the address."""

    client_id: str
    host: str
    api_version: int


@dataclass(frozen=True, slots=True)
class Join:
    """A join request with its context.

    fresh_id: the member's id if it needs a new one; unique, made by the shell.
    """

    request: JoinGroupRequest
    protocols: tuple[Protocol, ...]
    caller: Caller
    waiter: Waiter
    fresh_id: str

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has no such field: the session timeout counts."""
        if self.caller.api_version == 0:
            return self.request.session_timeout_ms
        return self.request.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return self.request.reason or "not provided"

    def refuse(self, turn: GroupTurn, error: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> None:
        turn.reply(self.waiter, JoinGroupResponse(member_id=member_id, error_code=error))


def protocols_of(request: JoinGroupRequest) -> tuple[Protocol, ...]:
    """The protocols in the member's order of preference; of two with the same name the first."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(protocols.items())


def update_member(turn: GroupTurn, group: ClassicGroup, member: Member, join: Join) -> None:
    """Update a member that joins again from its request, and park its join."""
    group.change_protocols(member, join.protocols)
    member.rebalance_timeout_ms = join.rebalance_timeout_ms
    member.session_timeout_ms = join.request.session_timeout_ms
    replaced = group.park_join(member, join.waiter)
    if replaced is not None:
        # the client no longer waits for that response, but its connection may
        turn.reply(
            replaced,
            JoinGroupResponse(
                member_id=member.member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS
            ),
        )
