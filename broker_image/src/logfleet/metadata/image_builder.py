"""Builds cluster images from the revisions of the store's watch.

Only this module decodes stored values.

A new image rebuilds only what the revisions changed: a topic whose partition changed, never all
topics.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from logfleet.metadata import keys
from logfleet.metadata.image import (
    Broker,
    ClusterImage,
    Controller,
    DeletedTopic,
    Directories,
    Features,
    Fence,
    Partition,
    Quotas,
    StoredConfigs,
    Topic,
    registration_state,
)
from logfleet.metadata.store import Event, KeyValue
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids

K = TypeVar("K")
V = TypeVar("V")


class CorruptMetadataError(Exception):
    """A key has a value that no version of Logfleet writes. The message names the key."""


class Changes(msgspec.Struct):
    """What may differ between two images. everything: a snapshot came, so anything may differ.

    topics: ids of topics that were created, changed or deleted.
    """

    everything: bool = False
    topics: set[bytes] = msgspec.field(default_factory=set)
    brokers: bool = False
    broker_configs: bool = False
    deleted: bool = False
    controller: bool = False
    quotas: bool = False

    def add(self, later: "Changes") -> None:
        self.everything |= later.everything
        self.topics |= later.topics
        self.brokers |= later.brokers
        self.broker_configs |= later.broker_configs
        self.deleted |= later.deleted
        self.controller |= later.controller
        self.quotas |= later.quotas


_CONTROLLER: Final = msgspec.json.Decoder(keys.ControllerValue)
_FEATURES: Final = msgspec.json.Decoder(keys.FeaturesValue)
_BROKER: Final = msgspec.json.Decoder(keys.BrokerValue)
_DIRECTORIES: Final = msgspec.json.Decoder(keys.DirectoriesValue)
_FENCE: Final = msgspec.json.Decoder(keys.FenceValue)
_SUSPECT: Final = msgspec.json.Decoder(keys.SuspectValue)
_TOPIC: Final = msgspec.json.Decoder(keys.TopicValue)
_PARTITION: Final = msgspec.json.Decoder(keys.PartitionValue)
_READY: Final = msgspec.json.Decoder(keys.ReadyValue)
_DELETED: Final = msgspec.json.Decoder(keys.DeletedValue)
_CONFIG: Final = msgspec.json.Decoder(keys.ConfigValue)
_QUOTA: Final = msgspec.json.Decoder(keys.QuotaValue)


class _TopicDraft:
    """A topic while its keys are being read."""

    __slots__ = ("configs", "id", "name", "partitions", "ready", "ready_revision", "revision")

    def __init__(self, topic: Topic) -> None:
        self.id = topic.id
        self.name = topic.name
        self.configs = topic.configs
        self.revision = topic.revision
        self.ready = topic.ready
        self.ready_revision = topic.ready_revision
        self.partitions = {**dict(enumerate(topic.partitions)), **topic.hidden}

    def build(self) -> Topic | None:
        if not (self.revision or self.ready_revision or self.partitions):
            return None
        shown = 0
        while shown < self.ready and shown in self.partitions:
            shown += 1
        return Topic(
            self.id,
            self.name,
            self.configs,
            tuple(self.partitions[index] for index in range(shown)),
            {index: part for index, part in self.partitions.items() if index >= shown},
            self.ready,
            self.revision,
            self.ready_revision,
        )


class _Copied(Generic[K, V]):
    """A small mapping of an image, copied when it first changes."""

    __slots__ = ("_owned", "values")

    def __init__(self, values: Mapping[K, V]) -> None:
        self.values = values
        self._owned: dict[K, V] | None = None

    def put(self, key: K, value: V) -> None:
        self._own()[key] = value

    def remove(self, key: K) -> None:
        self._own().pop(key, None)

    def _own(self) -> dict[K, V]:
        if self._owned is None:
            self.values = self._owned = dict(self.values)
        return self._owned


class ImageBuilder:
    """Applies events to an image.

    `add` each event of a revision, or each item of a snapshot, then `build`.

    base: the previous image; an empty image before a snapshot.
    """

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self._changes = Changes()
        self._drafts: dict[bytes, _TopicDraft] = {}
        self._ids: dict[str, bytes | None] = {}
        self._cluster_id = base.cluster_id
        self._controller = base.controller
        self._brokers = _Copied(base.brokers)
        self._fences = _Copied(base.fences)
        self._configs = _Copied(base.broker_configs)
        self._group_configs = _Copied(base.group_configs)
        self._deleted = _Copied(base.deleted)
        self._quotas = _Copied(base.quotas)
        self._directories = _Copied(base.directories)
        self._suspects = _Copied(base.suspects)
        self._features = base.features

    def add(self, event: Event) -> None:
        """Apply one key's new state. Raises CorruptMetadataError."""
        item = event if isinstance(event, KeyValue) else None
        for prefix, method in self._READERS:
            if event.key.startswith(prefix):
                try:
                    method(self, event.key[len(prefix) :], item)
                except ValueError as error:
                    raise CorruptMetadataError(f"{event.key}: {error}") from error
                return

    def build(self, revision: int) -> tuple[ClusterImage, Changes]:
        """The image at `revision`, and what may differ from the previous one."""
        topics = {topic_id: draft.build() for topic_id, draft in self._drafts.items()}
        self._changes.topics = set(topics)
        unfinished = set(self._base.unfinished)
        for topic_id, topic in topics.items():
            if topic is not None and (topic.hidden or not topic.is_ready):
                unfinished.add(topic_id)
            else:
                unfinished.discard(topic_id)
        image = ClusterImage(
            revision,
            self._cluster_id,
            self._controller,
            self._registered(),
            self._fences.values,
            self._configs.values,
            self._group_configs.values,
            self._deleted.values,
            frozenset(unfinished) if unfinished != self._base.unfinished else self._base.unfinished,
            self._base.entries.updated(topics),
            self._base.ids.updated(self._ids),
            self._quotas.values,
            self._directories.values,
            self._suspects.values,
            self._features,
        )
        return image, self._changes

    def _registered(self) -> dict[int, Broker]:
        """Brokers with their current fences: a fence may change without the registration."""
        brokers = dict(self._brokers.values)
        for broker_id, broker in brokers.items():
            fence = self._fences.values.get(broker_id)
            state = registration_state(broker.epoch, fence)
            last_epoch = None if fence is None else fence.broker_epoch
            if (state, last_epoch) != (broker.state, broker.last_epoch):
                brokers[broker_id] = msgspec.structs.replace(
                    broker, state=state, last_epoch=last_epoch
                )
        return brokers

    def _draft(self, topic_id: bytes) -> _TopicDraft:
        draft = self._drafts.get(topic_id)
        if draft is None:
            topic = self._base.entries.get(topic_id) or Topic(topic_id)
            draft = self._drafts[topic_id] = _TopicDraft(topic)
        return draft

    def _read_cluster_id(self, _rest: str, item: KeyValue | None) -> None:
        self._cluster_id = None if item is None else item.value.decode()

    def _read_controller(self, _rest: str, item: KeyValue | None) -> None:
        self._changes.controller = True
        self._controller = None
        if item is not None:
            value = _CONTROLLER.decode(item.value)
            self._controller = Controller(value.broker, value.incarnation, item.create_revision)

    def _read_features(self, _rest: str, item: KeyValue | None) -> None:
        self._features = Features()
        if item is not None:
            self._features = Features(_FEATURES.decode(item.value).level, item.mod_revision)

    def _read_broker(self, rest: str, item: KeyValue | None) -> None:
        self._changes.brokers = True
        broker_id = int(rest)
        if item is None:
            self._brokers.remove(broker_id)
        else:
            value = _BROKER.decode(item.value)
            offline = {
                uuids.from_text(uuid): frozenset(indexes) for uuid, indexes in value.offline.items()
            }
            broker = Broker(broker_id, BrokerEpoch(item.create_revision), value, offline=offline)
            self._brokers.put(broker_id, broker)

    def _read_fence(self, rest: str, item: KeyValue | None) -> None:
        self._changes.brokers = True
        broker_id = int(rest)
        if item is None:
            self._fences.remove(broker_id)
        else:
            value = _FENCE.decode(item.value)
            self._fences.put(broker_id, Fence(value.broker_epoch, value.state, item.mod_revision))

    def _read_directories(self, rest: str, item: KeyValue | None) -> None:
        broker_id = int(rest)
        if item is None:
            self._directories.remove(broker_id)
        else:
            value = _DIRECTORIES.decode(item.value)
            self._directories.put(broker_id, Directories(frozenset(value.ids), item.mod_revision))

    def _read_suspect(self, rest: str, item: KeyValue | None) -> None:
        self._changes.brokers = True
        broker_id, _, reporter = rest.partition("/")
        key = int(broker_id), int(reporter)
        if item is None:
            self._suspects.remove(key)
        else:
            self._suspects.put(key, _SUSPECT.decode(item.value).broker_epoch)

    def _read_topic(self, name: str, item: KeyValue | None) -> None:
        if item is None:
            topic_id = self._ids.get(name) or self._base.ids.get(name)
            self._ids[name] = None
            if topic_id is not None:
                draft = self._draft(topic_id)
                draft.name, draft.configs, draft.revision = "", {}, 0
            return
        value = _TOPIC.decode(item.value)
        topic_id = uuids.from_text(value.id)
        self._ids[name] = topic_id
        draft = self._draft(topic_id)
        draft.name, draft.configs, draft.revision = name, value.configs, item.mod_revision

    def _read_partition(self, rest: str, item: KeyValue | None) -> None:
        uuid, _, index = rest.rpartition("/")
        partitions = self._draft(uuids.from_text(uuid)).partitions
        if item is None:
            partitions.pop(int(index), None)
        else:
            value = _PARTITION.decode(item.value)
            fields = msgspec.structs.asdict(value)
            partitions[int(index)] = Partition(**fields, revision=item.mod_revision)

    def _read_ready(self, uuid: str, item: KeyValue | None) -> None:
        draft = self._draft(uuids.from_text(uuid))
        draft.ready = 0 if item is None else _READY.decode(item.value).partitions
        draft.ready_revision = 0 if item is None else item.mod_revision

    def _read_deleted(self, uuid: str, item: KeyValue | None) -> None:
        self._changes.deleted = True
        topic_id = uuids.from_text(uuid)
        if item is None:
            self._deleted.remove(topic_id)
        else:
            value = _DELETED.decode(item.value)
            self._deleted.put(
                topic_id, DeletedTopic(topic_id, value.name, value.brokers, item.mod_revision)
            )

    def _read_broker_config(self, rest: str, item: KeyValue | None) -> None:
        self._changes.broker_configs = True
        broker_id = None if rest == keys.CLUSTER_DEFAULT else int(rest)
        if item is None:
            self._configs.remove(broker_id)
        else:
            values = _CONFIG.decode(item.value)
            self._configs.put(broker_id, StoredConfigs(values, item.mod_revision))

    def _read_group_config(self, group: str, item: KeyValue | None) -> None:
        if item is None:
            self._group_configs.remove(group)
        else:
            values = _CONFIG.decode(item.value)
            self._group_configs.put(group, StoredConfigs(values, item.mod_revision))

    def _read_quota(self, rest: str, item: KeyValue | None) -> None:
        self._changes.quotas = True
        entity = keys.quota_entity(rest)
        if item is None:
            self._quotas.remove(entity)
        else:
            self._quotas.put(entity, Quotas(_QUOTA.decode(item.value), item.mod_revision))

    # Most frequent first. Other keys (of other versions, of tools) are ignored.
    _READERS: Final[
        tuple[tuple[str, Callable[["ImageBuilder", str, KeyValue | None], None]], ...]
    ] = (
        (keys.PARTITIONS, _read_partition),
        (keys.TOPICS, _read_topic),
        (keys.READY, _read_ready),
        (keys.DELETED, _read_deleted),
        (keys.BROKERS, _read_broker),
        (keys.FENCES, _read_fence),
        (keys.SUSPECTS, _read_suspect),
        (keys.DIRECTORIES, _read_directories),
        (keys.BROKER_CONFIGS, _read_broker_config),
        (keys.QUOTAS, _read_quota),
        (keys.GROUP_CONFIGS, _read_group_config),
        (keys.CONTROLLER, _read_controller),
        (keys.CLUSTER_ID, _read_cluster_id),
        (keys.FEATURES, _read_features),
    )
