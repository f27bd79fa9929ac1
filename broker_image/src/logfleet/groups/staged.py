"""Offsets whose transaction has not ended: staged by TxnOffsetCommit, decided by a marker.

A staged offset is a value and a mark. A later plain commit, or a later one of a transaction that
was committed, takes away the value: the last record in the log wins, whichever transaction ends
last. The mark stays until its own transaction ends or a tombstone removes it, and only the mark
makes an offset unstable. Source: OffsetMetadataManager (pendingTransactionalOffsets,
openTransactions, replay, replayEndTransactionMarker).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logfleet.groups.records import OffsetRecord
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue

_Partition = tuple[str, int]


@dataclass(slots=True)
class _Staged:
    """The newest offset that one producer has staged for a partition; record: None if overtaken."""

    record: OffsetRecord | None
    log_offset: int


class StagedOffsets:
    """All staged offsets of one coordinator. No empty inner dicts."""

    def __init__(self) -> None:
        # group -> (topic, partition) -> producer id -> what it has staged
        self._groups: dict[str, dict[_Partition, dict[int, _Staged]]] = {}
        # producer id -> where it has staged, in the order of staging
        self._by_producer: dict[int, dict[tuple[str, _Partition], None]] = {}

    def __bool__(self) -> bool:
        """Whether anything is staged; a cheap test for the path without transactions."""
        return bool(self._groups)

    def __len__(self) -> int:
        """The number of staged offsets, overtaken ones among them."""
        return sum(map(len, self._by_producer.values()))

    # -- changes, each by a record of the log

    def stage(self, record: OffsetRecord, producer_id: int, log_offset: int) -> None:
        """The producer's transaction commits this offset; the record lies at `log_offset`."""
        key = record.key
        partition = (key.topic, key.partition)
        group = self._groups.setdefault(key.group, {})
        group.setdefault(partition, {})[producer_id] = _Staged(record, log_offset)
        self._by_producer.setdefault(producer_id, {})[key.group, partition] = None

    def overtake(self, key: OffsetCommitKey, log_offset: int | None = None) -> None:
        """An offset was committed: older staged ones lose their values and keep their marks.

        log_offset: of its record; None for a record that follows all that were applied.
        """
        for staged in self._at(key.group, (key.topic, key.partition)).values():
            if log_offset is None or staged.log_offset < log_offset:
                staged.record = None

    def remove(self, key: OffsetCommitKey) -> None:
        """A tombstone removes the offset: values and marks go."""
        partition = (key.topic, key.partition)
        for producer_id in list(self._at(key.group, partition)):
            places = self._by_producer[producer_id]
            del places[key.group, partition]
            if not places:
                del self._by_producer[producer_id]
            self._drop(key.group, partition, producer_id)

    def end(self, producer_id: int) -> Iterator[tuple[OffsetRecord, int]]:
        """The producer's transaction ends. The offsets that it may commit, with their log offsets.

        All its marks are gone before the first one is returned.
        """
        found = [
            (staged.record, staged.log_offset)
            for group, partition in self._by_producer.pop(producer_id, ())
            if (staged := self._drop(group, partition, producer_id)).record is not None
        ]
        return iter(found)

    def _drop(self, group: str, partition: _Partition, producer_id: int) -> _Staged:
        partitions = self._groups[group]
        staged = partitions[partition].pop(producer_id)
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._groups[group]
        return staged

    def _at(self, group: str, partition: _Partition) -> dict[int, _Staged]:
        return self._groups.get(group, {}).get(partition, {})

    # -- state

    def has_group(self, group: str) -> bool:
        """Whether any offset of the group is staged."""
        return group in self._groups

    def is_staged(self, group: str, topic: str, partition: int) -> bool:
        """Whether the partition's offset is unstable (KIP-447)."""
        return (topic, partition) in self._groups.get(group, ())

    def partitions(self, group: str) -> Iterable[_Partition]:
        """The (topic, partition) of each staged offset of the group; a copy."""
        return list(self._groups.get(group, ()))

    def values(self, group: str, topic: str, partition: int) -> Iterator[OffsetCommitValue]:
        """What open transactions may commit for the partition."""
        for staged in self._at(group, (topic, partition)).values():
            if staged.record is not None and staged.record.value is not None:
                yield staged.record.value
