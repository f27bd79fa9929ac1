"""Partitions of this broker that it cannot serve, as their logs are in a log directory that failed or is missing."""

from collections.abc import Callable, Iterable
from typing import Final

from logfleet.wire import uuids

OFFLINE_TOLD_MAX: Final = 10_000
"""At 30 bytes each a third of what a transaction takes. The others answer KAFKA_STORAGE_ERROR, though their leader is still told."""


class OfflinePartitions:
    """By topic id and index. on_change: called when they are others than before."""

    def __init__(self) -> None:
        self._all: frozenset[tuple[bytes, int]] = frozenset()
        self.on_change: Callable[[], None] = lambda: None

    def __contains__(self, partition: tuple[bytes, int]) -> bool:
        return partition in self._all

    def __len__(self) -> int:
        return len(self._all)

    def add(self, partitions: Iterable[tuple[bytes, int]]) -> None:
        self._become(self._all.union(partitions))

    def remove(self, partitions: Iterable[tuple[bytes, int]]) -> None:
        """They can be served again."""
        self._become(self._all.difference(partitions))

    def forget_topic(self, topic_id: bytes) -> None:
        """The topic was deleted."""
        self._become(frozenset(each for each in self._all if each[0] != topic_id))

    def by_topic(self) -> dict[str, tuple[int, ...]]:
        """As a broker tells them (BrokerValue); of very many not all, as one key has to hold them."""
        found: dict[str, list[int]] = {}
        for topic_id, index in sorted(self._all)[:OFFLINE_TOLD_MAX]:
            found.setdefault(uuids.to_text(topic_id), []).append(index)
        return {uuid: tuple(indexes) for uuid, indexes in found.items()}

    def _become(self, partitions: frozenset[tuple[bytes, int]]) -> None:
        if partitions != self._all:
            self._all = partitions
            self.on_change()
