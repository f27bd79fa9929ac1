"""Offset retention (KIP-211): unused offsets expire, and a group expires with its last offset.

An offset's retention begins

- in a group whose consumers have left: when the group became empty. The group's record holds that
  time, so a restart or another coordinator does not start it again;
- in a group that only commits (its consumer assigns its own partitions): at the commit;
- in a stable group of consumers: at the commit, but only for topics without a subscription.

A commit with its own retention (OffsetCommit v2 to v4) expires by that. Groups of other protocol
types keep all offsets while they have members (`Group.retention_begins`). An offset that an open
transaction may change does not expire, nor does its group. Source:
OffsetMetadataManager.cleanupExpiredOffsets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from logfleet.groups.group import Group
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue

CHECKED_PER_STEP: Final = 2_000
"""Offsets and groups checked in one step, under a microsecond each."""
REMOVED_PER_STEP: Final = 100
"""Tombstones written in one step, about 15 us each; the last piece may exceed it."""
PARTITIONS_PER_PIECE: Final = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """Some offsets of one topic in one group. topic: None after the group's last offset."""

    group_id: str
    topic: str | None
    partitions: list[int]


def pieces(table: GroupTable) -> Iterator[Piece]:
    """All committed and staged offsets, in pieces.

    It may yield old values, and skip offsets that are new.
    """
    offsets = table.offsets
    for group_id in list(table.groups):
        staged: dict[str, dict[int, None]] = {}
        for topic, number in table.staged.partitions(group_id):
            staged.setdefault(topic, {})[number] = None
        for topic in list(offsets.get(group_id, {}) | staged):
            partitions = list(offsets.get(group_id, {}).get(topic, {}) | staged.get(topic, {}))
            for at in range(0, len(partitions), PARTITIONS_PER_PIECE):
                yield Piece(group_id, topic, partitions[at : at + PARTITIONS_PER_PIECE])
        yield Piece(group_id, None, [])


class OffsetExpiry:
    """Checks all groups of a table in rounds; each step is short enough for an event loop."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._round: Iterator[Piece] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a round has not ended. Call it after the step's turn was executed."""
        return self._round is not None

    def step(self, turn: GroupTurn) -> None:
        """Write tombstones for the expired ones among the next offsets.

        The first step begins a round.

        Groups may change between steps: each step checks their current state. A failed write ends
        the round; the next round finds the same offsets.
        """
        if self._round is None:
            self._round = pieces(self._table)
        expired: dict[str, list[GroupRecord]] = {}
        gone: list[str] = []
        checked = removed = 0
        for piece in self._round:
            if piece.topic is not None:
                found = self._expired(turn, piece.group_id, piece.topic, piece.partitions)
                if found:
                    expired.setdefault(piece.group_id, []).extend(found)
            elif self._is_over(piece.group_id, len(expired.get(piece.group_id, ()))):
                gone.append(piece.group_id)
            checked += len(piece.partitions) or 1
            removed = sum(map(len, expired.values())) + len(gone)
            if checked >= CHECKED_PER_STEP or removed >= REMOVED_PER_STEP:
                break
        else:
            self._round = None
        if removed:
            self._write(turn, expired, gone)

    def _expired(
        self, turn: GroupTurn, group_id: str, topic: str, partitions: list[int]
    ) -> list[GroupRecord]:
        group = self._table.groups.get(group_id)
        committed = self._table.offsets.get(group_id, {}).get(topic, {})
        if group is None:
            return []
        retention_ms = self._table.config.offsets_retention_ms
        expired = [
            number
            for number in partitions
            if (value := committed.get(number)) is not None
            and is_expired(group, value, turn.wall_ms, retention_ms)
            and not self._table.staged.is_staged(group_id, topic, number)
        ]
        if not expired or group.is_subscribed(topic):
            return []
        return [
            OffsetRecord(OffsetCommitKey(group=group_id, topic=topic, partition=number), None)
            for number in expired
        ]

    def _is_over(self, group_id: str, removed: int) -> bool:
        """Whether a group expires: it has neither members nor offsets, staged ones included.

        removed: offsets that this step removes.
        """
        group = self._table.groups.get(group_id)
        if group is None or not group.may_expire() or self._table.staged.has_group(group_id):
            return False
        return removed == sum(map(len, self._table.offsets.get(group_id, {}).values()))

    def _write(
        self, turn: GroupTurn, expired: dict[str, list[GroupRecord]], gone: list[str]
    ) -> None:
        records = [record for found in expired.values() for record in found]
        then = partial(self._written, len(records), list(expired), gone)
        for group_id in gone:
            records += self._table.groups[group_id].tombstones()
        turn.write(records, then)

    def _written(
        self, offsets: int, groups: list[str], gone: list[str], turn: GroupTurn, error: ErrorCode
    ) -> None:
        if error is not ErrorCode.NONE:
            self._round = None
            turn.log("expired_offsets_not_removed", error=error.name)
            return
        turn.log(
            "offsets_expired",
            offsets=offsets,
            groups=groups,
            groups_removed=gone,
            why=f"not used for {self._table.config.offsets_retention_ms} ms, "
            "or past the retention of their commit",
        )


def is_expired(group: Group, value: OffsetCommitValue, now_ms: int, retention_ms: int) -> bool:
    """Whether an offset has expired, given that no member subscribes to its topic.

    now_ms: wall clock.
    """
    begins_ms = group.retention_begins(value)
    if begins_ms is None:
        return False
    if value.expire_timestamp != -1:
        return now_ms >= value.expire_timestamp
    return now_ms - begins_ms >= retention_ms
