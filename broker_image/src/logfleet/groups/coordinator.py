"""The coordinator of the groups in one partition of `__consumer_offsets`.

`logfleet.coordinators.coordinator` describes its life: it gets every record of the partition's log,
then `take_up`, then requests. Each request is a decision that adds records, replies and log lines
to a turn. Only records and markers change the stored state, by one code while loading and
afterwards (`replay`).

Offsets and the administration of groups are the same for all kinds of groups; each kind handles the
requests of its members. Upholds I15 (`offsets`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from logfleet.coordinators.coordinator import Coordinator
from logfleet.coordinators.turn import Waiter
from logfleet.groups.administration import Administration
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.config import GroupConfig
from logfleet.groups.expiry import OffsetExpiry
from logfleet.groups.group import Group
from logfleet.groups.kind import GroupKind, Groups
from logfleet.groups.offsets import OffsetCommits
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.registry import KINDS, Kinds
from logfleet.groups.replay import Replay
from logfleet.groups.table import GroupTable
from logfleet.groups.topic_removal import TopicRemoval
from logfleet.groups.transactional import TransactionalCommits
from logfleet.groups.turn import GroupTurn
from logfleet.wire.messages import (
    DescribeGroupsResponse,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)

G = TypeVar("G", bound=Groups)

EXPIRIES_PER_TICK = 200
"""Deadlines handled in one turn, about 10 us each.

Each may remove a member and start a rebalance.
"""


class GroupCoordinator(Coordinator[GroupRecord]):
    """All groups of one partition. kinds: CLASSIC among them."""

    def __init__(self, config: GroupConfig, kinds: Kinds = KINDS) -> None:
        self._table = GroupTable(config)
        self._offsets = OffsetCommits(self._table)
        self._transactional = TransactionalCommits(self._table)
        self._administration = Administration(self._table, self._offsets)
        self.expiry = OffsetExpiry(self._table)
        self.removal = TopicRemoval(self._table)
        self._replay = Replay(self._apply, self._table.staged, self._add_group)
        self._of_kind: dict[GroupKind[Any], Groups] = {
            kind: kind.open(self._table) for kind in kinds
        }
        self._appliers: dict[type[GroupRecord], Callable[[Any], None]] = {
            record_type.record: groups.apply
            for kind, groups in self._of_kind.items()
            for record_type in kind.records
        }
        self._appliers[OffsetRecord] = self._apply_offset

    def of(self, kind: GroupKind[G]) -> G:
        """The groups of one kind: they handle the requests of its members."""
        groups: Any = self._of_kind[kind]
        found: G = groups
        return found

    # -- records of the log

    @property
    def topics_read(self) -> set[tuple[str, bytes]]:
        """Name and id of each topic whose offsets were found in the log; see `Replay.topics`."""
        return self._replay.topics

    def apply(self, record: GroupRecord) -> None:
        self._replay.apply(record)

    def replay(self, record: GroupRecord, log_offset: int, producer_id: int | None) -> None:
        self._replay.read(record, log_offset, producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self._replay.end_transaction(producer_id, is_commit=is_commit)

    def _apply(self, record: GroupRecord) -> None:
        self._appliers[type(record)](record)

    def _add_group(self, group_id: str) -> None:
        """An offset is stored for a group: it exists, with or without members."""
        if group_id not in self._table.groups:
            self.of(CLASSIC).add_simple(group_id)

    def _apply_offset(self, record: OffsetRecord) -> None:
        key, value = record.key, record.value
        topics = self._table.offsets
        if value is not None:
            partitions = topics.setdefault(key.group, {}).setdefault(key.topic, {})
            partitions[key.partition] = value
            self._add_group(key.group)
            return
        offsets = topics.get(key.group, {})
        partitions = offsets.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            offsets.pop(key.topic, None)
        if not offsets:
            topics.pop(key.group, None)

    def take_up(self, begin_turn: Callable[[], GroupTurn]) -> Iterator[GroupTurn]:
        """Activate the stored groups of all kinds, each group in a turn."""
        for groups in self._of_kind.values():
            yield from groups.take_up(begin_turn)
        if self._table.groups:
            turn = begin_turn()
            turn.log(
                "groups_loaded",
                groups=len(self._table.groups),
                with_offsets=len(self._table.offsets),
            )
            yield turn

    def unload(self, turn: GroupTurn) -> None:
        """This broker is no longer the coordinator: parked requests get NOT_COORDINATOR."""
        for group in self._table.groups.values():
            group.unload(turn)
        if self._table.groups:
            turn.log("groups_unloaded", groups=len(self._table.groups))
        self._table.groups.clear()
        self._table.timers.clear()

    # -- time

    def next_deadline_ms(self) -> int | None:
        return self._table.timers.next_ms()

    def tick(self, turn: GroupTurn) -> None:
        """Handle deadlines that have passed, as those of sessions and of rebalances.

        At most EXPIRIES_PER_TICK of them; the rest stays due (`next_deadline_ms`). A network
        partition can end thousands of sessions at once.
        """
        self._table.timers.expire_until(turn.now_ms, turn, EXPIRIES_PER_TICK)

    # -- offsets

    def commit(
        self, turn: GroupTurn, request: OffsetCommitRequest, api_version: int, waiter: Waiter
    ) -> None:
        self._offsets.commit(turn, request, api_version, waiter)

    def commit_in_transaction(
        self, turn: GroupTurn, request: TxnOffsetCommitRequest, api_version: int, waiter: Waiter
    ) -> None:
        self._transactional.commit(turn, request, api_version, waiter)

    def fetch(
        self,
        turn: GroupTurn,
        request: OffsetFetchRequest.OffsetFetchRequestGroup,
        waiter: Waiter,
        *,
        require_stable: bool = False,
    ) -> None:
        self._offsets.fetch(turn, request, waiter, require_stable=require_stable)

    def delete_offsets(self, turn: GroupTurn, request: OffsetDeleteRequest, waiter: Waiter) -> None:
        self._offsets.delete(turn, request, waiter)

    def committed_offsets(self) -> Iterator[tuple[str, str, int, OffsetCommitValue]]:
        """(Group, topic, partition, committed offset) of all.

        Groups may change during the iteration.
        """
        return self._offsets.walk()

    # -- administration

    def groups(self) -> list[Group]:
        """All groups; live objects that keep changing."""
        return list(self._table.groups.values())

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> list[ListGroupsResponse.ListedGroup]:
        return self._administration.list_groups(states, types)

    def describe(self, group_id: str, api_version: int) -> DescribeGroupsResponse.DescribedGroup:
        return self._administration.describe(group_id, api_version)

    def delete(self, turn: GroupTurn, group_ids: Sequence[str], waiter: Waiter) -> None:
        self._administration.delete(turn, group_ids, waiter)
