"""Makes all topics of one Cluster match their Topics, by the ledger. SHELL.

One pass handles a whole Cluster: two Topics may claim one name, a deleted Topic is seen only by its
absence among the others, and one request to the brokers serves all. Its order makes a crash
harmless: the ledger's line is written before the topic is created, and removed after the topic is
deleted. If the API server refuses a Topic's line or status, only that Topic waits.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog
from logfleet.client.reconcile import topic_as_shown
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.document import GROUP, InvalidResourceError, Metadata
from logfleet.resources.plan import (
    DeleteTopic,
    ObservedTopic,
    PartitionHealth,
    Reason,
    SpecRefusal,
    TopicAction,
)
from logfleet.resources.topic import DeletionPolicy, TopicResource

from logfleet_operator import conditions, names
from logfleet_operator.admin import Admin, AdminFactory, AdminRefused, AdminUnavailable
from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.cluster_reader import accepted_cluster
from logfleet_operator.clusters.refusals import config_refusals
from logfleet_operator.documents import read_cluster, read_topic
from logfleet_operator.events import Events
from logfleet_operator.kube import Kube, Refused
from logfleet_operator.names import Manifest
from logfleet_operator.ownership import Ownership
from logfleet_operator.settings import Settings
from logfleet_operator.topics import ledger, topic_plan
from logfleet_operator.topics.ledger import (
    DeletionDecision,
    DeletionEvidence,
    DeletionPreconditions,
    Ledger,
    LedgerDamaged,
    LedgerLine,
)
from logfleet_operator.topics.ledger_store import LedgerStore
from logfleet_operator.topics.live_config import LiveConfig
from logfleet_operator.topics.topic_plan import TopicHolders, TopicsPlan
from logfleet_operator.topics.topic_statuses import TopicStatuses
from logfleet_operator.writes import timestamp

CRD_NAME: Final = f"topics.{GROUP}"
# Brokers learn of a new topic a moment after it was created.
RECHECK_S: Final = 0.5
UNAVAILABLE_S: Final = 3.0
# No event reports what partitions lack.
DEGRADED_S: Final = 10.0
# How many deletions of Topics are confirmed by a read at the same time.
READ_AT_ONCE: Final = 16

ClusterKey = tuple[str, str]
"""(namespace, Cluster's name)."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TopicsPass:
    """The input of one pass.

    found: the live Cluster. live: uid -> live Topic. topics: the valid ones. deleted_policies: uid
    -> policy in the delete events seen before this pass. lines: the ledger, written or not.
    """

    cluster: ClusterResource
    found: Manifest
    live: Mapping[str, Manifest]
    topics: tuple[TopicResource, ...]
    around: DeletionPreconditions
    deleted_policies: Mapping[str, DeletionPolicy]
    lines: Ledger

    @property
    def key(self) -> ClusterKey:
        return self.cluster.metadata.namespace, self.cluster.metadata.name


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of a pass. observed: the topics afterwards.

    refused: topic name -> why the brokers refuse the change, or Kubernetes the line.
    """

    claims: TopicHolders
    decision: DeletionDecision
    plan: TopicsPlan
    observed: Mapping[str, ObservedTopic]
    refused: Mapping[str, SpecRefusal]

    def verdict(self, topic: TopicResource) -> tuple[SpecRefusal | None, str]:
        """(why the Topic is not Ready, or None; the sentence for its status)."""
        name = topic.name
        if topic.metadata.uid in self.claims.losers:
            refusal = self.claims.losers[topic.metadata.uid]
        elif name in self.plan.waiting:
            refusal = topic_plan.waiting_refusal(name)
        elif name in self.refused:
            refusal = self.refused[name]
        else:
            wanted = self.plan.plans[name]
            if wanted.refusal is None and not wanted.actions:
                return topic_plan.as_served(wanted.why, self.observed[name])
            refusal = wanted.refusal or SpecRefusal(Reason.PROGRESSING, wanted.why)
        return refusal, refusal.message

    @property
    def is_at_rest(self) -> bool:
        """False if something is under way whose end causes no event."""
        moving = {name for name, wanted in self.plan.plans.items() if wanted.actions}
        leaving = {deletion.name for deletion in self.plan.deletions}
        return not (moving | leaving) - set(self.refused)

    @property
    def notice(self) -> str:
        """The reason why topics cannot be deleted, for the status; "" if there is none."""
        undeletable = [
            f"topic {deletion.name}: {self.refused[deletion.name].message}"
            for deletion in self.plan.deletions
            if deletion.name in self.refused
        ]
        return "; ".join(filter(None, [self.decision.blocked, *undeletable[:3]]))


class TopicReconciler:
    """notices: Cluster -> what blocks the deletion of its topics, for its status.

    partition_health: likewise, None if no broker answers. warnings: likewise.
    """

    def __init__(
        self,
        kube: Kube,
        admins: AdminFactory,
        settings: Settings,
        *,
        ownership: Ownership,
        monotonic: Callable[[], float],
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._kube = kube
        self._admins = admins
        self._ownership = ownership
        self._settings = settings
        self.notices: dict[ClusterKey, str] = {}
        self.partition_health: dict[ClusterKey, PartitionHealth | None] = {}
        self.warnings: dict[ClusterKey, str] = {}
        self._monotonic = monotonic
        self._now = now or (lambda: datetime.now(UTC))
        self._events = Events(kube, settings.identity, now=self._now)
        self._live = LiveConfig(self._events, monotonic)
        self._damaged: set[ClusterKey] = set()
        self._deleted_policies: dict[ClusterKey, dict[str, DeletionPolicy]] = {}
        self._missed_since: dict[ClusterKey, dict[str, float]] = {}
        self._held: dict[ClusterKey, frozenset[str]] = {}

    def on_topic_deleted(self, cluster: ClusterKey, uid: str, policy: DeletionPolicy) -> None:
        """Record that a watch saw the deletion of the Topic with this uid, and its policy then."""
        self._deleted_policies.setdefault(cluster, {})[uid] = policy

    async def reconcile(self, namespace: str, cluster_name: str) -> tuple[float | None, Refused]:
        """Take the topics of the Cluster as far as they go now.

        Returns when to check again, as ClusterReconciler does, and the refused objects to retry.
        """
        refused: Refused = {}
        statuses = TopicStatuses(self._kube, self._events, refused, timestamp(self._now()))
        return await self._pass(namespace, cluster_name, statuses, refused), refused

    async def reconcile_few(
        self, namespace: str, cluster_name: str, resources: Collection[str]
    ) -> bool:
        """Take these Topics (names of the resources) as far as they go now.

        False if the caller must reconcile all: a Topic is gone, claims another one's name or waits
        for its Cluster, or there are errors or slow changes. Raises what `reconcile` does.
        """
        read = await asyncio.gather(
            *(self._kube.get("Topic", namespace, name) for name in resources),
            self._kube.get("Cluster", namespace, cluster_name),
        )
        found, documents = read[-1], [each for each in read[:-1] if each is not None]
        if found is None or len(documents) < len(resources) or _obstacle(found):
            return False
        if not self._ownership.has(found):
            return False
        refused: Refused = {}
        statuses = TopicStatuses(self._kube, self._events, refused, timestamp(self._now()))
        live = {each["metadata"]["uid"]: each for each in documents}
        try:
            cluster = read_cluster(found)
            topics = tuple(topic_as_shown(read_topic(each)) for each in documents)
        except InvalidResourceError:
            return False
        store = LedgerStore(self._kube, cluster.metadata, refused)
        try:
            lines = await store.load()
        except LedgerDamaged:
            return False
        if not all(topic_plan.may_act_alone(topic, lines, cluster_name) for topic in topics):
            return False
        policies = {uid: ledger.policy_of(document) for uid, document in live.items()}
        lines = ledger.follow(lines, policies, {}, frozenset())
        claims = TopicHolders({topic.name: topic for topic in topics}, {})
        around = await self._preconditions(cluster)
        pass_ = TopicsPass(cluster, found, live, topics, around, {}, lines)
        try:
            outcome = await self._carry_out(pass_, store, lines, claims, DeletionDecision())
        except AdminUnavailable:
            return False
        await _write_statuses(pass_, outcome, statuses)
        return outcome.is_at_rest and not outcome.refused and not refused

    async def _pass(
        self, namespace: str, cluster_name: str, statuses: TopicStatuses, refused: Refused
    ) -> float | None:
        live = {
            topic["metadata"]["uid"]: topic
            for topic in await self._kube.list("Topic", namespace)
            if topic["spec"]["clusterRef"]["name"] == cluster_name
        }
        found = await self._kube.get("Cluster", namespace, cluster_name)
        key = namespace, cluster_name
        if found is None:
            self._drop_state(key)
            sentence = f"there is no Cluster {cluster_name} in namespace {namespace}"
            await statuses.fail_all(live.values(), Reason.CLUSTER_NOT_FOUND, sentence)
            return None
        if not self._ownership.has(found):
            self._drop_state(key)
            return None
        if "deletionTimestamp" in found["metadata"]:
            sentence = f"Cluster {cluster_name} is being deleted"
            await statuses.fail_all(live.values(), Reason.CLUSTER_NOT_READY, sentence)
            return None
        store = LedgerStore(self._kube, msgspec.convert(found["metadata"], Metadata), refused)
        try:
            deleted_policies, lines = await self._follow(store, key, live)
        except LedgerDamaged as error:
            self._damaged.add(key)
            self.notices[key] = str(error)
            await statuses.postpone(live.values(), Reason.CONFLICT, str(error))
            return None
        if key in self._damaged:
            self._damaged.remove(key)
            self.notices[key] = ""
        unwritten = store.unwritten(lines)
        statuses.instead = {lines[topic].uid: refusal for topic, refusal in unwritten.items()}
        try:
            # Use the accepted spec: a refused spec of the Cluster changes nothing here either.
            cluster = await accepted_cluster(self._kube, found) or read_cluster(found)
        except InvalidResourceError:
            sentence = f"Cluster {cluster_name} is not valid, see its status"
            await statuses.fail_all(live.values(), Reason.CLUSTER_NOT_READY, sentence)
            return None
        topics = await statuses.valid(live.values())
        around = await self._preconditions(cluster)
        pass_ = TopicsPass(cluster, found, live, topics, around, deleted_policies, lines)
        partition_health = self.partition_health[key] = await self._configure(cluster, found)
        self.warnings[key] = self._live.refused.get(cluster.metadata.uid, "")
        if obstacle := _obstacle(found):
            await _wait(pass_, statuses, f"Cluster {cluster_name} {obstacle}")
            return None
        try:
            after = await self._work(pass_, store, statuses)
        except AdminUnavailable as error:
            await _wait(pass_, statuses, f"no broker of {cluster_name} answers: {error}")
            return UNAVAILABLE_S
        if after is None and partition_health != PartitionHealth():
            return DEGRADED_S
        return after

    async def _configure(self, cluster: ClusterResource, found: Manifest) -> PartitionHealth | None:
        """Set the live configuration, and read what partitions lack; None without an answer."""
        if not found.get("status", {}).get("readyReplicas"):
            return None
        try:
            admin = await self._admins.open(manifests.bootstrap_address(cluster))
            try:
                if not cluster.spec.paused and not list(config_refusals(cluster)):
                    await self._live.apply(cluster, found, admin)
                return await admin.partition_health()
            finally:
                await admin.close()
        except AdminUnavailable:
            return None

    def _drop_state(self, key: ClusterKey) -> None:
        """Drop the state of a Cluster that is gone, since a later one is another Cluster."""
        for known in (
            self.notices,
            self.partition_health,
            self.warnings,
            self._deleted_policies,
            self._missed_since,
            self._held,
        ):
            known.pop(key, None)
        self._damaged.discard(key)

    async def _follow(
        self, store: LedgerStore, key: ClusterKey, live: Mapping[str, Manifest]
    ) -> tuple[Mapping[str, DeletionPolicy], Ledger]:
        """Write the Topics' deletion policies to the ledger, even if nothing else is done.

        Returns the policies in delete events seen so far, and the lines with all policies.
        """
        lines = await store.load()
        known = {*live, *(line.uid for line in lines.values())}
        seen = self._deleted_policies.get(key, {})
        deleted_policies = {uid: policy for uid, policy in seen.items() if uid in known}
        self._deleted_policies[key] = dict(deleted_policies)
        policies = {uid: ledger.policy_of(document) for uid, document in live.items()}
        held = self._held.get(key, frozenset()) & {line.uid for line in lines.values()}
        self._held[key] = held - live.keys()
        followed = ledger.follow(lines, policies, deleted_policies, self._held[key])
        await store.write(followed)
        return deleted_policies, followed

    async def _preconditions(self, cluster: ClusterResource) -> DeletionPreconditions:
        namespace = cluster.metadata.namespace
        crd = await self._kube.get("CustomResourceDefinition", "", CRD_NAME)
        space = await self._kube.get("Namespace", "", namespace)
        calm = self._settings.in_scope(namespace) and all(
            found is not None and "deletionTimestamp" not in found["metadata"]
            for found in (crd, space)
        )
        return DeletionPreconditions(
            crd=crd["metadata"]["uid"] if crd is not None else "",
            cluster=cluster.metadata.uid,
            calm=calm,
            confirmation=cluster.metadata.annotations.get(names.CONFIRM_ANNOTATION, ""),
        )

    async def _work(
        self, pass_: TopicsPass, store: LedgerStore, statuses: TopicStatuses
    ) -> float | None:
        written = pass_.lines
        alive = frozenset(pass_.live)
        claims = topic_plan.claims_of(pass_.topics, written, alive)
        gone = await self._confirm_gone(pass_, written, alive)
        evidence = DeletionEvidence(gone, self._missed(pass_.key, written, alive))
        lines, decision = topic_plan.decide(written, claims, alive, pass_.around, evidence)
        if decision.held:
            # Write this first: once lines of other Topics are written, fewer are missing at once.
            held = topic_plan.mark_held(written, decision)
            self._held[pass_.key] |= {held[name].uid for name in decision.held}
            await store.write(held)
            for name in decision.held:
                if not store.lines[name].held:
                    refusal = store.unwritten(held)[name]
                    self.notices[pass_.key] = f"{decision.blocked}; {refusal.message}"
                    await _wait(pass_, statuses, refusal.message)
                    return None
        # Only a confirmation deletes a held line; the mark stays in memory until it can be written.
        self._held[pass_.key] -= {lines[name].uid for name in decision.delete}
        outcome = await self._carry_out(pass_, store, lines, claims, decision)
        self.notices[pass_.key] = outcome.notice
        await _write_statuses(pass_, outcome, statuses)
        if not outcome.is_at_rest:
            return RECHECK_S
        if decision.uncertain:
            return ledger.EVENT_WITHIN_S
        return ledger.CONFIRM_WITHOUT_EVENT_S if outcome.refused else None

    async def _carry_out(
        self,
        pass_: TopicsPass,
        store: LedgerStore,
        lines: Ledger,
        claims: TopicHolders,
        decision: DeletionDecision,
    ) -> PassResult:
        """Write the ledger, act on the brokers, read the result, write the ledger."""
        concerned = {*claims.holders, *decision.delete}
        if not concerned:
            plan = topic_plan.plan_topics(claims, lines, decision, {}, pass_.around)
            await store.write(plan.lines)
            return PassResult(claims, decision, plan, {}, store.unwritten(plan.lines))
        admin = await self._admins.open(manifests.bootstrap_address(pass_.cluster))
        try:
            observed = await admin.describe(concerned)
            plan = topic_plan.plan_topics(claims, lines, decision, observed, pass_.around)
            await store.write(plan.lines)
            touched, refused = await self._act(pass_, admin, plan, store.unwritten(plan.lines))
            if touched:
                observed = {name: seen for name, seen in observed.items() if name not in touched}
                observed |= await admin.describe(touched)
                plan = topic_plan.plan_topics(claims, lines, decision, observed, pass_.around)
                await store.write(plan.lines)
        finally:
            await admin.close()
        refused |= store.unwritten(plan.lines)
        return PassResult(claims, decision, plan, observed, refused)

    async def _confirm_gone(
        self, pass_: TopicsPass, lines: Ledger, alive: frozenset[str]
    ) -> frozenset[str]:
        """Resources whose delete event was seen and that a read does not find."""
        namespace = pass_.cluster.metadata.namespace
        reported = [
            line
            for line in lines.values()
            if line.uid in pass_.deleted_policies and line.uid not in alive
        ]
        limit = asyncio.Semaphore(READ_AT_ONCE)

        async def is_gone(line: LedgerLine) -> bool:
            async with limit:
                found = await self._kube.get("Topic", namespace, line.name)
            return found is None or found["metadata"]["uid"] != line.uid

        answers = await asyncio.gather(*(is_gone(line) for line in reported))
        return frozenset(line.uid for line, gone in zip(reported, answers, strict=True) if gone)

    def _missed(self, key: ClusterKey, lines: Ledger, alive: frozenset[str]) -> Mapping[str, float]:
        """Uid -> seconds for which this operator's lists have missed the resource of a line."""
        now, before = self._monotonic(), self._missed_since.get(key, {})
        missing = {line.uid for line in lines.values()} - alive
        since = {uid: before.get(uid, now) for uid in missing}
        self._missed_since[key] = since
        return {uid: now - first for uid, first in since.items()}

    async def _act(
        self,
        pass_: TopicsPass,
        admin: Admin,
        plan: TopicsPlan,
        unwritten: Mapping[str, SpecRefusal],
    ) -> tuple[set[str], dict[str, SpecRefusal]]:
        """Carry out all actions whose line is in the ledger.

        Returns the topics acted on, and topic name -> the brokers' refusal.
        """
        todo: dict[str, list[TopicAction]] = {each.name: [each] for each in plan.deletions}
        todo |= {name: wanted.actions for name, wanted in plan.plans.items() if wanted.actions}
        todo = {name: actions for name, actions in todo.items() if name not in unwritten}
        refused: dict[str, SpecRefusal] = {}
        for name, actions in todo.items():
            try:
                await admin.perform(actions)
                done = [type(action).__name__ for action in actions]
                log.info("topic_changed", topic=name, actions=done)
                for action in actions:
                    await self._write_event(pass_, action)
            except AdminRefused as error:
                refused[name] = topic_plan.broker_refusal(actions, error)
                log.warning("topic_refused", topic=name, error=str(error))
        return set(todo), refused

    async def _write_event(self, pass_: TopicsPass, action: TopicAction) -> None:
        """Write an Event for the action: on the Topic that wants it, else on the Cluster."""
        of_topic = {topic.name: topic for topic in pass_.topics}
        holder = None if isinstance(action, DeleteTopic) else of_topic.get(action.name)
        document = pass_.found if holder is None else pass_.live[holder.metadata.uid]
        generation = str(document["metadata"].get("generation", 0))
        await self._events.write(document, topic_plan.event_of(action, generation))


def _obstacle(cluster: Manifest) -> str:
    """Why the Cluster's topics cannot be changed now, by its own object; "" for nothing."""
    if "deletionTimestamp" in cluster["metadata"]:
        return "is being deleted"
    if cluster["spec"].get("paused", False):
        return "is paused: nothing is changed"
    return "" if cluster.get("status", {}).get("readyReplicas") else "has no broker that is ready"


async def _write_statuses(pass_: TopicsPass, outcome: PassResult, statuses: TopicStatuses) -> None:
    """Write the statuses of all valid Topics."""
    for topic in pass_.topics:
        document = pass_.live[topic.metadata.uid]
        refusal, why = outcome.verdict(topic)
        holds = outcome.claims.holders.get(topic.name) is topic
        observed = outcome.observed.get(topic.name) if holds else None
        status = conditions.topic_status(
            document, topic, observed, refusal=refusal, why=why, now=statuses.now
        )
        await statuses.write(document, status)


async def _wait(pass_: TopicsPass, statuses: TopicStatuses, sentence: str) -> None:
    """Report to the valid Topics that they wait for the Cluster."""
    waiting = [pass_.live[topic.metadata.uid] for topic in pass_.topics]
    await statuses.postpone(waiting, Reason.CLUSTER_NOT_READY, sentence)
