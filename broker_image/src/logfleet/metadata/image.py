"""The cluster at one revision of the metadata store.

Handlers answer from it, the controller decides on it.

Images are immutable and share what did not change: a reader that holds an image keeps a consistent
view. `image_builder` makes them from the store's watch.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from logfleet.metadata.keys import (
    ACTIVE,
    DRAINING,
    NO_LEADER,
    BrokerValue,
    Endpoint,
    PartitionValue,
    QuotaEntity,
)
from logfleet.metadata.shards import ShardedMap
from logfleet.types import BrokerEpoch

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Topics that belong to the brokers (Kafka: Topic.INTERNAL_TOPICS)."""


class Controller(msgspec.Struct, frozen=True):
    """epoch: create revision of its key. Every write of the controller compares it."""

    broker: int
    incarnation: str
    epoch: int


class Broker(msgspec.Struct, frozen=True):
    """A registered broker. epoch: create revision of its registration.

    state: the controller's decision on this registration (FenceValue), empty before there is one.
    offline: by topic id the partitions that it cannot serve. last_epoch: broker epoch of the last
    registration that the controller made active, from the broker's fence; None if there was none.
    """

    id: int
    epoch: BrokerEpoch
    value: BrokerValue
    state: str = ""
    offline: Mapping[bytes, frozenset[int]] = {}
    last_epoch: BrokerEpoch | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may lead, and join ISRs."""
        return self.state == ACTIVE

    @property
    def is_draining(self) -> bool:
        """Whether it is about to stop: other brokers replace it as leader and in ISRs."""
        return self.state == DRAINING

    @property
    def is_new(self) -> bool:
        """Whether the controller has not decided on this registration yet."""
        return not self.state

    @property
    def is_fenced(self) -> bool:
        """Whether it may neither lead nor be in sync: it is new, or the controller fenced it."""
        return self.state not in {ACTIVE, DRAINING}

    @property
    def rack(self) -> str | None:
        return self.value.rack

    def listener(self, name: str) -> Endpoint | None:
        """The broker's address on the listener of that (upper case) name."""
        for listener in self.value.listeners:
            if listener.name == name:
                return listener
        return None


class Fence(msgspec.Struct, frozen=True):
    """The controller's newest decision on a broker. revision: of that write."""

    broker_epoch: BrokerEpoch
    state: str
    revision: int


class Directories(msgspec.Struct, frozen=True):
    """Log directories that may hold logs of a broker (DirectoriesValue).

    revision: of the last write.
    """

    ids: frozenset[str]
    revision: int


class Partition(PartitionValue, frozen=True, gc=False):
    """PartitionValue as stored. revision: of the last write."""

    revision: int = 0

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def isr_ids(self) -> list[int]:
        return [broker_id for broker_id, _ in self.isr]


class Topic(msgspec.Struct, frozen=True):
    """A topic, or the stored part of one that the controller has not finished creating.

    id: 16 bytes. partitions: index 0 up to `ready`, the topic's size. hidden: partitions beyond it,
    which are being added. revision, ready_revision: of the last writes of `topic/NAME` and
    `ready/UUID`, 0 while the key is missing; without `topic/NAME` the name is empty.
    """

    id: bytes
    name: str = ""
    configs: Mapping[str, str] = {}
    partitions: tuple[Partition, ...] = ()
    hidden: Mapping[int, Partition] = {}
    ready: int = 0
    revision: int = 0
    ready_revision: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether clients may see it."""
        return bool(self.revision and self.ready_revision)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class DeletedTopic(msgspec.Struct, frozen=True):
    """brokers: those that still have logs of it. revision: of the last write."""

    id: bytes
    name: str
    brokers: tuple[int, ...]
    revision: int


class StoredConfigs(msgspec.Struct, frozen=True):
    """The stored configuration of a broker, of all brokers or of a group.

    revision: 0 if there is none.
    """

    values: Mapping[str, str] = {}
    revision: int = 0


class Features(msgspec.Struct, frozen=True):
    """The finalized level of `logfleet.version`.

    revision: of the last write, 0 if there was none.
    """

    level: int = 1
    revision: int = 0


class Quotas(msgspec.Struct, frozen=True):
    """Limits of an entity by quota key (KIP-546). revision: of the last write."""

    values: Mapping[str, float]
    revision: int = 0


class ClusterImage(msgspec.Struct, frozen=True):
    """The cluster at `revision`.

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


def registration_state(epoch: BrokerEpoch, fence: Fence | None) -> str:
    """The controller's decision on the registration with this epoch; empty before there is one."""
    return fence.state if fence is not None and fence.broker_epoch == epoch else ""
