"""Partitions that this broker cannot serve: their log directory has failed or is missing."""

from collections.abc import Callable, Iterable
from typing import Final

from logfleet.wire import uuids

OFFLINE_REPORTED_MAX: Final = 10_000
"""Partitions that a broker reports; at 30 bytes each that is a third of a store write.

The others answer KAFKA_STORAGE_ERROR, though the metadata still names their leader.
"""


class OfflinePartitions:
    """The offline partitions, by topic id and index. on_change: each is called when they change."""

    def __init__(self) -> None:
        self._all: frozenset[tuple[bytes, int]] = frozenset()
        self.on_change: list[Callable[[], None]] = []

    def __contains__(self, partition: tuple[bytes, int]) -> bool:
        return partition in self._all

    def __len__(self) -> int:
        return len(self._all)

    def add(self, partitions: Iterable[tuple[bytes, int]]) -> None:
        self._set(self._all.union(partitions))

    def remove(self, partitions: Iterable[tuple[bytes, int]]) -> None:
        """Record that these partitions can be served again."""
        self._set(self._all.difference(partitions))

    def remove_topic(self, topic_id: bytes) -> None:
        """The topic was deleted."""
        self._set(frozenset(each for each in self._all if each[0] != topic_id))

    def by_topic(self) -> dict[str, tuple[int, ...]]:
        """The partitions as a broker reports them (BrokerValue), no more than one key can hold."""
        found: dict[str, list[int]] = {}
        for topic_id, index in sorted(self._all)[:OFFLINE_REPORTED_MAX]:
            found.setdefault(uuids.to_text(topic_id), []).append(index)
        return {uuid: tuple(indexes) for uuid, indexes in found.items()}

    def _set(self, partitions: frozenset[tuple[bytes, int]]) -> None:
        if partitions != self._all:
            self._all = partitions
            for callback in self.on_change:
                callback()
