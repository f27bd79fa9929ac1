"""The kinds of the metadata store. A new kind is a module in `metadata.kinds` and its line here."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from logfleet.metadata.kind import Kind
from logfleet.metadata.kinds import brokers, cluster, configs, producer_ids, quotas, topics

AnyKind = Kind[Any, Any]


class Kinds:
    """Kinds of a store. A key belongs to one of them at most."""

    def __init__(self, kinds: Iterable[AnyKind]) -> None:
        self._kinds = tuple(kinds)
        self._by_word: dict[str, tuple[AnyKind, ...]] = {}
        for kind in self._kinds:
            word = kind.prefix.partition("/")[0]
            siblings = self._by_word.get(word, ())
            assert not any(_overlap(kind.prefix, each.prefix) for each in siblings), kind.pattern
            self._by_word[word] = (*siblings, kind)

    def __iter__(self) -> Iterator[AnyKind]:
        return iter(self._kinds)

    def of(self, key: str) -> AnyKind | None:
        """The kind of a key; None for a key of another version or of a tool."""
        for kind in self._by_word.get(key.partition("/")[0], ()):
            if key == kind.prefix if kind.is_single else key.startswith(kind.prefix):
                return kind
        return None


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


KINDS: Final = Kinds(
    (
        cluster.CLUSTER_ID,
        cluster.FEATURES,
        cluster.CONTROLLER,
        cluster.RECEIPT,
        brokers.BROKER,
        brokers.FENCE,
        brokers.SUSPECT,
        brokers.DIRECTORIES,
        topics.TOPIC,
        topics.TOPIC_ID,
        topics.PARTITION,
        topics.READY,
        topics.DELETED,
        configs.BROKER_CONFIG,
        configs.GROUP_CONFIG,
        quotas.QUOTA,
        producer_ids.NEXT_PRODUCER_ID,
    )
)
