"""Replays Apache Kafka's metadata log: the records of `__cluster_metadata-0` and of its snapshots.

Each record's value is a frame: the frame's version, the record's kind and its version as unsigned
varints, then the message (AbstractApiMessageSerde, MetadataRecordSerde). The replay keeps only what
a broker needs to take over the node's partitions. Records of a metadata transaction (KIP-868) apply
once it has ended.
"""

from typing import Final

import msgspec

from logfleet.metadata.kinds.quotas import QuotaEntity
from logfleet.types import LeaderEpoch
from logfleet.wire.codec import decode
from logfleet.wire.errors import MalformedMessage, UnsupportedVersion
from logfleet.wire.messages import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from logfleet.wire.primitives import read_uvarint

FRAME_VERSION: Final = 1
LEADER_UNCHANGED: Final = -2
NEWEST_KIND: Final = 29
"""The newest record kind of Kafka 4.4 (UnregisterControllerRecord)."""
BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25
TOPIC_CONFIG: Final = 2
BROKER_CONFIG: Final = 4
GROUP_CONFIG: Final = 32
"""Kinds of resources in a ConfigRecord (ConfigResource.Type)."""


class UnreadableKraft(Exception):
    """A metadata record of Kafka that this version cannot read. The message is one line."""


class KraftPartition(msgspec.Struct):
    """replicas: broker ids. leader_epoch: of its newest leader."""

    replicas: tuple[int, ...]
    leader_epoch: LeaderEpoch


class KraftTopic(msgspec.Struct):
    """partitions by index; id: 16 bytes."""

    id: bytes
    name: str
    partitions: dict[int, KraftPartition]


class KraftMetadata:
    """The cluster after the records replayed so far. `replay` is the only mutator.

    configs: by kind and name of the resource ("" is the default of all brokers). acls: their ids.
    next_producer_id: the first producer id that no broker got.
    """

    def __init__(self) -> None:
        self.topics: dict[bytes, KraftTopic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.acls: set[bytes] = set()
        self.next_producer_id = 0
        self._transaction: list[bytes] | None = None

    def replay(self, value: bytes) -> None:
        """Apply the next record's value. Raises UnreadableKraft."""
        try:
            frame, position = read_uvarint(value, 0)
            kind, position = read_uvarint(value, position)
            version, position = read_uvarint(value, position)
        except (MalformedMessage, IndexError) as error:
            raise UnreadableKraft(f"a metadata record is unreadable: {error}") from error
        if frame != FRAME_VERSION or kind > NEWEST_KIND:
            raise UnreadableKraft(
                f"a metadata record of kind {kind} in a frame of version {frame} is newer than "
                "Kafka 4.4"
            )
        if kind == BEGIN_TRANSACTION:
            self._transaction = []
        elif kind == ABORT_TRANSACTION:
            self._transaction = None
        elif kind == END_TRANSACTION:
            ended, self._transaction = self._transaction or [], None
            for each in ended:
                self.replay(each)
        elif self._transaction is not None:
            self._transaction.append(value)
        else:
            self._apply(kind, version, value, position)

    def _apply(self, kind: int, version: int, value: bytes, position: int) -> None:
        cls = _KINDS.get(kind)
        if cls is None:
            return
        try:
            record, _ = decode(cls, version, value, position)
        except (MalformedMessage, UnsupportedVersion) as error:
            raise UnreadableKraft(f"a metadata record is unreadable: {error}") from error
        match record:
            case TopicRecord():
                self.topics[record.topic_id] = KraftTopic(record.topic_id, record.name, {})
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case PartitionRecord():
                self._topic(record.topic_id).partitions[record.partition_id] = KraftPartition(
                    tuple(record.replicas), LeaderEpoch(record.leader_epoch)
                )
            case PartitionChangeRecord():
                self._change(record)
            case ConfigRecord():
                self._configure(record)
            case ClientQuotaRecord():
                self._limit(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case AccessControlEntryRecord():
                self.acls.add(record.id)
            case RemoveAccessControlEntryRecord():
                self.acls.discard(record.id)

    def _topic(self, topic_id: bytes) -> KraftTopic:
        try:
            return self.topics[topic_id]
        except KeyError:
            raise UnreadableKraft(
                f"a metadata record names topic {topic_id.hex()}, which is not there"
            ) from None

    def _remove_topic(self, topic_id: bytes) -> None:
        removed = self._topic(topic_id)
        del self.topics[topic_id]
        self.configs.pop((TOPIC_CONFIG, removed.name), None)

    def _change(self, record: PartitionChangeRecord) -> None:
        """Apply a change. Each named leader raises the epoch, even if it is the same broker.

        Source: PartitionRegistration.merge.
        """
        partition = self._topic(record.topic_id).partitions.get(record.partition_id)
        if partition is None:
            raise UnreadableKraft(
                f"a metadata record changes partition {record.partition_id}, which is not there"
            )
        if record.replicas is not None:
            partition.replicas = tuple(record.replicas)
        if record.leader != LEADER_UNCHANGED:
            partition.leader_epoch = LeaderEpoch(partition.leader_epoch + 1)

    def _configure(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = self.configs.setdefault(key, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[key]

    def _limit(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted((each.entity_type, each.entity_name) for each in record.entity))
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]


_KINDS: Final[dict[int, type[msgspec.Struct]]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
}
