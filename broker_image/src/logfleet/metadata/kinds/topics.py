"""Topics and their partitions. A topic is one entry of the image, made from all of its keys.

Only the topics that a revision changed are built again, never all of them.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec

from logfleet.metadata.image_draft import Image, ImageDraft, Part
from logfleet.metadata.kind import (
    PLAIN,
    TEXT,
    UUID,
    KeyForm,
    Kind,
    Rows,
    SnapshotRule,
    json_of,
)
from logfleet.metadata.shards import ShardedMap
from logfleet.metadata.store import KeyValue
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

NO_LEADER: Final = -1
EPOCHS_UP: Final = 1_000_000
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Topics that belong to the brokers (Kafka: Topic.INTERNAL_TOPICS)."""


class TopicValue(msgspec.Struct, frozen=True):
    """id: text form of the topic id. configs: the topic's own configuration, as text."""

    id: str
    configs: dict[str, str] = {}


class PartitionValue(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """State of a partition.

    replicas: broker ids, the preferred leader first. isr: the in-sync ones, each with its broker
    epoch.
    leader: broker id or NO_LEADER. leader_epoch: +1 with every change of leader, also to the same
    broker after its restart; not when the ISR shrinks (KAFKA-15021). partition_epoch: +1 with every
    write. min_isr: min.insync.replicas in force (KAFKA-16540: it belongs to the partition, never to
    a broker).
    adding, removing: the replicas that a reassignment adds and removes (KIP-455).
    elr: eligible leaders besides the ISR (KIP-966): they left it when it was smaller than min_isr,
    and hold every committed record.
    last_leader: the newest leader, NO_LEADER if there was none; last_directory: `directory.id` of
    the log directory in which it led.
    recovering: the leader was elected uncleanly; records that it lacks are lost.
    given_up: an administrator accepted the loss of records that no replica has any more: a replica
    may start empty, and lead. Set until one leads.
    restored: the metadata store was restored from a backup that is older than the logs, and no
    replica has led since. Replicas in `elr` were in sync at the backup and may have fallen behind.
    """

    replicas: tuple[int, ...]
    isr: tuple[tuple[int, BrokerEpoch], ...]
    leader: int
    leader_epoch: LeaderEpoch = msgspec.field(name="le")
    partition_epoch: PartitionEpoch = msgspec.field(name="pe")
    min_isr: int = msgspec.field(name="misr")
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_leader: int = msgspec.field(name="last", default=NO_LEADER)
    last_directory: str = msgspec.field(name="dir", default="")
    recovering: bool = False
    given_up: bool = False
    restored: bool = False

    def changed(self, **changes: object) -> "PartitionValue":
        """The next state: this one with `changes`, by field name, and the next partition epoch."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _PARTITION_FIELDS}
        return PartitionValue(**{**fields, "partition_epoch": self.partition_epoch + 1, **changes})


_PARTITION_FIELDS: Final = PartitionValue.__struct_fields__


class Partition(PartitionValue, frozen=True, gc=False):
    """PartitionValue as stored. revision: of the last write."""

    revision: int = 0

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def isr_ids(self) -> list[int]:
        return [broker_id for broker_id, _ in self.isr]


class ReadyValue(msgspec.Struct, frozen=True):
    """The number of partitions that the topic has, from index 0."""

    partitions: int


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


ENTRIES: Final = Part[ShardedMap[bytes, Topic]]("entries", ShardedMap())
IDS: Final = Part[ShardedMap[str, bytes]]("ids", ShardedMap())
UNFINISHED: Final = Part[frozenset[bytes]]("unfinished", frozenset())


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


class _Topics:
    """The topics of a draft that changed. ids: by the names that changed; None: gone."""

    def __init__(self, base: Image) -> None:
        self._entries = ENTRIES.of(base)
        self._base_ids = IDS.of(base)
        self._unfinished = UNFINISHED.of(base)
        self._drafts: dict[bytes, _TopicDraft] = {}
        self.ids: dict[str, bytes | None] = {}

    def topic(self, topic_id: bytes) -> _TopicDraft:
        found = self._drafts.get(topic_id)
        if found is None:
            topic = self._entries.get(topic_id) or Topic(topic_id)
            found = self._drafts[topic_id] = _TopicDraft(topic)
        return found

    def id_of(self, name: str) -> bytes | None:
        return self.ids.get(name) or self._base_ids.get(name)

    def finish(self, draft: ImageDraft) -> None:
        topics = {topic_id: topic.build() for topic_id, topic in self._drafts.items()}
        draft.changes.topics.update(topics)
        unfinished = set(self._unfinished)
        for topic_id, topic in topics.items():
            if topic is not None and (topic.hidden or not topic.is_ready):
                unfinished.add(topic_id)
            else:
                unfinished.discard(topic_id)
        if unfinished != self._unfinished:
            draft.set(UNFINISHED, frozenset(unfinished))
        draft.set(ENTRIES, self._entries.updated(topics))
        if self.ids:
            draft.set(IDS, self._base_ids.updated(self.ids))


class _Names:
    def put(self, draft: ImageDraft, name: str, value: TopicValue, item: KeyValue, /) -> None:
        topics = draft.section(_Topics)
        topic_id = topics.ids[name] = uuids.from_text(value.id)
        topic = topics.topic(topic_id)
        topic.name, topic.configs, topic.revision = name, value.configs, item.mod_revision

    def remove(self, draft: ImageDraft, name: str, /) -> None:
        topics = draft.section(_Topics)
        topic_id = topics.id_of(name)
        topics.ids[name] = None
        if topic_id is not None:
            topic = topics.topic(topic_id)
            topic.name, topic.configs, topic.revision = "", {}, 0


_fields_of: Final = attrgetter(*_PARTITION_FIELDS)


def _partition_text(key: tuple[bytes, int]) -> str:
    return f"{uuids.to_text(key[0])}/{key[1]}"


def _partition_key(rest: str) -> tuple[bytes, int]:
    uuid, _, index = rest.partition("/")
    return uuids.from_text(uuid), int(index)


class _Partitions:
    def put(
        self,
        draft: ImageDraft,
        key: tuple[bytes, int],
        value: PartitionValue,
        item: KeyValue,
        /,
    ) -> None:
        topic_id, index = key
        partition = Partition(*(*_fields_of(value), item.mod_revision))
        draft.section(_Topics).topic(topic_id).partitions[index] = partition

    def remove(self, draft: ImageDraft, key: tuple[bytes, int], /) -> None:
        topic_id, index = key
        draft.section(_Topics).topic(topic_id).partitions.pop(index, None)


class _Sizes:
    def put(self, draft: ImageDraft, topic_id: bytes, value: ReadyValue, item: KeyValue, /) -> None:
        topic = draft.section(_Topics).topic(topic_id)
        topic.ready, topic.ready_revision = value.partitions, item.mod_revision

    def remove(self, draft: ImageDraft, topic_id: bytes, /) -> None:
        topic = draft.section(_Topics).topic(topic_id)
        topic.ready = topic.ready_revision = 0


def _as_after_a_death(state: PartitionValue) -> PartitionValue:
    """The state to restore: newer than any state since the snapshot, with nobody in sync.

    Consumers recognise a newer leader by its epoch (KIP-320), so no leader epoch may be given out
    twice. Former members of the ISR are eligible leaders (KIP-966) that may have fallen behind.
    """
    eligible = {*state.elr, *(broker_id for broker_id, _ in state.isr)}
    return state.changed(
        isr=(),
        elr=tuple(each for each in state.replicas if each in eligible),
        leader=NO_LEADER,
        restored=True,
        leader_epoch=state.leader_epoch + EPOCHS_UP,
        last_leader=state.last_leader if state.leader == NO_LEADER else state.leader,
    )


TOPIC: Final = Kind("topic/NAME", TEXT, json_of(TopicValue), image=_Names())
"""Written by the controller."""

TOPIC_ID: Final = Kind("tid/UUID", UUID, PLAIN)
"""The topic's name: for people, and for compares that the topic with this id exists. Written by the
controller, with `topic/NAME`. Not part of an image.
"""

PARTITION: Final = Kind(
    "part/UUID/INDEX",
    KeyForm(_partition_text, _partition_key),
    json_of(PartitionValue),
    image=_Partitions(),
    snapshot=SnapshotRule(restored=_as_after_a_death),
)
"""Written by the controller, and by the partition's leader when the ISR changes."""

READY: Final = Kind("ready/UUID", UUID, json_of(ReadyValue), image=_Sizes())
"""Written by the controller, last: before it the topic (or its new partitions) does not exist."""


def partitions_of(topic_id: bytes) -> str:
    """Prefix of all partitions of a topic."""
    return f"{PARTITION.prefix}{uuids.to_text(topic_id)}/"


class DeletedValue(msgspec.Struct, frozen=True):
    """A deleted topic.

    brokers: those that still have logs of it. A broker deletes logs only by this key.
    """

    name: str
    brokers: tuple[int, ...]


class DeletedTopic(msgspec.Struct, frozen=True):
    """brokers: those that still have logs of it. revision: of the last write."""

    id: bytes
    name: str
    brokers: tuple[int, ...]
    revision: int


def _deleted(topic_id: bytes, value: DeletedValue, item: KeyValue) -> DeletedTopic:
    return DeletedTopic(topic_id, value.name, value.brokers, item.mod_revision)


DELETED: Final = Kind(
    "deleted/UUID",
    UUID,
    json_of(DeletedValue),
    image=Rows(Part[Mapping[bytes, DeletedTopic]]("deleted", {}), _deleted),
    notifies="deleted",
)
"""Written by the controller; each broker removes its id once its logs are deleted."""
