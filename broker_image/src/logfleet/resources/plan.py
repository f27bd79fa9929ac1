"""The actions that bring a fleet to what a resource asks for: pure, shared by operator and CLI.

`plan_topic` and `plan_cluster` compare a valid resource with what brokers report and return
actions, or a refusal with a reason, and one sentence that a person reads in `status` or on the
terminal. A refused resource changes nothing at all, not even its harmless parts: nobody asked for
half of a change.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from logfleet.resources.cluster import ClusterResource
from logfleet.resources.topic import TopicResource

RATE_OF_ADDED: Final = "logfleet.reassignment.throttled.rate"
"""Broker key: the rate limit for copying added replicas.

`Side.ADDED` of `logfleet.quotas.replication_quotas`.
"""
LONG_MAX: Final = 2**63 - 1
OF_MOVES: Final = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)
"""Topic keys that tools set and remove while they move replicas (KIP-73).

They are left alone unless the resource names them. Strimzi does the same.
"""


class Reason(StrEnum):
    """Why a resource is, or is not, Ready: the `reason` of its condition."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    INVALID = "Invalid"
    NOT_SUPPORTED = "NotSupported"
    CONFLICT = "Conflict"
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    CLUSTER_NOT_READY = "ClusterNotReady"
    DELETE_BLOCKED = "DeleteBlocked"
    WAITING_FOR_APPROVAL = "WaitingForApproval"
    STOPPED = "Stopped"
    OFFLINE_PARTITIONS = "OfflinePartitions"
    UNDER_MIN_ISR_PARTITIONS = "UnderMinIsrPartitions"
    UNDER_REPLICATED_PARTITIONS = "UnderReplicatedPartitions"


class SpecRefusal(msgspec.Struct, frozen=True):
    """Nothing is done; `message` tells what the user can write instead."""

    reason: Reason
    message: str


class PartitionHealth(msgspec.Struct, frozen=True):
    """Numbers of partitions that lack something, named as in Kafka's metrics.

    A partition may count in all three. lost: offline partitions of which no broker has a replica
    any more, though all their brokers run.
    """

    offline: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0
    lost: int = 0

    @property
    def reason(self) -> Reason | None:
        """What is worst; None if nothing is lacking."""
        if self.offline:
            return Reason.OFFLINE_PARTITIONS
        if self.under_min_isr:
            return Reason.UNDER_MIN_ISR_PARTITIONS
        return Reason.UNDER_REPLICATED_PARTITIONS if self.under_replicated else None

    def __str__(self) -> str:
        counts = (
            (self.offline, "without a leader (they cannot be used)"),
            (self.lost, "lost with the disks they were on (`logfleet partitions lost` names them)"),
            (self.under_min_isr, "with too few in-sync replicas for acks=all"),
            (self.under_replicated, "short of an in-sync replica"),
        )
        return ", ".join(f"{_partitions(count)} {lack}" for count, lack in counts if count)


class ObservedTopic(msgspec.Struct, frozen=True):
    """A topic as brokers report it.

    replicas: of each partition, counting moves as done; if they differ, the fewest, and
    replicas_most is the most. config: only keys set on the topic itself (DescribeConfigs source
    DYNAMIC_TOPIC_CONFIG).
    """

    topic_id: str
    partitions: int
    replicas: int
    config: dict[str, str]
    partition_health: PartitionHealth = PartitionHealth()
    replicas_most: int = 0

    def has_replicas(self, count: int) -> bool:
        """Whether every partition has this many."""
        return self.replicas == count == (self.replicas_most or self.replicas)


class CreateTopic(msgspec.Struct, frozen=True, tag=True):
    """replicas: None means the brokers' default (-1 in CreateTopics, KIP-464)."""

    name: str
    partitions: int
    replicas: int | None
    config: dict[str, str]


class GrowTopic(msgspec.Struct, frozen=True, tag=True):
    """partitions: their number afterwards, as in CreatePartitions (KIP-195)."""

    name: str
    partitions: int


class ReplicateTopic(msgspec.Struct, frozen=True, tag=True):
    """replicas: of each partition afterwards (KIP-860).

    The topic is written and read while new replicas are filled.
    """

    name: str
    replicas: int


class AlterTopicConfig(msgspec.Struct, frozen=True, tag=True):
    """Incremental (KIP-339): `set` these keys, `remove` those, leave the others."""

    name: str
    set: dict[str, str]
    remove: list[str]


class DeleteTopic(msgspec.Struct, frozen=True, tag=True):
    """topic_id: None if unknown; otherwise a topic with another id is not deleted."""

    name: str
    topic_id: str | None


TopicAction = CreateTopic | GrowTopic | ReplicateTopic | AlterTopicConfig | DeleteTopic


class TopicPlan(msgspec.Struct, frozen=True):
    """`actions` in order (empty: nothing to do), or a refusal; `why` in one sentence."""

    actions: list[TopicAction]
    why: str
    refusal: SpecRefusal | None = None

    @property
    def creates(self) -> bool:
        """Whether the topic does not exist yet."""
        return any(isinstance(action, CreateTopic) for action in self.actions)


def plan_topic(desired: TopicResource, observed: ObservedTopic | None) -> TopicPlan:
    """Return the actions that make the topic as `desired`. observed: None if it does not exist.

    An existing topic is adopted: from then on its configuration is the resource's.
    """
    refusal = _topic_refusal(desired, observed)
    if refusal is not None:
        return TopicPlan([], refusal.message, refusal)
    name, spec = desired.name, desired.spec
    if observed is None:
        create = CreateTopic(name, spec.partitions, spec.replicas, desired.config)
        return TopicPlan([create], f"creating {name} with {_partitions(spec.partitions)}")
    actions: list[TopicAction] = []
    sentences = []
    if spec.partitions > observed.partitions:
        actions.append(GrowTopic(name, spec.partitions))
        sentences.append(f"growing from {observed.partitions} to {_partitions(spec.partitions)}")
    if spec.replicas is not None and not observed.has_replicas(spec.replicas):
        actions.append(ReplicateTopic(name, spec.replicas))
        fewest, most = observed.replicas, observed.replicas_most or observed.replicas
        there = str(most) if fewest == most else f"{fewest} to {most}"
        sentences.append(f"changing replicas from {there} to {spec.replicas}")
    found = {
        key: value
        for key, value in observed.config.items()
        if key not in OF_MOVES or key in desired.config
    }
    changed, removed = config_difference(desired.config, found)
    if changed or removed:
        actions.append(AlterTopicConfig(name, changed, removed))
        sentences.append(f"changing {', '.join(sorted([*changed, *removed]))}")
    return TopicPlan(actions, "; ".join(sentences) or f"{name} is as written")


def _topic_refusal(desired: TopicResource, observed: ObservedTopic | None) -> SpecRefusal | None:
    spec = desired.spec
    if observed is not None and spec.partitions < observed.partitions:
        return SpecRefusal(
            Reason.NOT_SUPPORTED,
            f"spec.partitions: the topic has {observed.partitions} and partitions only grow; "
            f"write {observed.partitions} or more",
        )
    return None


def config_difference(
    wanted: Mapping[str, str], found: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return (keys to set with their values, keys to remove) that lead from found to wanted."""
    changed = {key: value for key, value in wanted.items() if found.get(key) != value}
    return changed, sorted(key for key in found if key not in wanted)


def claimants(
    topics: Iterable[TopicResource], recorded: Collection[str] = ()
) -> dict[str, TopicResource]:
    """Topic name -> the resource that may act on it: the oldest of those that name it.

    Topics of one Cluster only. Among resources of the same second, the one whose uid is in
    `recorded` (it holds the topic already) keeps it. Without creation times (a file on a laptop)
    the first name in alphabetical order wins, so that the result never depends on the order of
    reading.
    """

    def seniority(topic: TopicResource) -> tuple[str, bool, str, str]:
        # The API server writes creation times in UTC with whole seconds: text order is time order.
        seen = topic.metadata
        is_new = seen.uid not in recorded
        return seen.creation_timestamp, is_new, seen.namespace, seen.name

    oldest: dict[str, TopicResource] = {}
    for topic in topics:
        holder = oldest.get(topic.name)
        if holder is None or seniority(topic) < seniority(holder):
            oldest[topic.name] = topic
    return oldest


def conflict(loser: TopicResource, older: str) -> SpecRefusal:
    """The refusal of the younger of two resources that name one topic. older: the other's name."""
    younger = loser.metadata.name
    return SpecRefusal(
        Reason.CONFLICT,
        f"topic {loser.name} belongs to the older Topic {older}; delete Topic {younger} or make it "
        f"with another spec.topicName: deleting Topic {older} deletes the topic with its records, "
        "unless its deletionPolicy is Retain",
    )


class ObservedConfig(msgspec.Struct, frozen=True):
    """One broker key as DescribeConfigs reports it.

    read_only: only a restart changes it. cluster_wide: set dynamically for all brokers (source
    DYNAMIC_DEFAULT_BROKER_CONFIG). own: set for this broker alone (DYNAMIC_BROKER_CONFIG), which
    precedes what is set for all.
    """

    value: str | None
    read_only: bool
    cluster_wide: bool = False
    own: bool = False


class ObservedBroker(msgspec.Struct, frozen=True):
    """A registered broker. rack: None or its zone. config: all keys by name."""

    broker_id: int
    rack: str | None
    config: dict[str, ObservedConfig]


class AlterClusterConfig(msgspec.Struct, frozen=True, tag=True):
    """Incremental, for all brokers (the BROKER resource with the empty name)."""

    set: dict[str, str]
    remove: list[str]


class ClusterPlan(msgspec.Struct, frozen=True):
    """The plan for a fleet without an operator (a laptop): at most one change of dynamic keys.

    differences: sentences about what only a person, or the operator on Kubernetes, can change.
    """

    actions: list[AlterClusterConfig]
    differences: list[str]
    why: str


def plan_cluster(desired: ClusterResource, brokers: Sequence[ObservedBroker]) -> ClusterPlan:
    """Compare a Cluster with the running brokers; only dynamic configuration is changed."""
    differences = []
    if len(brokers) != desired.brokers:
        differences.append(f"spec.pools ask for {desired.brokers} brokers, {len(brokers)} run")
    racks = {broker.rack for broker in brokers if broker.rack is not None}
    if racks != set(desired.spec.zones):
        wanted, found = ", ".join(desired.spec.zones), ", ".join(sorted(racks))
        differences.append(f"spec.zones are {wanted or 'none'}, brokers run in {found or 'none'}")
    changed: dict[str, str] = {}
    # the keys through which spec.scaling.throttle limits the copying of added replicas
    of_moves = {RATE_OF_ADDED: str(min(desired.spec.scaling.bytes_per_s, LONG_MAX))}
    wanted_config = of_moves | desired.config
    for key, value in sorted(wanted_config.items()):
        entries = [broker.config.get(key) for broker in brokers]
        if all(entry is not None and (entry.own or entry.value == value) for entry in entries):
            continue
        if any(entry is None for entry in entries):
            if key in desired.config:
                differences.append(f"spec.config.{key}: brokers do not know this key")
        elif any(entry.read_only for entry in entries if entry is not None):
            seen = sorted({str(entry.value) for entry in entries if entry is not None})
            differences.append(
                f"spec.config.{key} is {value}, brokers run with {', '.join(seen)}; "
                "it changes only with a restart"
            )
        else:
            changed[key] = value
    removed = sorted(
        {
            key
            for broker in brokers
            for key, entry in broker.config.items()
            if entry.cluster_wide and key not in wanted_config
        }
    )
    actions = [AlterClusterConfig(changed, removed)] if changed or removed else []
    sentences = [f"changing {', '.join(sorted([*changed, *removed]))}"] if actions else []
    return ClusterPlan(actions, differences, "; ".join(sentences + differences) or "as written")


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count != 1 else ''}"
