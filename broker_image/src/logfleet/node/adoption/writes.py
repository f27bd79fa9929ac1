"""What `logfleet adopt` writes for a node that Apache Kafka left, and the problems that prevent it.

Kafka's files stay as they are, so Kafka can be started on them again until one of our brokers has
run. `cluster/id` is written last: a broker refuses data of a cluster that the store does not know.
So an interrupted adoption is simply repeated; its first transaction deletes what the earlier
attempt left.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from logfleet import __version__
from logfleet.config.broker_updates import base_key, problem_of
from logfleet.config.keys import ConfigError, UnavailableProtection
from logfleet.config.topic import validate_topic_configs
from logfleet.controller.brokers import feature_level
from logfleet.controller.brokers.feature_level import LEVEL_MAX
from logfleet.controller.changes.topics import name_problem
from logfleet.log.names import TopicPartition
from logfleet.metadata.kinds import configs
from logfleet.metadata.kinds.brokers import DIRECTORIES, DirectoriesValue
from logfleet.metadata.kinds.cluster import CLUSTER_ID, FEATURES, FeaturesValue
from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID
from logfleet.metadata.kinds.quotas import QUOTA, QuotaEntity
from logfleet.metadata.kinds.topics import (
    DELETED,
    NO_LEADER,
    PARTITION,
    READY,
    TOPIC,
    TOPIC_ID,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import TXN_BYTES_MAX, DeletePrefix, Put, Txn, absent
from logfleet.node.adoption.kraft import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    TOPIC_CONFIG,
    KraftMetadata,
    KraftPartition,
    KraftTopic,
)
from logfleet.quotas.entities import entity_problem, entity_text
from logfleet.types import NO_LEADER_EPOCH, BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

PUTS_PER_TXN: Final = 100
PUT_BYTES_PER_TXN: Final = TXN_BYTES_MAX // 2
"""A topic's configuration may take a quarter of a transaction."""
TRANSACTIONS: Final = "__transaction_state"
NO_EPOCH: Final = NO_LEADER_EPOCH
NO_BROKER_EPOCH: Final = BrokerEpoch(0)
"""The epoch of no registration: the broker's first start elects it again, under its own epoch."""
PRODUCER_ID_GAP: Final = 1 << 40
"""Our ids begin this far after Kafka's, so neither reuses the other's if Kafka is started again."""


class FoundLog(msgspec.Struct, frozen=True):
    """A partition's directory as found on disk.

    topic_id: text form, None if the file is missing. latest_epoch: NO_EPOCH if none is stored.
    has_aborted: it holds aborted transactions. has_open: it holds a transaction that has not ended.
    """

    directory: str
    partition: TopicPartition
    topic_id: str | None
    latest_epoch: LeaderEpoch
    size_bytes: int
    has_aborted: bool = False
    has_open: bool = False


class FoundDirectory(msgspec.Struct, frozen=True):
    """An entry of log.dirs.

    The ids are those of its meta.properties, as text. others: directories in it that belong to no
    partition.
    """

    path: str
    cluster_id: str
    node_id: int
    directory_id: str
    was_clean: bool
    logs: tuple[FoundLog, ...]
    others: tuple[str, ...] = ()


class AdoptedTopic(msgspec.Struct, frozen=True):
    """A topic to adopt.

    leader_epochs: one per partition, from index 0: the newer of the metadata's and the log's.
    """

    name: str
    id: str
    leader_epochs: tuple[LeaderEpoch, ...]
    size_bytes: int
    configs: Mapping[str, str]


class Adoption(msgspec.Struct, frozen=True):
    """What would be adopted.

    problems: sentences, each a reason why nothing is done. notes: sentences that a person should
    read. directories: `directory.id` of each log directory.
    """

    cluster_id: str
    node_id: int
    topics: tuple[AdoptedTopic, ...]
    broker_configs: Mapping[int | None, Mapping[str, str]]
    group_configs: Mapping[str, Mapping[str, str]]
    quotas: Mapping[QuotaEntity, Mapping[str, float]]
    next_producer_id: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    directories: tuple[str, ...]


def plan_adoption(
    directories: Sequence[FoundDirectory], kraft: KraftMetadata, *, level: int = LEVEL_MAX
) -> Adoption:
    """The adoption of a node, with its problems.

    directories: all of log.dirs, at least one. kraft: the content of Kafka's metadata log there.
    level: of the fleet that the node becomes.
    """
    problems = list(_identity_problems(directories))
    notes: list[str] = []
    first = directories[0]
    by_partition: dict[TopicPartition, list[FoundLog]] = {}
    for directory in directories:
        notes += _directory_notes(directory)
        for log in directory.logs:
            by_partition.setdefault(log.partition, []).append(log)
    topics = []
    for topic in sorted(kraft.topics.values(), key=lambda topic: topic.name):
        configs = kraft.configs.get((TOPIC_CONFIG, topic.name), {})
        problems += _topic_problems(topic, configs, first.node_id)
        topics.append(_adopted(topic, configs, by_partition, problems))
    notes += _strays(by_partition, kraft)
    if kraft.acls:
        problems.append(
            f"Kafka keeps {len(kraft.acls)} ACLs, and this version checks none, so everybody "
            "could do everything: "
            "if that is meant, remove them with kafka-acls --remove first"
        )
    problems += _unavailable_protection(kraft)
    has_coordinators = TRANSACTIONS in (each.name for each in topics)
    if level < feature_level.TRANSACTIONS:
        problems += _transaction_problems(directories, has_coordinators=has_coordinators)
    elif not has_coordinators:
        problems += _open_problems(directories)
    brokers, groups, more_notes = _configs(kraft)
    quotas, quota_notes = _quotas(kraft)
    return Adoption(
        cluster_id=first.cluster_id,
        node_id=first.node_id,
        topics=tuple(topics),
        broker_configs=brokers,
        group_configs=groups,
        quotas=quotas,
        next_producer_id=kraft.next_producer_id + PRODUCER_ID_GAP,
        problems=tuple(problems),
        notes=(*notes, *more_notes, *quota_notes),
        directories=tuple(each.directory_id for each in directories),
    )


def _identity_problems(directories: Sequence[FoundDirectory]) -> Iterator[str]:
    first = directories[0]
    for other in directories[1:]:
        if (other.cluster_id, other.node_id) != (first.cluster_id, first.node_id):
            yield (
                f"{other.path} belongs to node {other.node_id} of cluster {other.cluster_id}, "
                f"{first.path} of node "
                f"{first.node_id} of cluster {first.cluster_id}: give the log.dirs of one node"
            )
        if other.directory_id == first.directory_id:
            yield (
                f"{other.path} and {first.path} have the same directory.id: give each directory "
                "once"
            )


def _transaction_problems(
    directories: Sequence[FoundDirectory], *, has_coordinators: bool
) -> Iterator[str]:
    """What keeps a node from a fleet without transactions."""
    for directory in directories:
        for log in directory.logs:
            if log.has_aborted:
                yield (
                    f"{directory.path}/{log.partition} holds aborted transactions, which this "
                    "version could not hide from "
                    "consumers: wait until retention has removed them, or delete the topic"
                )
    yield from _open_problems(directories)
    if has_coordinators and not all(each.was_clean for each in directories):
        yield (
            "Kafka was not stopped in order and its clients used transactions, so nobody "
            "knows whether all have ended: "
            "start it once more and stop it in order"
        )


def _open_problems(directories: Sequence[FoundDirectory]) -> Iterator[str]:
    """A sentence for each log with an open transaction, which nobody would end."""
    for directory in directories:
        for log in directory.logs:
            if log.has_open:
                yield (
                    f"{directory.path}/{log.partition} holds a transaction that has not "
                    "ended: start Kafka, "
                    "let it end (or use kafka-transactions abort), stop Kafka in order and "
                    "try again"
                )


def _directory_notes(directory: FoundDirectory) -> Iterator[str]:
    if not directory.was_clean:
        yield (
            f"Kafka was not stopped in order: the logs in {directory.path} are checked from "
            "their recovery points on, "
            "as by its own next start, before they are adopted"
        )
    for name in directory.others:
        yield f"{directory.path}/{name} is left as it is: it belongs to no partition"


def _topic_problems(topic: KraftTopic, configs: Mapping[str, str], node_id: int) -> Iterator[str]:
    problem = name_problem(topic.name)
    if problem is not None:
        yield problem
    try:
        validate_topic_configs(configs)
    except ConfigError as error:
        yield f"topic {topic.name} cannot keep its configuration: {error.message}"
    if sorted(topic.partitions) != list(range(len(topic.partitions))) or not topic.partitions:
        yield f"topic {topic.name} has the partitions {sorted(topic.partitions)}, not all from 0 on"
    for index, partition in sorted(topic.partitions.items()):
        if partition.replicas != (node_id,):
            yield (
                f"{topic.name}-{index} has its replicas on {list(partition.replicas)}, not on "
                f"{node_id} alone: "
                "move it there with kafka-reassign-partitions first"
            )


def _adopted(
    topic: KraftTopic,
    configs: Mapping[str, str],
    found: Mapping[TopicPartition, Sequence[FoundLog]],
    problems: list[str],
) -> AdoptedTopic:
    """The topic; problems with its directories are appended to `problems`."""
    text_id, size, epochs = uuids.to_text(topic.id), 0, []
    for index, partition in sorted(topic.partitions.items()):
        name = TopicPartition(topic.name, index)
        logs = [log for log in found.get(name, ()) if log.topic_id in {None, text_id}]
        if not logs:
            problems.append(f"{name} has no directory: name all directories of log.dirs")
        if len(logs) > 1:
            problems.append(
                f"{name} is there twice, in {' and in '.join(log.directory for log in logs)}: "
                "start Kafka once more to let it end the move, or take one away"
            )
        size += sum(log.size_bytes for log in logs)
        epochs.append(_epoch(partition, logs))
    return AdoptedTopic(topic.name, text_id, tuple(epochs), size, dict(configs))


def _epoch(partition: KraftPartition, logs: Iterable[FoundLog]) -> LeaderEpoch:
    return max([partition.leader_epoch, *(log.latest_epoch for log in logs)])


def _strays(
    found: Mapping[TopicPartition, Sequence[FoundLog]], kraft: KraftMetadata
) -> Iterator[str]:
    by_name = {topic.name: topic for topic in kraft.topics.values()}
    for name, logs in sorted(found.items()):
        topic = by_name.get(name.topic)
        for log in logs:
            if topic is None:
                reason = "Kafka has no such topic"
            elif name.partition not in topic.partitions:
                reason = "its topic has fewer partitions"
            elif log.topic_id not in {None, uuids.to_text(topic.id)}:
                reason = f"it belongs to topic id {log.topic_id}"
            else:
                continue
            yield (
                f"{log.directory}/{name} will be set aside as a -stray directory, as Kafka would: "
                f"{reason}"
            )


def _configs(
    kraft: KraftMetadata,
) -> tuple[dict[int | None, dict[str, str]], dict[str, dict[str, str]], list[str]]:
    brokers: dict[int | None, dict[str, str]] = {}
    groups: dict[str, dict[str, str]] = {}
    notes = []
    for (kind, name), values in kraft.configs.items():
        if kind == BROKER_CONFIG:
            taken, left_out = _broker_configs(values)
            notes += left_out
            brokers[int(name) if name else None] = taken
        elif kind == GROUP_CONFIG:
            groups[name] = dict(values)
        elif kind != TOPIC_CONFIG:
            notes.append(
                f"the configs of {name} are left out: this version has no resources of kind {kind}"
            )
    return brokers, groups, notes


def _broker_configs(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The configs that our brokers take over, and a note on each of the others."""
    taken, notes = {}, []
    for key, value in values.items():
        if base_key(key) is None:
            notes.append(f"broker config {key} is left out: no broker knows it")
        elif (problem := problem_of(key, value)) is not None:
            # Kafka stores it too, logs that it could not be applied, and ignores it.
            notes.append(f"broker config {key} is left out: {problem.message}")
        else:
            taken[key] = value
    return taken, notes


def _unavailable_protection(kraft: KraftMetadata) -> Iterator[str]:
    """A sentence for each dynamic config that asks for protection that this version lacks."""
    for (kind, name), values in kraft.configs.items():
        for key, value in values.items():
            problem = problem_of(key, value) if kind == BROKER_CONFIG else None
            if isinstance(problem, UnavailableProtection):
                where = f"broker {name}" if name else "all brokers"
                yield (
                    f"Kafka keeps a config of {where}: {problem.message}; kafka-configs "
                    "--delete-config removes it"
                )


def _quotas(kraft: KraftMetadata) -> tuple[dict[QuotaEntity, dict[str, float]], list[str]]:
    """The quotas that are taken over, and a note on each of the others.

    Kafka resolves the host name of an ip entity; we do not.
    """
    taken, notes = {}, []
    for entity, limits in kraft.quotas.items():
        problem = entity_problem(entity)
        if problem is None:
            taken[entity] = limits
        else:
            notes.append(f"the quotas of {entity_text(entity)} are left out: {problem}")
    return taken, notes


def adoption_txns(adoption: Adoption) -> Iterator[Txn]:
    """The transactions to commit, in this order; all but the last may be done twice.

    If one does not succeed, the store has got a cluster meanwhile.
    """
    assert not adoption.problems, "what cannot be adopted is not written"
    condition = (absent(CLUSTER_ID.prefix),)
    emptied = tuple(DeletePrefix(prefix) for prefix in _PREFIXES)
    yield Txn(condition, emptied)
    puts: list[Put] = []
    size = 0
    for put in _puts(adoption):
        size += len(put.key) + len(put.value)
        if puts and (len(puts) == PUTS_PER_TXN or size > PUT_BYTES_PER_TXN):
            yield Txn(condition, tuple(puts))
            puts, size = [], len(put.key) + len(put.value)
        puts.append(put)
    yield Txn(condition, tuple(puts))
    features = FEATURES.put(None, FeaturesValue(LEVEL_MAX, __version__))
    yield Txn(condition, (features, CLUSTER_ID.put(None, adoption.cluster_id)))


_PREFIXES: Final = (
    TOPIC.prefix,
    TOPIC_ID.prefix,
    PARTITION.prefix,
    READY.prefix,
    DELETED.prefix,
    configs.BROKER_CONFIG.prefix,
    configs.GROUP_CONFIG.prefix,
    QUOTA.prefix,
    DIRECTORIES.prefix,
)


def _puts(adoption: Adoption) -> Iterator[Put]:
    replica = adoption.node_id
    yield DIRECTORIES.put(replica, DirectoriesValue(adoption.directories))
    for topic in adoption.topics:
        topic_id = uuids.from_text(topic.id)
        yield TOPIC.put(topic.name, TopicValue(topic.id, dict(topic.configs)))
        yield TOPIC_ID.put(topic_id, topic.name)
        for index, epoch in enumerate(topic.leader_epochs):
            value = PartitionValue(
                (replica,), ((replica, NO_BROKER_EPOCH),), NO_LEADER, epoch, PartitionEpoch(0), 1
            )
            yield PARTITION.put((topic_id, index), value)
        yield READY.put(topic_id, ReadyValue(len(topic.leader_epochs)))
    for broker, values in adoption.broker_configs.items():
        yield configs.BROKER_CONFIG.put(broker, dict(values))
    for group, values in adoption.group_configs.items():
        yield configs.GROUP_CONFIG.put(group, dict(values))
    for entity, limits in adoption.quotas.items():
        yield QUOTA.put(entity, dict(limits))
    yield NEXT_PRODUCER_ID.put(None, adoption.next_producer_id)
