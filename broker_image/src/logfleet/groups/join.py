"""A request to join a group, as the parts that handle it see it."""

from dataclasses import dataclass

from logfleet.groups.classic import ClassicGroup, Member, Protocol
from logfleet.groups.turn import Turn, Waiter
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import JoinGroupRequest, JoinGroupResponse

UNKNOWN_MEMBER = ""
"""The member id of one who has none yet (JoinGroupRequest.UNKNOWN_MEMBER_ID)."""
KNOWN_ID_VERSION = 4
"""From this version of JoinGroup on a dynamic member joins in two steps (KIP-394)."""
SKIP_ASSIGNMENT_VERSION = 9
"""From this version of JoinGroup on a static leader can be told to keep the assignment (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. host as Kafka writes it into the group: a slash, then the address."""

    client_id: str
    host: str
    api_version: int


@dataclass(frozen=True, slots=True)
class Join:
    """A join request with all that belongs to it.

    fresh_id: what the member will be called if it gets a new id; unique, chosen by the shell.
    """

    request: JoinGroupRequest
    protocols: tuple[Protocol, ...]
    caller: Caller
    waiter: Waiter
    fresh_id: str

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has no such field; there the session timeout is meant."""
        if self.caller.api_version == 0:
            return self.request.session_timeout_ms
        return self.request.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return self.request.reason or "not provided"

    def refuse(self, turn: Turn, error: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> None:
        turn.reply(self.waiter, JoinGroupResponse(member_id=member_id, error_code=error))


def protocols_of(request: JoinGroupRequest) -> tuple[Protocol, ...]:
    """The protocols in the member's order of preference; of two with one name the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(protocols.items())


def update_member(turn: Turn, group: ClassicGroup, member: Member, join: Join) -> None:
    """Take over what a member says of itself when it joins again, and park its join."""
    group.change_protocols(member, join.protocols)
    member.rebalance_timeout_ms = join.rebalance_timeout_ms
    member.session_timeout_ms = join.request.session_timeout_ms
    replaced = group.park_join(member, join.waiter)
    if replaced is not None:
        # The client has given up waiting for that answer, but its connection may still wait.
        turn.reply(
            replaced,
            JoinGroupResponse(
                member_id=member.member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS
            ),
        )
