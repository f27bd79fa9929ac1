"""A persistent map: an update returns a new map, which shares all unchanged parts with the old one.

A map of n keys is 256 dicts; a change copies one of them and the row of pointers, so an update
among 500,000 keys costs about 2,000 entries. A trie would copy less, but in Python, and would read
more slowly (a look-up here is two C calls).
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SHARDS = 256


class ShardedMap(Generic[K, V]):
    """Immutable from outside; `updated` makes the next one.

    Iterates values in no particular order.
    """

    __slots__ = ("_shards", "_size")

    def __init__(self, shards: tuple[Mapping[K, V], ...] = ({},) * SHARDS, size: int = 0) -> None:
        self._shards = shards
        self._size = size

    def get(self, key: K) -> V | None:
        return self._shards[hash(key) % SHARDS].get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) % SHARDS]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[V]:
        for shard in self._shards:
            yield from shard.values()

    def updated(self, changes: Mapping[K, V | None]) -> "ShardedMap[K, V]":
        """This map with `changes`; None removes a key."""
        if not changes:
            return self
        shards: list[Mapping[K, V]] = list(self._shards)
        copied: dict[int, dict[K, V]] = {}
        size = self._size
        for key, value in changes.items():
            index = hash(key) % SHARDS
            shard = copied.get(index)
            if shard is None:
                shard = copied[index] = dict(shards[index])
            size -= key in shard
            if value is None:
                shard.pop(key, None)
            else:
                shard[key] = value
                size += 1
        for index, shard in copied.items():
            shards[index] = shard
        return ShardedMap(tuple(shards), size)
