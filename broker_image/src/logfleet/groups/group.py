"""What all kinds of groups are to their coordinator.

Offsets, expiry and the administration of groups know a group only by this. Source: Kafka's Group
(org.apache.kafka.coordinator.group.Group).
"""

from typing import Protocol

from logfleet.coordinators.timers import Timers
from logfleet.groups.records import GroupRecord
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)


class Group(Protocol):
    """A group in its coordinator's memory. The checks return NONE if the request is allowed."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> str:
        """The type that ListGroups reports (KIP-848)."""

    @property
    def protocol_type(self) -> str | None:
        """What its members agree on, as "consumer"; None if it never had members."""

    @property
    def state_name(self) -> str:
        """The state that ListGroups and DescribeGroups report."""

    def described(self) -> DescribeGroupsResponse.DescribedGroup:
        """The group in a DescribeGroups response."""

    # -- offsets

    def check_commit(self, request: OffsetCommitRequest, api_version: int, /) -> ErrorCode:
        """Whether the client may commit offsets."""

    def check_transactional_commit(
        self, request: TxnOffsetCommitRequest, api_version: int, /
    ) -> ErrorCode:
        """Whether the client may commit offsets in a transaction."""

    def record_commit(self, member_id: str, turn: GroupTurn, timers: Timers[GroupTurn], /) -> None:
        """A commit of this member was accepted; empty if it is no member."""

    def check_fetch(self, request: OffsetFetchRequest.OffsetFetchRequestGroup, /) -> ErrorCode:
        """Whether the client may fetch committed offsets."""

    def check_offset_delete(self) -> ErrorCode:
        """Whether offsets of topics without a subscription may be deleted."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether members may read the topic: its offsets stay."""

    def retention_begins(self, value: OffsetCommitValue) -> int | None:
        """When the retention of a committed offset begins (KIP-211), by the wall clock, in ms.

        None: not in the group's present state. Source: Group.offsetExpirationCondition.
        """

    # -- the end of a group

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted."""

    def may_expire(self) -> bool:
        """Whether the group is removed with its last offset."""

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete the group itself; its offsets have their own."""

    def unload(self, turn: GroupTurn) -> None:
        """This broker is no longer the coordinator: refuse parked requests."""
