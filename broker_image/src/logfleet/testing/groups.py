"""A consumer group, as a test sees it."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

TIMEOUT_S: Final = 10.0


class GroupMember(msgspec.Struct, frozen=True):
    """A member. instance_id: of a static one, else None. assignment: partitions by topic."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: dict[str, list[int]]


class GroupState(msgspec.Struct, frozen=True):
    """A group at one moment. state: Kafka's name; "Stable" once all members have partitions."""

    state: str
    members: tuple[GroupMember, ...]


class Group:
    """A consumer group of a cluster. Methods raise OrderFailed.

    ask: has the tests' client ask the cluster. disturb: orders something from its coordinator.
    """

    def __init__(self, name: str, ask: Callable[..., Any], disturb: Callable[..., Any]) -> None:
        self.name = name
        self._ask = ask
        self._disturb = disturb

    def wait(
        self,
        state: str | None = "Stable",
        members: int | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> GroupState:
        """The group, once it is in this state and has so many members; None for any."""
        found = self._ask("group", timeout_s, group=self.name, state=state, members=members)
        return msgspec.convert(found, GroupState)

    def committed(
        self, topic: str, partition: int = 0, *, timeout_s: float = TIMEOUT_S
    ) -> int | None:
        """The offset that the group has committed, None if there is none."""
        found: int | None = self._ask(
            "committed", timeout_s, group=self.name, topic=topic, partition=partition
        )
        return found

    def rebalance(self) -> None:
        """Have all members join again; each learns of it with its next heartbeat."""
        self._disturb("rebalance", group=self.name)

    def expire_member(self, member: str | None = None) -> str:
        """End the session of a member, as if it had sent no heartbeat; its member id.

        member: its member id or its client id; None for any.
        """
        expired: str = self._disturb("expire_member", group=self.name, member=member)
        return expired
