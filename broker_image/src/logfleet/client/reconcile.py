"""Observes a fleet in the terms of `logfleet.resources`, and performs the actions of its plans.

Operator and command line both use it, so that a resource has the same effect either way.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from logfleet.client.admin import (
    BROKER_DEFAULT,
    Admin,
    ConfigEntry,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from logfleet.client.brokers.cordons import cordoned_brokers
from logfleet.client.errors import KafkaError
from logfleet.client.lost_partitions import find_lost
from logfleet.client.metadata import Node, Topic
from logfleet.client.offsets import TopicPartition
from logfleet.client.reassignments import (
    Moving,
    alter_reassignments,
    list_reassignments,
    target_of,
)
from logfleet.config.broker_updates import base_key
from logfleet.config.keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    canonical_values,
)
from logfleet.controller.changes.placement import add_replicas, drop_replicas
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import (
    AlterClusterConfig,
    AlterTopicConfig,
    CreateTopic,
    DeleteTopic,
    GrowTopic,
    ObservedBroker,
    ObservedConfig,
    ObservedTopic,
    PartitionHealth,
    ReplicateTopic,
    TopicAction,
)
from logfleet.resources.topic import TopicResource
from logfleet.wire.errors import ErrorCode
from logfleet.wire.uuids import from_text, to_text

GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
MIN_ISR: Final = "min.insync.replicas"
ALL_BROKERS: Final = ""  # the name of the BROKER resource that all brokers share


_KEYS: Final[Mapping[ResourceType, Callable[[str], ConfigKey | None]]] = {
    ResourceType.TOPIC: TOPIC_KEYS.get,
    ResourceType.BROKER: base_key,
    ResourceType.GROUP: GROUP_KEYS.get,
}


def config_as_shown(kind: ResourceType, config: Mapping[str, str]) -> dict[str, str]:
    """The configuration as brokers show it, so that different spellings are no difference."""
    return canonical_values(config, _KEYS[kind])


def topic_as_shown(desired: TopicResource) -> TopicResource:
    """The Topic with its configuration as brokers show it."""
    config = config_as_shown(ResourceType.TOPIC, desired.config)
    return replace(desired, spec=replace(desired.spec, config=config))


def cluster_as_shown(desired: ClusterResource) -> ClusterResource:
    """The Cluster with its configuration as brokers show it."""
    config = config_as_shown(ResourceType.BROKER, desired.config)
    return replace(desired, spec=replace(desired.spec, config=config))


async def observe_topic(admin: Admin, topic: Topic, moving: Moving) -> ObservedTopic | None:
    """The topic with its configuration; None if it was deleted meanwhile.

    moving: what is under way (`list_reassignments`). Raises ClientError.
    """
    try:
        entries = await admin.topic_config(topic.name)
    except KafkaError as error:
        if error.code in GONE:
            return None
        raise
    counts = [len(each) for each in targets(topic, moving)]
    config = own_config(entries)
    min_isr = int(entries[MIN_ISR].value or 1) if MIN_ISR in entries else 1
    lacking = partition_health([topic], {topic.name: min_isr})
    return ObservedTopic(
        to_text(topic.topic_id),
        len(topic.partitions),
        min(counts, default=0),
        config,
        lacking,
        max(counts, default=0),
    )


def targets(topic: Topic, moving: Moving) -> list[tuple[int, ...]]:
    """Replicas of each partition after the moves under way."""
    return [target_of(moving, topic.name, each.index, each.replicas) for each in topic.partitions]


async def observe_partition_health(admin: Admin) -> PartitionHealth:
    """The health of all partitions, internal topics included. Raises ClientError."""
    topics = [
        topic
        for topic in await admin.list_topics()
        if partition_health([topic], {}) != PartitionHealth()
    ]
    is_offline = any(partition_health([topic], {}).offline for topic in topics)
    lost = len(await find_lost(admin, topics)) if is_offline else 0
    names = [topic.name for topic in topics]
    found = await admin.topic_values(names, MIN_ISR) if names else {}
    lacking = partition_health(topics, {name: int(value) for name, value in found.items()})
    return msgspec.structs.replace(lacking, lost=lost)


def partition_health(topics: Iterable[Topic], min_isr: Mapping[str, int]) -> PartitionHealth:
    """The health of these topics. min_isr: min.insync.replicas by topic; 1 where it is missing."""
    remarks = Counter(
        remark
        for topic in topics
        for each in topic.partitions
        for remark in each.remarks(min_isr.get(topic.name, 1))
    )
    return PartitionHealth(**remarks)


def own_config(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """The keys that are set on the topic itself."""
    return {
        entry.name: entry.value
        for entry in entries.values()
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
    }


async def observe_brokers(admin: Admin) -> list[ObservedBroker]:
    """Every registered broker, by id, with all its configuration. Raises ClientError."""
    description = await admin.describe_cluster()
    return [await _observe_broker(admin, broker) for broker in description.brokers]


async def _observe_broker(admin: Admin, broker: Node) -> ObservedBroker:
    entries = await admin.config(ResourceType.BROKER, str(broker.id))
    config = {
        key.name: ObservedConfig(None, read_only=False, cluster_wide=False)
        for key in BROKER_KEYS.values()
        if key.is_shown_while_set
    }
    config |= {
        entry.name: ObservedConfig(
            entry.value,
            entry.read_only,
            cluster_wide=entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            own=entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG,
        )
        for entry in entries.values()
    }
    return ObservedBroker(broker.id, broker.rack, config)


async def perform_all(
    admin: Admin,
    actions: Sequence[TopicAction | AlterClusterConfig],
    *,
    validate_only: bool = False,
) -> None:
    """Perform actions in order; several only if brokers accept all of them (no DeleteTopic)."""
    if validate_only or len(actions) > 1:
        for action in actions:
            await perform(admin, action, validate_only=True)
    for action in () if validate_only else actions:
        await perform(admin, action)


async def perform(
    admin: Admin, action: TopicAction | AlterClusterConfig, *, validate_only: bool = False
) -> None:
    """Perform one action.

    validate_only: let brokers check it (not for DeleteTopic). Raises ClientError.
    """
    match action:
        case CreateTopic(name, partitions, replicas, config):
            count = BROKER_DEFAULT if replicas is None else replicas
            topic = NewTopic(name, partitions, count, config)
            await admin.create_topic(topic, validate_only=validate_only)
        case GrowTopic(name, partitions):
            await admin.create_partitions(name, partitions, validate_only=validate_only)
        case ReplicateTopic(name, replicas):
            await _replicate(admin, name, replicas, validate_only=validate_only)
        case AlterTopicConfig(name, changed, removed):
            await admin.alter_config(
                ResourceType.TOPIC,
                name,
                set_keys=changed,
                delete_keys=removed,
                validate_only=validate_only,
            )
        case AlterClusterConfig(changed, removed):
            await admin.alter_config(
                ResourceType.BROKER,
                ALL_BROKERS,
                set_keys=changed,
                delete_keys=removed,
                validate_only=validate_only,
            )
        case DeleteTopic(name, topic_id):
            assert not validate_only, "DeleteTopics has no such field"
            expected = from_text(topic_id) if topic_id else None
            await admin.delete_topic(name, topic_id=expected)
        case _:
            assert_never(action)


def _refuse_few(name: str, replicas: int, brokers: Collection[int], are_what: str) -> None:
    if replicas > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replicas} replicas need as many brokers, and {len(brokers)} {are_what}",
            subject=f"topic {name}",
        )


async def _replicate(admin: Admin, name: str, replicas: int, *, validate_only: bool) -> None:
    """Give every partition this many replicas, spread over racks and brokers.

    Those that have as many stay as they are.
    """
    racks = {node.id: node.rack for node in (await admin.describe_cluster()).brokers}
    _refuse_few(name, replicas, racks, "are registered")
    if validate_only:
        return
    topics = await admin.list_topics()
    topic = next((each for each in topics if each.name == name), None)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "", subject=f"topic {name}")
    moving = await list_reassignments(admin.client)
    cordoned = await cordoned_brokers(admin, racks)
    open_racks = {each: rack for each, rack in racks.items() if each not in cordoned}
    held = Counter(each for one in topics for ids in targets(one, moving) for each in ids)
    wanted = {}
    for each, there in zip(topic.partitions, targets(topic, moving), strict=True):
        lacking = replicas - len(there)
        if lacking > 0:
            candidates = {one: racks.get(one) for one in there} | open_racks
            closed = ", ".join(map(str, sorted(cordoned - set(there))))
            are = "take new ones or have one already"
            _refuse_few(
                name, replicas, candidates, f"{are}; cordoned are {closed}" if closed else are
            )
            after = (*there, *add_replicas(candidates, there, lacking, held, each.index))
            held.update(after[len(there) :])
        else:
            after = drop_replicas(racks, there, -lacking, each.leader, each.isr)
        if after != there:
            wanted[TopicPartition(name, each.index)] = after
    refused = await alter_reassignments(admin.client, wanted)
    for key, reason in refused.items():
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason, subject=str(key))
