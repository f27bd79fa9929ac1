"""Deletes the offsets of deleted topics, in steps short enough for an event loop.

A topic may have 100,000 partitions and thousands of groups, so the tombstones do not fit into one
batch. A failed write is retried. An offset that was committed after the deletion, for a new topic
of the same name, stays. What open transactions have staged for a deleted topic goes too.
Source: OffsetMetadataManager.onTopicsDeleted. `departed` is our own: at the deletion the group may
have had no coordinator.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from logfleet.groups.expiry import CHECKED_PER_STEP, REMOVED_PER_STEP, Piece, pieces
from logfleet.groups.offsets import ZERO_UUID
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn
from logfleet.metadata.image import ClusterImage
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue


class TopicRemoval:
    """Checks all groups of a table until no offsets of the given topics are left."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._deleted: dict[str, dict[bytes, int]] = {}  # name -> id -> when `add` got it, wall ms
        self._round: Iterator[Piece] | None = None

    @property
    def is_due(self) -> bool:
        """Whether offsets of a deleted topic may be left."""
        return bool(self._deleted)

    @property
    def is_under_way(self) -> bool:
        """Whether to call another step now. Call it after the step's turn was executed."""
        return self._round is not None

    def add(self, turn: GroupTurn, deleted: Iterable[tuple[str, bytes]]) -> None:
        """Record that these topics (name, id) were deleted.

        ZERO_UUID: also remove offsets that were committed without a topic id.
        """
        for name, topic_id in deleted:
            self._deleted.setdefault(name, {})[topic_id] = turn.wall_ms
        self._round = None  # the next step begins a new round

    def step(self, turn: GroupTurn) -> None:
        """Write tombstones for some offsets of deleted topics.

        The first step begins a round over all groups.
        """
        if not self._deleted:
            return
        if self._round is None:
            self._round = pieces(self._table)
        deleted = self._deleted
        records: list[GroupRecord] = []
        checked = 0
        for piece in self._round:
            records += self._records(piece)
            checked += len(piece.partitions) or 1
            if checked >= CHECKED_PER_STEP or len(records) >= REMOVED_PER_STEP:
                break
        else:
            self._round = None
            self._deleted = {}
        if records:
            turn.write(records, partial(self._written, len(records), deleted))

    def _records(self, piece: Piece) -> list[GroupRecord]:
        topic = piece.topic
        ids = self._deleted.get(topic) if topic is not None else None
        if topic is None or ids is None:
            return []
        committed = self._table.offsets.get(piece.group_id, {}).get(topic, {})
        staged = self._table.staged
        return [
            OffsetRecord(OffsetCommitKey(group=piece.group_id, topic=topic, partition=number), None)
            for number in piece.partitions
            if ((value := committed.get(number)) is not None and _was_of(value, ids))
            or any(_was_of(value, ids) for value in staged.values(piece.group_id, topic, number))
        ]

    def _written(
        self, offsets: int, deleted: dict[str, dict[bytes, int]], turn: GroupTurn, error: ErrorCode
    ) -> None:
        if error is ErrorCode.NONE:
            turn.log("offsets_of_deleted_topics_removed", offsets=offsets)
            return
        turn.log("offsets_of_deleted_topics_not_removed", error=error.name)
        self._round = None
        for name, ids in deleted.items():
            self._deleted[name] = ids | self._deleted.get(name, {})


def _was_of(value: OffsetCommitValue, deleted: dict[bytes, int]) -> bool:
    """Whether an offset belongs to one of the topics.

    deleted: their ids, with the time of deletion (wall ms).

    A commit without a topic id (from an adopted Kafka) belongs to the topic that existed then.
    """
    topic_id = bytes(value.topic_id)
    gone_ms = deleted.get(topic_id)
    if gone_ms is None:
        return False
    return topic_id != ZERO_UUID or value.commit_timestamp <= gone_ms


def departed(
    committed: Collection[tuple[str, bytes]], image: ClusterImage
) -> list[tuple[str, bytes]]:
    """The deleted topics among those with committed offsets, by name and id.

    Topic ids are never reused. An offset without a topic id stays while any topic has its name.
    """
    return [
        (name, topic_id)
        for name, topic_id in committed
        if (
            image.topic(name) is None
            if topic_id == ZERO_UUID
            else image.topic_by_id(topic_id) is None
        )
    ]
