"""Plans all Topics of one Cluster by its ledger and its brokers: which may act on what. PURE.

Two questions come before `logfleet.resources.plan.plan_topic` can plan one topic: which of several
resources holds a name, and whether a topic of that name still belongs to a deleted resource.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

import msgspec
from logfleet.resources.plan import (
    AlterTopicConfig,
    CreateTopic,
    DeleteTopic,
    GrowTopic,
    ObservedTopic,
    Reason,
    ReplicateTopic,
    SpecRefusal,
    TopicAction,
    TopicPlan,
    claimants,
    conflict,
    plan_topic,
)
from logfleet.resources.topic import TopicResource

from logfleet_operator.admin import AdminRefused
from logfleet_operator.event_text import EventText
from logfleet_operator.topics import ledger
from logfleet_operator.topics.ledger import (
    DeletionDecision,
    DeletionEvidence,
    DeletionPreconditions,
    Ledger,
    LedgerLine,
    line_for,
)


@dataclass(frozen=True, slots=True)
class TopicHolders:
    """holders: topic name -> the resource that may act. losers: uid -> the others' refusal."""

    holders: Mapping[str, TopicResource]
    losers: Mapping[str, SpecRefusal]


def claims_of(
    topics: Iterable[TopicResource], lines: Ledger, alive: frozenset[str]
) -> TopicHolders:
    """Find the resource that holds each topic. lines: as read; they name the present holders.

    A resource that exists (its uid is in `alive`) but is invalid keeps what it holds: a mistake in
    it must not hand its records over to another resource, which may be deleted.
    """
    listed = list(topics)
    invalid = alive - {topic.metadata.uid for topic in listed}
    kept = {name: line.name for name, line in lines.items() if line.uid in invalid}
    recorded = {line.uid for line in lines.values()}
    holders = claimants((topic for topic in listed if topic.name not in kept), recorded)
    older = {name: holder.metadata.name for name, holder in holders.items()} | kept
    losers = {
        topic.metadata.uid: conflict(topic, older[topic.name])
        for topic in listed
        if holders.get(topic.name) is not topic
    }
    return TopicHolders(holders, losers)


def may_act_alone(topic: TopicResource, lines: Ledger, cluster: str) -> bool:
    """Whether this Topic can be reconciled without the others.

    It must be of that Cluster, and the ledger must give its topic to it or to nobody.
    """
    if topic.spec.cluster_ref.name != cluster:
        return False
    line = lines.get(topic.name)
    if line is None:
        return topic.metadata.uid not in {each.uid for each in lines.values()}
    return line.uid == topic.metadata.uid and not line.deleting


def inherit(lines: Ledger, claims: TopicHolders, seen_gone: frozenset[str]) -> Ledger:
    """The lines; a resource that replaced another one of the same topic unseen takes its line.

    The new resource keeps the topic: no topic is deleted for absence while somebody visibly wants
    it. If the deletion of the old resource was seen (its uid is in `seen_gone`), it was meant: the
    line stays, and the topic is deleted first.
    """
    inherited = dict(lines)
    for name, topic in claims.holders.items():
        line = lines.get(name)
        if line is None or line.deleting or line.uid == topic.metadata.uid:
            continue
        if line.uid not in seen_gone:
            inherited[name] = msgspec.structs.replace(
                line,
                uid=topic.metadata.uid,
                name=topic.metadata.name,
                policy=topic.spec.deletion_policy,
            )
    return inherited


def decide(
    lines: Ledger,
    claims: TopicHolders,
    alive: frozenset[str],
    preconditions: DeletionPreconditions,
    evidence: DeletionEvidence,
) -> tuple[Ledger, DeletionDecision]:
    """(the lines after `inherit`, the decision about lines whose resource is gone).

    If a deletion is blocked, it may not have been meant: a Topic that is created again keeps its
    topic, even if the deletion of the old one was seen.
    """
    inherited = inherit(lines, claims, evidence.gone)
    decision = ledger.decide_deletions(inherited, alive, preconditions, evidence)
    if not decision.blocked:
        return inherited, decision
    meant = evidence.gone - {inherited[name].uid for name in decision.held}
    inherited = inherit(mark_held(inherited, decision), claims, meant)
    return inherited, ledger.decide_deletions(inherited, alive, preconditions, evidence)


def mark_held(lines: Ledger, decision: DeletionDecision) -> Ledger:
    """The lines, with those marked as held that only a confirmation deletes."""
    held = {name: msgspec.structs.replace(lines[name], held=True) for name in decision.held}
    return {**lines, **held}


@dataclass(frozen=True, slots=True)
class TopicsPlan:
    """lines: the ledger to write before anything else. deletions: topics whose line is deleting.

    plans: topic name -> what its holder needs. waiting: names whose former topic must be deleted
    first.
    """

    lines: Ledger
    deletions: tuple[DeleteTopic, ...]
    plans: Mapping[str, TopicPlan]
    waiting: frozenset[str]


def plan_topics(
    claims: TopicHolders,
    lines: Ledger,
    decision: DeletionDecision,
    observed: Mapping[str, ObservedTopic],
    preconditions: DeletionPreconditions,
) -> TopicsPlan:
    """Plan the next writes and actions. decision: of `ledger.decide_deletions`."""
    after = {name: line for name, line in lines.items() if name not in decision.forget}
    deletions = []
    for name in decision.delete:
        found = observed.get(name)
        if found is None or not _is_of(found, lines[name]):
            after.pop(name, None)
            continue
        after[name] = msgspec.structs.replace(lines[name], deleting=True)
        deletions.append(DeleteTopic(name, found.topic_id))
    plans: dict[str, TopicPlan] = {}
    waiting = set()
    for name, topic in claims.holders.items():
        line, found = after.get(name), observed.get(name)
        if line is not None and line.uid != topic.metadata.uid:
            waiting.add(name)
            continue
        plan = plan_topic(topic, found)
        plans[name] = plan
        if plan.refusal is None:
            known = found.topic_id if found is not None else ""
            after[name] = line_for(topic, preconditions.crd, preconditions.cluster, known)
    return TopicsPlan(after, tuple(deletions), plans, frozenset(waiting))


def _is_of(found: ObservedTopic, line: LedgerLine) -> bool:
    """False if somebody else created the topic again under the same name."""
    return line.topic_id in {"", found.topic_id}


def broker_refusal(actions: Iterable[TopicAction], error: AdminRefused) -> SpecRefusal:
    """The refusal for a Topic whose topic the brokers did not change.

    The API server accepts no smaller number of partitions, though the topic never had the refused
    one.
    """
    sentence = f"the brokers refuse: {error}"
    if error.code != "INVALID_CONFIG" and any(isinstance(action, GrowTopic) for action in actions):
        sentence += (
            "; if spec.partitions is too large by mistake, set deletionPolicy to Retain, delete "
            "this Topic and make it again: the topic stays with its records"
        )
    return SpecRefusal(Reason.INVALID, sentence)


def as_served(why: str, found: ObservedTopic) -> tuple[SpecRefusal | None, str]:
    """(why the Topic is not Ready, or None; the sentence), for a topic that is as its spec says.

    A topic with offline partitions is not Ready; one that only lacks replicas is, with a remark.
    """
    if found.partition_health.reason is None:
        return None, why
    sentence = f"{why}, but {found.partition_health}"
    if not found.partition_health.offline:
        return None, sentence
    return SpecRefusal(Reason.OFFLINE_PARTITIONS, sentence), sentence


def waiting_refusal(name: str) -> SpecRefusal:
    """The refusal for a Topic whose name still belongs to a deleted one."""
    return SpecRefusal(Reason.PROGRESSING, f"waiting until the former topic {name} is deleted")


def event_of(action: TopicAction, generation: str) -> EventText:
    """The Event of an action that was carried out."""
    match action:
        case CreateTopic(name, partitions):
            return EventText(
                "Normal", "TopicCreated", f"{name}, {partitions} partitions", generation
            )
        case GrowTopic(name, partitions):
            return EventText(
                "Normal", "TopicGrown", f"{name} has {partitions} partitions", generation
            )
        case ReplicateTopic(name, replicas):
            return EventText(
                "Normal", "TopicReplicas", f"{name} gets {replicas} replicas", generation
            )
        case AlterTopicConfig(name, changed, removed):
            keys = ", ".join(sorted([*changed, *removed]))
            return EventText("Normal", "TopicConfigChanged", f"{name}: {keys}", generation)
        case DeleteTopic(name, topic_id):
            return EventText("Normal", "TopicDeleted", name, topic_id or "")
        case _:
            assert_never(action)
