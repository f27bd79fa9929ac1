"""Creating, growing and deleting topics: Kafka's checks, and the transactions.

A topic is created by writing its name, id and partitions, and last the number of its partitions
(`ready`). Until then nobody sees it, and a controller that finds an unfinished one removes it.
Growing works alike. Deleting removes everything at once and leaves a `deleted` key; brokers remove
logs only because of that key.

Checks, their order and their texts follow Kafka's ReplicationControlManager, Topic.validate and
ControllerApis.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from logfleet.config.keys import BROKER_KEYS, ConfigError
from logfleet.config.topic import BrokerLayers, validate_topic_configs
from logfleet.controller.brokers.cordons import is_cordoned
from logfleet.controller.changes.election_writes import min_isr
from logfleet.controller.changes.placement import NotEnoughBrokersError, place
from logfleet.controller.changes.store_writes import pack, partition_step
from logfleet.metadata.image import ClusterImage, DeletedTopic, Topic
from logfleet.metadata.kinds.topics import (
    DELETED,
    PARTITION,
    READY,
    TOPIC,
    TOPIC_ID,
    DeletedValue,
    ReadyValue,
    TopicValue,
    partitions_of,
)
from logfleet.metadata.packing import Step
from logfleet.metadata.store import (
    Compare,
    DeletePrefix,
    Txn,
    absent,
    exists,
    modified_at,
)
from logfleet.replication.election import first_state
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.internal_topics import METADATA_TOPIC
from logfleet.wire.refusal import Refusal

NAME_LENGTH_MAX: Final = 249
# Partitions that one request may create (Kafka: MAX_PARTITIONS_PER_BATCH).
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
# Of names and values of one resource's configs. A topic's are written with its first partitions.
CONFIG_BYTES_MAX: Final = 256 * 1024
UNLIMITED: Final = -1

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class NewTopic(msgspec.Struct, frozen=True):
    """One topic of a CreateTopics request.

    id: 16 bytes, new. start: a random number for placement. partitions, replication_factor: -1 for
    the default.
    assignments: partition index to its replicas, in the request's order; empty for automatic
    placement.
    """

    name: str
    id: bytes
    start: int
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: Mapping[str, str | None] = {}


class TopicCreation(msgspec.Struct, frozen=True):
    """A new topic. txns: the store transactions that create it, to be committed in order."""

    id: bytes
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    txns: tuple[Txn, ...]


def create_topic(
    image: ClusterImage, epoch: int, new: NewTopic, layers: BrokerLayers
) -> TopicCreation | Refusal:
    """epoch: the controller's. layers: the defaults, as on the controller's broker."""
    refusal = _refuse_name(image, new.name) or _refuse_configs(new.configs)
    if refusal is not None:
        return refusal
    configs = {name: value for name, value in new.configs.items() if value is not None}
    assignment = _assign(image, new, layers)
    if isinstance(assignment, Refusal):
        return assignment
    refusal = _refuse_growth(image, layers, topics=1, partitions=len(assignment))
    if refusal is not None:
        return refusal
    steps = [
        Step(TOPIC.put(new.name, TopicValue(uuids.to_text(new.id), configs))),
        Step(TOPIC_ID.put(new.id, new.name)),
        *_partition_steps(image, new.id, 0, assignment, _min_isr(configs, layers)),
        Step(READY.put(new.id, ReadyValue(len(assignment)))),
    ]
    txns = pack(
        epoch,
        steps,
        first=(absent(TOPIC.key(new.name)),),
        # the latter so that a late attempt undoes nothing of a topic that is complete
        rest=(exists(TOPIC_ID.key(new.id)), absent(READY.key(new.id))),
    )
    return TopicCreation(new.id, len(assignment), len(assignment[0]), configs, txns)


class NewPartitions(msgspec.Struct, frozen=True):
    """One topic of a CreatePartitions request.

    count: the new total. assignments: of the new partitions, if given.
    """

    name: str
    count: int
    start: int
    assignments: tuple[tuple[int, ...], ...] | None = None


def create_partitions(
    image: ClusterImage, epoch: int, new: NewPartitions, layers: BrokerLayers
) -> tuple[Txn, ...] | Refusal:
    """Return the store transactions that raise the topic's partitions to `count`, or a refusal.

    Unlike Kafka (KIP-895), it refuses internal topics: their records are assigned to partitions by
    a hash.
    """
    topic = image.topic(new.name)
    if topic is None:
        return unknown_topic()
    present = len(topic.partitions)
    if new.count == present:
        return Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if new.count < present:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {new.name} currently has {present} partition(s); {new.count} would not be "
            "an increase.",
        )
    if topic.is_internal:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The internal topic {new.name} keeps its {present} partition(s): where a group or "
            "transaction is stored depends on their number, so with more of them what is stored "
            "(committed offsets) would no longer be found.",
        )
    added = new.count - present
    if added > PARTITIONS_PER_REQUEST_MAX:
        return _too_many()
    if new.assignments is None:
        leaders = [partition.replicas[0] for partition in topic.partitions]
        assignment = _place(image, added, len(topic.partitions[0].replicas), new.start, leaders)
    elif len(new.assignments) != added:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(new.assignments)} "
            "assignment(s) were specified.",
        )
    else:
        factor = len(topic.partitions[0].replicas)
        assignment = _checked_assignment(image, new.assignments, present, factor)
    if isinstance(assignment, Refusal):
        return assignment
    refusal = _refuse_growth(image, layers, topics=0, partitions=added)
    if refusal is not None:
        return refusal
    steps = [
        *_partition_steps(image, topic.id, present, assignment, _min_isr(topic.configs, layers)),
        Step(READY.put(topic.id, ReadyValue(new.count))),
    ]
    unchanged = (modified_at(READY.key(topic.id), topic.ready_revision),)
    return pack(epoch, steps, first=unchanged, rest=unchanged)


def delete_topic(epoch: int, topic: Topic) -> Txn:
    """Remove all keys of the topic at once; `deleted/UUID` names the brokers that hold its logs."""
    brokers = sorted({broker for part in topic.partitions for broker in part.replicas})
    steps = [
        Step(DELETED.put(topic.id, DeletedValue(topic.name, tuple(brokers)))),
        *_removal(topic),
    ]
    return _one(epoch, steps, exists(TOPIC_ID.key(topic.id)))


def remove_unfinished(epoch: int, topic: Topic) -> Txn:
    """Remove a topic or new partitions that a failed controller left unfinished, seen by nobody."""
    if not topic.is_ready:
        return _one(epoch, _removal(topic), absent(READY.key(topic.id)))
    steps = [Step(PARTITION.delete((topic.id, index))) for index in sorted(topic.hidden)]
    unchanged = (modified_at(READY.key(topic.id), topic.ready_revision),)
    return pack(epoch, steps, first=unchanged)[0]


def confirm_deleted(deleted: DeletedTopic, broker_id: int) -> Txn:
    """A broker's own write: it has removed its logs. If it fails, repeat from a newer image."""
    step = without_broker(deleted, broker_id)
    return Txn(step.compares, (step.write,))


def without_broker(deleted: DeletedTopic, broker_id: int) -> Step:
    """The deleted topic no longer waits for this broker."""
    left = tuple(broker for broker in deleted.brokers if broker != broker_id)
    value = DeletedValue(deleted.name, left) if left else None
    return DELETED.change(deleted.id, value, deleted.revision)


def unknown_topic() -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    )


def name_problem(name: str) -> str | None:
    """Why a topic name is INVALID_TOPIC_EXCEPTION, None if it is valid (Kafka: Topic.validate)."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{NAME_LENGTH_MAX}"
        )
    if not _NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return None


def _refuse_name(image: ClusterImage, name: str) -> Refusal | None:
    if name == METADATA_TOPIC:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    problem = name_problem(name)
    if problem is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in image.ids:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        # Metric names turn dots into underscores, so both spellings cannot coexist (KAFKA-2337).
        folded = name.replace(".", "_")
        for topic in image.entries:
            if topic.name.replace(".", "_") == folded:
                return Refusal(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' collides with existing topic: {topic.name}",
                )
    return None


def _refuse_configs(configs: Mapping[str, str | None]) -> Refusal | None:
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    return refuse_topic_configs({name: value or "" for name, value in configs.items()})


def refuse_topic_configs(configs: Mapping[str, str]) -> Refusal | None:
    """Why a topic cannot have these configs, None if it can."""
    try:
        validate_topic_configs(configs)
    except ConfigError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, error.message)
    return refuse_length("Topic", configs)


def refuse_length(kind: str, configs: Mapping[str, str], name: str = "") -> Refusal | None:
    """Why a resource of that kind and name cannot have configs of this length; None if it can."""
    size = len(name.encode()) + sum(len((key + text).encode()) for key, text in configs.items())
    if size <= CONFIG_BYTES_MAX:
        return None
    message = f"{kind} configs are longer than {CONFIG_BYTES_MAX} bytes."
    return Refusal(ErrorCode.INVALID_CONFIG, message)


def _min_isr(configs: Mapping[str, str], layers: BrokerLayers) -> int:
    return min_isr(configs.get("min.insync.replicas"), layers)


def _assign(
    image: ClusterImage, new: NewTopic, layers: BrokerLayers
) -> Sequence[tuple[int, ...]] | Refusal:
    if new.assignments:
        return _manual(image, new)
    if new.replication_factor < -1 or new.replication_factor == 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partitions < -1 or new.partitions == 0:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    partitions = _or_default(new.partitions, "num.partitions", layers)
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        return _too_many()
    factor = _or_default(new.replication_factor, "default.replication.factor", layers)
    return _place(image, partitions, factor, new.start, ())


def refuse_request(topics: Iterable[NewTopic], layers: BrokerLayers) -> Refusal | None:
    """Why the whole request is refused: its topics have too many partitions together."""
    total = 0
    for topic in topics:
        asked = len(topic.assignments) or topic.partitions
        total += max(_or_default(asked, "num.partitions", layers), 0)
    return _too_many() if total > PARTITIONS_PER_REQUEST_MAX else None


def _refuse_growth(
    image: ClusterImage, layers: BrokerLayers, *, topics: int, partitions: int
) -> Refusal | None:
    """Why the cluster may not grow by these; None if it may. Counts only if a limit is set."""
    limit = _number("logfleet.topics.max", layers)
    if limit != UNLIMITED and topics and len(image.entries) + topics > limit:
        return _limit_refusal("topics", "logfleet.topics.max", limit)
    limit = _number("logfleet.partitions.max", layers)
    if limit != UNLIMITED:
        present = sum(len(topic.partitions) for topic in image.entries)
        if present + partitions > limit:
            return _limit_refusal("partitions", "logfleet.partitions.max", limit)
    return None


def _limit_refusal(what: str, key: str, limit: int) -> Refusal:
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"The cluster would have more {what} than {key}={limit} allows: delete some, or raise "
        "the limit.",
    )


def _number(key: str, layers: BrokerLayers) -> int:
    value = BROKER_KEYS[key].parse(layers.effective_value(key))
    assert isinstance(value, int), f"{key} is a number"
    return value


def _or_default(value: int, key: str, layers: BrokerLayers) -> int:
    return _number(key, layers) if value == -1 else value


def _too_many() -> Refusal:
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        "Excessively large number of partitions per request: at most "
        f"{PARTITIONS_PER_REQUEST_MAX}.",
    )


def _place(
    image: ClusterImage, partitions: int, factor: int, start: int, leaders: Sequence[int]
) -> Sequence[tuple[int, ...]] | Refusal:
    """Place on active brokers; if those are too few, on some that are fenced or leaving as well.

    Those join when they are back. Cordoned brokers get nothing.
    """
    there = {*image.brokers, *image.fences}
    may = {each for each in there if not is_cordoned(image, each)}
    racks = {
        broker.id: broker.rack
        for broker in image.brokers.values()
        if broker.is_active and broker.id in may
    }
    others = sorted(may - {*racks}) if racks else []
    racks.update(dict.fromkeys(others[: max(factor - len(racks), 0)]))
    try:
        return place(racks, partitions, factor, start=start, leaders=leaders)
    except NotEnoughBrokersError:
        error = NotEnoughBrokersError(factor, len(racks), there - may)
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, str(error))


def _manual(image: ClusterImage, new: NewTopic) -> Sequence[tuple[int, ...]] | Refusal:
    for value, name in (
        (new.replication_factor, "replication factor"),
        (new.partitions, "numPartitions"),
    ):
        if value != -1:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    by_index = dict(new.assignments)
    if len(by_index) < len(new.assignments):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for one partition",
        )
    wanted = [by_index[index] for index in sorted(by_index)]
    checked = _checked_assignment(image, wanted, 0, len(wanted[0]))
    if not isinstance(checked, Refusal) and sorted(by_index) != list(range(len(by_index))):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return checked


def _checked_assignment(
    image: ClusterImage, assignment: Sequence[tuple[int, ...]], first_index: int, factor: int
) -> Sequence[tuple[int, ...]] | Refusal:
    """The assignment if each partition has `factor` replicas, at least one of them active.

    Source: ReplicationControlManager.validateManualPartitionAssignment.
    """
    if len(assignment) > PARTITIONS_PER_REQUEST_MAX:
        return _too_many()
    for index, replicas in enumerate(assignment, first_index):
        refusal = refuse_assignment(image, replicas)
        if refusal is not None:
            return refusal
        if len(replicas) != factor:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a partition with {len(replicas)} "
                "replica(s), but this is not consistent with previous partitions, which have "
                f"{factor} replica(s).",
            )
        if first_state(replicas, image.brokers, 1) is None:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown.",
            )
    return assignment


def refuse_assignment(image: ClusterImage, replicas: Sequence[int]) -> Refusal | None:
    """Why a partition cannot have these brokers: each must be registered, and named once."""
    problem = _assignment_problem(image, replicas)
    if problem is None:
        return None
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}"
    )


def _assignment_problem(image: ClusterImage, replicas: Sequence[int]) -> str | None:
    if not replicas:
        return "an empty replica list."
    for broker_id in replicas:
        if replicas.count(broker_id) > 1:
            return f"the broker {broker_id} more than once."
        if broker_id not in image.brokers and broker_id not in image.fences:
            return f"broker {broker_id}, but no such broker is registered."
    return None


def _partition_steps(
    image: ClusterImage,
    topic_id: bytes,
    first_index: int,
    assignment: Sequence[tuple[int, ...]],
    min_isr: int,
) -> Iterator[Step]:
    for index, replicas in enumerate(assignment, first_index):
        value = first_state(replicas, image.brokers, min_isr)
        assert value is not None, "one of them is active"
        yield partition_step(image, PARTITION.key((topic_id, index)), value)


def _removal(topic: Topic) -> list[Step]:
    named = [Step(TOPIC.delete(topic.name))] if topic.revision else []
    return [
        *named,
        Step(TOPIC_ID.delete(topic.id)),
        Step(READY.delete(topic.id)),
        Step(DeletePrefix(partitions_of(topic.id))),
    ]


def _one(epoch: int, steps: Sequence[Step], compare: Compare) -> Txn:
    (txn,) = pack(epoch, steps, first=(compare,))
    return txn
