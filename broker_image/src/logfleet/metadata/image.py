"""The cluster at one revision of the metadata store.

Handlers answer from it, the controller decides on it.

Images are immutable and share what did not change: a reader that holds an image keeps a consistent
view. `image_builder` makes them from the store's watch.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from logfleet.metadata.kinds.brokers import (
    Broker,
    Directories,
    Endpoint,
    Fence,
    registration_state,
)
from logfleet.metadata.kinds.cluster import Controller, Features
from logfleet.metadata.kinds.configs import StoredConfigs
from logfleet.metadata.kinds.quotas import QuotaEntity, Quotas
from logfleet.metadata.kinds.topics import INTERNAL_TOPICS, DeletedTopic, Partition, Topic
from logfleet.metadata.shards import ShardedMap

T = TypeVar("T")


class ClusterImage(msgspec.Struct, frozen=True):
    """The cluster at `revision`.

    Each field is a part that a kind of the store makes (`logfleet.metadata.kind`). A part without a
    field of its own is in `parts`, by its name.

    brokers: those registered now. fences: of every broker that ever registered.
    suspects: by (broker, reporter) the broker epoch of a process that refuses the reporter's
    connections.
    unfinished: ids of topics that are not ready or have hidden partitions; the controller finishes
    them.
    """

    revision: int = 0
    cluster_id: str | None = None
    controller: Controller | None = None
    brokers: Mapping[int, Broker] = {}
    fences: Mapping[int, Fence] = {}
    broker_configs: Mapping[int | None, StoredConfigs] = {}
    group_configs: Mapping[str, StoredConfigs] = {}
    deleted: Mapping[bytes, DeletedTopic] = {}
    unfinished: frozenset[bytes] = frozenset()
    entries: ShardedMap[bytes, Topic] = ShardedMap()
    ids: ShardedMap[str, bytes] = ShardedMap()
    quotas: Mapping[QuotaEntity, Quotas] = {}
    directories: Mapping[int, Directories] = {}
    suspects: Mapping[tuple[int, int], int] = {}
    features: Features = Features()
    parts: Mapping[str, Any] = {}

    def part(self, name: str, empty: T) -> T:
        """The part of that name; `empty` if there is none. `Part.of` calls it."""
        found: T = getattr(self, name) if name in FIELDS else self.parts.get(name, empty)
        return found

    def topic(self, name: str) -> Topic | None:
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.topic_by_id(topic_id)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        topic = self.entries.get(topic_id)
        return topic if topic is not None and topic.is_ready else None

    def topics(self) -> Iterator[Topic]:
        """All topics, in no particular order."""
        return (topic for topic in self.entries if topic.is_ready)

    def topic_count(self) -> int:
        return len(self.entries) - sum(
            self.topic_by_id(topic_id) is None for topic_id in self.unfinished
        )

    def partition(self, topic_id: bytes, index: int) -> Partition | None:
        topic = self.topic_by_id(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def is_offline(self, broker_id: int, topic_id: bytes, index: int) -> bool:
        """Whether a registered broker's replica is in a log directory that failed or is missing."""
        broker = self.brokers.get(broker_id)
        return broker is not None and index in broker.offline.get(topic_id, ())

    def configs_of_broker(self, broker_id: int | None) -> StoredConfigs:
        """broker_id: None for the configuration of all brokers."""
        return self.broker_configs.get(broker_id, StoredConfigs())

    def configs_of_group(self, group: str) -> StoredConfigs:
        return self.group_configs.get(group, StoredConfigs())


FIELDS: Final = frozenset(ClusterImage.__struct_fields__) - {"parts"}
"""The parts that have a field of their own."""

__all__ = [
    "FIELDS",
    "INTERNAL_TOPICS",
    "Broker",
    "ClusterImage",
    "Controller",
    "DeletedTopic",
    "Directories",
    "Endpoint",
    "Features",
    "Fence",
    "Partition",
    "Quotas",
    "StoredConfigs",
    "Topic",
    "registration_state",
]
