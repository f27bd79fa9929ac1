"""Offset retention (KIP-211): offsets that nobody uses any more go, and with the last of them their group.

An offset's retention begins

- in a group that consumers were in and have left: when the group became empty. That moment stands in the group's record,
  so that a restart or another coordinator does not begin anew;
- in a group that only ever committed (a consumer that assigns itself its partitions): at the commit;
- in a stable group of consumers: at the commit, but only for topics that no member is subscribed to.

A commit that came with a retention of its own (OffsetCommit v2 to v4) expires by that. Groups of another kind than consumers keep
all offsets while they have members. Source: ClassicGroup.offsetExpirationCondition, OffsetMetadataManager.cleanupExpiredOffsets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from logfleet.groups.classic import ClassicGroup, GroupState
from logfleet.groups.records import GroupMetadataRecord, GroupRecord, OffsetRecord
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import Turn
from logfleet.wire.consumer_protocol import PROTOCOL_TYPE
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue

LOOKED_AT_PER_STEP: Final = 2_000
"""Offsets and groups looked at in one step, under a microsecond each."""
REMOVED_PER_STEP: Final = 100
"""Records written in one step, some 15 us each; at most PARTITIONS_PER_PIECE more."""
PARTITIONS_PER_PIECE: Final = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """Some offsets of one topic in one group; topic None: all of the group's were looked at."""

    group_id: str
    topic: str | None
    partitions: list[int]


def pieces(table: GroupTable) -> Iterator[Piece]:
    """All that is committed, piece by piece; what changes in between may be told as it was, what is new may be left out."""
    offsets = table.offsets
    for group_id in list(table.groups):
        for topic in list(offsets.get(group_id, ())):
            partitions = list(offsets.get(group_id, {}).get(topic, ()))
            for at in range(0, len(partitions), PARTITIONS_PER_PIECE):
                yield Piece(group_id, topic, partitions[at : at + PARTITIONS_PER_PIECE])
        yield Piece(group_id, None, [])


class OffsetExpiry:
    """Walks over the groups of a table, round after round, in steps short enough for an event loop."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._round: Iterator[Piece] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a round is not over; to be asked once the turn of a step was executed."""
        return self._round is not None

    def step(self, turn: Turn) -> None:
        """Write the tombstones of what has expired among the next offsets; the first step of all begins a round.

        What happens between two steps is no matter: each looks at the groups as they are. Records that cannot be written end the
        round; the next one finds the same offsets.
        """
        if self._round is None:
            self._round = pieces(self._table)
        expired: dict[str, list[GroupRecord]] = {}
        gone: list[str] = []
        looked_at = removed = 0
        for piece in self._round:
            if piece.topic is not None:
                found = self._expired(turn, piece.group_id, piece.topic, piece.partitions)
                if found:
                    expired.setdefault(piece.group_id, []).extend(found)
            elif self._is_over(piece.group_id, len(expired.get(piece.group_id, ()))):
                gone.append(piece.group_id)
            looked_at += len(piece.partitions) or 1
            removed = sum(map(len, expired.values())) + len(gone)
            if looked_at >= LOOKED_AT_PER_STEP or removed >= REMOVED_PER_STEP:
                break
        else:
            self._round = None
        if removed:
            self._write(turn, expired, gone)

    def _expired(
        self, turn: Turn, group_id: str, topic: str, partitions: list[int]
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
        ]
        if not expired or group.is_subscribed(topic):
            return []
        return [
            OffsetRecord(OffsetCommitKey(group=group_id, topic=topic, partition=number), None)
            for number in expired
        ]

    def _is_over(self, group_id: str, removed: int) -> bool:
        """Whether a group can go: without members and offsets. removed: offsets of it that this step removes.

        Kafka also removes one that has just given a member its id (KIP-394); that member would have to begin anew.
        """
        group = self._table.groups.get(group_id)
        if group is None or group.state is not GroupState.EMPTY or group.pending:
            return False
        return removed == sum(map(len, self._table.offsets.get(group_id, {}).values()))

    def _write(self, turn: Turn, expired: dict[str, list[GroupRecord]], gone: list[str]) -> None:
        records = [record for found in expired.values() for record in found]
        told = partial(self._written, len(records), list(expired), gone)
        records += [
            GroupMetadataRecord(GroupMetadataKey(group=group_id), None) for group_id in gone
        ]
        turn.write(records, told)

    def _written(
        self, offsets: int, groups: list[str], gone: list[str], turn: Turn, error: ErrorCode
    ) -> None:
        if error is not ErrorCode.NONE:
            self._round = None
            turn.note("expired_offsets_not_removed", error=error.name)
            return
        turn.note(
            "offsets_expired",
            offsets=offsets,
            groups=groups,
            groups_removed=gone,
            why=f"not used for {self._table.config.offsets_retention_ms} ms, or as long as their commit said",
        )


def is_expired(
    group: ClassicGroup, value: OffsetCommitValue, now_ms: int, retention_ms: int
) -> bool:
    """Whether an offset's time is over, if its topic is not subscribed to. now_ms: wall clock."""
    begins_ms = _retention_begins(group, value)
    if begins_ms is None:
        return False
    if value.expire_timestamp != -1:
        return now_ms >= value.expire_timestamp
    return now_ms - begins_ms >= retention_ms


def _retention_begins(group: ClassicGroup, value: OffsetCommitValue) -> int | None:
    """None: not while the group is as it is. A group's record of before Kafka 2.1 does not tell since when it is empty."""
    if group.protocol_type is None:
        return value.commit_timestamp
    if group.state is GroupState.EMPTY:
        return value.commit_timestamp if group.state_since_ms is None else group.state_since_ms
    if group.state is GroupState.STABLE and group.protocol_type == PROTOCOL_TYPE:
        return value.commit_timestamp
    return None
