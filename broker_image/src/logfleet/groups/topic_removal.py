"""Offsets of deleted topics: they go with their topic, in steps short enough for an event loop.

A topic may have a hundred thousand partitions and thousands of groups: their tombstones are no single batch. What cannot be
written is tried again, and an offset that was committed after the deletion, for a later topic of the same name, stays.
Source: OffsetMetadataManager.onTopicsDeleted; that nobody may have coordinated the group at the deletion (`departed`) is our own.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from logfleet.groups.expiry import LOOKED_AT_PER_STEP, REMOVED_PER_STEP, Piece, pieces
from logfleet.groups.offsets import ZERO_UUID
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import Turn
from logfleet.metadata.image import ClusterImage
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue


class TopicRemoval:
    """Walks over the groups of a table until nothing of the topics is left that it was told of."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._deleted: dict[
            str, dict[bytes, int]
        ] = {}  # name -> id -> when it was told of, wall ms
        self._round: Iterator[Piece] | None = None

    @property
    def is_due(self) -> bool:
        """Whether offsets may be left of a deleted topic."""
        return bool(self._deleted)

    @property
    def is_under_way(self) -> bool:
        """Whether another step makes sense now; to be asked once the turn of a step was executed."""
        return self._round is not None

    def add(self, turn: Turn, deleted: Iterable[tuple[str, bytes]]) -> None:
        """These topics, by name and id, are gone. ZERO_UUID: those that offsets were committed for without telling an id."""
        for name, topic_id in deleted:
            self._deleted.setdefault(name, {})[topic_id] = turn.wall_ms
        self._round = None  # from the beginning

    def step(self, turn: Turn) -> None:
        """Write the tombstones of some of their offsets; the first step of all begins a round."""
        if not self._deleted:
            return
        if self._round is None:
            self._round = pieces(self._table)
        deleted = self._deleted
        records: list[GroupRecord] = []
        looked_at = 0
        for piece in self._round:
            records += self._records(piece)
            looked_at += len(piece.partitions) or 1
            if looked_at >= LOOKED_AT_PER_STEP or len(records) >= REMOVED_PER_STEP:
                break
        else:
            self._round = None
            self._deleted = {}
        if records:
            turn.write(records, partial(self._written, len(records), deleted))

    def _records(self, piece: Piece) -> list[GroupRecord]:
        topic = piece.topic
        told = self._deleted.get(topic) if topic is not None else None
        if topic is None or told is None:
            return []
        committed = self._table.offsets.get(piece.group_id, {}).get(topic, {})
        return [
            OffsetRecord(OffsetCommitKey(group=piece.group_id, topic=topic, partition=number), None)
            for number in piece.partitions
            if (value := committed.get(number)) is not None and _was_of(value, told)
        ]

    def _written(
        self, offsets: int, deleted: dict[str, dict[bytes, int]], turn: Turn, error: ErrorCode
    ) -> None:
        if error is ErrorCode.NONE:
            turn.note("offsets_of_deleted_topics_removed", offsets=offsets)
            return
        turn.note("offsets_of_deleted_topics_not_removed", error=error.name)
        self._round = None
        for name, told in deleted.items():
            self._deleted[name] = told | self._deleted.get(name, {})


def _was_of(value: OffsetCommitValue, told: dict[bytes, int]) -> bool:
    """Whether an offset was committed for one of the topics; told: their ids, with the wall clock when they were gone.

    A commit without a topic's id (in the log of an adopted Kafka) belongs to the topic that was there then.
    """
    topic_id = bytes(value.topic_id)
    gone_ms = told.get(topic_id)
    if gone_ms is None:
        return False
    return topic_id != ZERO_UUID or value.commit_timestamp <= gone_ms


def departed(
    committed: Collection[tuple[str, bytes]], image: ClusterImage
) -> list[tuple[str, bytes]]:
    """Of the topics that offsets were committed for, by name and id, those that are not there any more, as TopicRemoval takes them.

    Ids are never used again. Where a commit tells none, any topic of its name may be the one it was made for: it stays.
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
