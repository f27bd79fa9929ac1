"""Makes one Cluster match its spec: reads, plans, acts, repeats; then writes the status. SHELL."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, assert_never

import structlog
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.plan import PartitionHealth, Reason, SpecRefusal

from logfleet_operator import conditions, names
from logfleet_operator.accepted import EffectiveSpec, checked_against_objects
from logfleet_operator.clusters import certificates, members
from logfleet_operator.clusters.cluster_reader import Readiness, accepted_cluster, observe
from logfleet_operator.clusters.etcd_client import Etcds, EtcdUnavailable, etcd_access
from logfleet_operator.clusters.etcd_maintenance import EtcdMaintenance
from logfleet_operator.clusters.may_i import Deciders, ask
from logfleet_operator.clusters.moves import Movers, MovesUnavailable, Relocation
from logfleet_operator.clusters.observed import (
    EtcdMember,
    ObjectConflict,
    ObservedCluster,
    Rewriting,
    rewriting,
)
from logfleet_operator.clusters.plan import plan_cluster
from logfleet_operator.clusters.refusals import as_one_refusal
from logfleet_operator.clusters.rollout import DeletePod, EvictPod
from logfleet_operator.clusters.shrinking import State, state_of
from logfleet_operator.clusters.steps import (
    Action,
    AddMember,
    Apply,
    ClusterPlan,
    Delete,
    GrowClaim,
    IssueCertificate,
    MakeAuthority,
    MarkClaim,
    RemoveMember,
    Stage,
    Uncordon,
    UnregisterBroker,
    refused,
    target,
    with_refusal,
)
from logfleet_operator.clusters.volumes import size_of
from logfleet_operator.documents import read_cluster
from logfleet_operator.event_text import EventText
from logfleet_operator.events import Events, stateful_set_event, status_events
from logfleet_operator.kube import Kube, KubeConflict, KubeError, KubeUnavailable
from logfleet_operator.names import Manifest
from logfleet_operator.ownership import OTHERS_RECHECK_S, Ownership
from logfleet_operator.settings import Settings
from logfleet_operator.upgrades.feature_levels import FeatureLevels
from logfleet_operator.upgrades.rules import unmet
from logfleet_operator.writes import refuse_foreign, timestamp, write_status

# Each round carries out one stage of the plan; there are fewer stages than this.
ROUNDS_MAX: Final = 20
# For waits that no event ends, such as for a budget that allows an eviction again.
RECHECK_S: Final = 5.0
# An object that is stored differently than applied is applied again after this time: perhaps nobody
# rewrites it any more, which causes no event.
REWRITTEN_RECHECK: Final = timedelta(seconds=60)

NOT_DONE_LISTED_MAX: Final = 5

NotDone = dict[tuple[str, str], KubeError | ObjectConflict]
"""(kind, name) -> why this object could not be created or removed; the others still are."""

EVENT_REASONS: Final = {
    State.DRAINING: "DrainBegun",
    State.DRAINED: "BrokerEmpty",
    State.FORGOTTEN: "BrokerForgotten",
}
"""Drain state -> the reason of its Event."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ClusterReconciler:
    """notices, partition_health, warnings: (namespace, Cluster) -> what topics add to its status.

    partition_health: what partitions lack; None if no broker has answered.
    """

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        deciders: Deciders,
        etcds: Etcds,
        movers: Movers,
        *,
        ownership: Ownership,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._kube = kube
        self._ownership = ownership
        self._settings = settings
        self._deciders = deciders
        self._etcds = etcds
        self._relocation = Relocation(movers)
        self._levels = FeatureLevels(movers)
        self._maintenance = EtcdMaintenance(etcds, lambda: self._now().timestamp())
        self._now = now or (lambda: datetime.now(UTC))
        self._events = Events(kube, settings.identity, now=self._now)
        self._readiness = Readiness()
        self.notices: dict[tuple[str, str], str] = {}
        self.partition_health: dict[tuple[str, str], PartitionHealth | None] = {}
        self.warnings: dict[tuple[str, str], str] = {}
        # (namespace, Cluster) -> (kind, name) -> how the stored object differs from the last apply.
        self._rewritings: dict[tuple[str, str], dict[tuple[str, str], Rewriting]] = {}

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Take the Cluster as far as it goes now.

        Returns seconds until the next check without an event; None: not needed. Raises
        KubeUnavailable, KubeError, or the exception of a bug: the caller retries later.
        """
        live = await self._kube.get("Cluster", namespace, name)
        if live is not None and "deletionTimestamp" not in live["metadata"]:
            live = await self._ownership.take(live)
            if live is None:
                return OTHERS_RECHECK_S
        if live is None or "deletionTimestamp" in live["metadata"]:
            self._rewritings.pop((namespace, name), None)
            self._readiness.remove(namespace, name)
            self._ownership.remove(namespace, name)
            return None
        now = timestamp(self._now())
        try:
            spec = await self._effective_spec(live)
            not_done: NotDone = {}
            observed, spec, plan = await self._advance(live, spec, not_done)
            cluster = spec.cluster
            if plan.done:
                await self._maintain(live, cluster, observed, plan)
            plan = await self._spread(live, cluster, plan)
            plan = await self._level(live, cluster, plan)
            for refusal, at_last in _refusals(spec, not_done, plan):
                plan = with_refusal(plan, refusal, at_last)
            status = conditions.cluster_status(live, cluster, observed, plan, now)
        except InvalidResourceError as error:
            await self._fail(live, Reason.INVALID, str(error), now)
            return None
        except ObjectConflict as error:
            await self._fail(live, Reason.CONFLICT, str(error), now)
            return RECHECK_S
        except KubeError as error:
            await self._fail(live, Reason.PROGRESSING, f"Kubernetes refuses: {error}", now)
            raise
        except KubeUnavailable as error:
            sentence = f"Kubernetes cannot do it now: {error}"
            await self._write(live, conditions.postponed(live, sentence, now))
            raise
        except Exception as error:
            # Report it, so that no stale Ready stays in the status; the worker logs it.
            sentence = f"the operator cannot go on: {error!r}"
            await self._fail(live, Reason.PROGRESSING, sentence, now)
            raise
        await self._report(live, status, now)
        if plan.actions or plan.stage.is_progress:
            return RECHECK_S
        for what in not_done.values():
            if isinstance(what, KubeError):
                raise what  # reported; the caller retries with a growing delay
            return RECHECK_S
        return REWRITTEN_RECHECK.total_seconds() if observed.rewritings else None

    async def _maintain(
        self, live: Manifest, cluster: ClusterResource, observed: ObservedCluster, plan: ClusterPlan
    ) -> None:
        """Periodic work once all brokers are ready, whatever the spec says."""
        if event := await self._maintenance.run_step(cluster, observed):
            await self._events.write(live, event)
        for each in await self._relocation.unregister_leftovers(cluster, observed, plan.ranges):
            event = EventText("Normal", EVENT_REASONS[State.FORGOTTEN], f"broker {each}", str(each))
            await self._events.write(live, event)

    async def _effective_spec(self, live: Manifest) -> EffectiveSpec:
        """The Cluster to act on. Raises InvalidResourceError if no spec was ever accepted."""
        try:
            return EffectiveSpec(read_cluster(live))
        except InvalidResourceError as error:
            before = await accepted_cluster(self._kube, live)
            if before is None:
                raise
            return EffectiveSpec(before, SpecRefusal(Reason.INVALID, str(error)))

    async def _spread(
        self, live: Manifest, cluster: ClusterResource, plan: ClusterPlan
    ) -> ClusterPlan:
        """Once all brokers are ready, give new ones their share of replicas."""
        if not plan.done:
            return plan
        progress = None
        if conditions.spreads(live, cluster):
            progress = await self._relocation.spread(cluster)
        if progress is None:
            return replace(plan, spread=True)
        return replace(
            plan, why=f"{plan.why}; they get their share: {progress}", stage=Stage.SPREADING
        )

    async def _level(
        self, live: Manifest, cluster: ClusterResource, plan: ClusterPlan
    ) -> ClusterPlan:
        """Once all brokers are ready and up to date, raise the feature level as the spec asks."""
        if not plan.done:
            return plan
        known = int(live.get("status", {}).get("featureLevel", 0))
        level = await self._levels.check(cluster)
        obstacle = unmet(cluster.spec.feature_level, level, known)
        if not obstacle:
            return replace(plan, level=level)
        stage = Stage.RAISING if plan.stage is Stage.DONE else plan.stage
        return replace(plan, why=f"{plan.why}; {obstacle}", stage=stage, level=level)

    async def _advance(
        self, live: Manifest, spec: EffectiveSpec, not_done: NotDone
    ) -> tuple[ObservedCluster, EffectiveSpec, ClusterPlan]:
        """Plan and act until nothing is left to do now, or a pod was removed.

        not_done: receives the objects whose change was refused.
        """
        metadata = spec.cluster.metadata
        etcd_answers = True
        fleet = None
        for turn in range(ROUNDS_MAX):
            known = self._recent_rewritings(metadata.namespace, metadata.name)
            observed = await observe(self._kube, spec.cluster, known, self._readiness, self._now())
            observed = replace(observed, refused=frozenset(not_done))
            spec = checked_against_objects(spec, live, observed)
            cluster = spec.cluster
            if spec.refusal is not None and not spec.acts:
                return observed, spec, refused(spec.refusal)
            if turn == 0:
                fleet = await self._relocation.drain_step(cluster, observed)
            leave = await ask(self._deciders, cluster, observed)
            listed = await self._members(cluster, observed) if etcd_answers else None
            observed = replace(observed, leave=leave, members=listed, fleet=fleet)
            due = self._due(metadata.name, observed)
            plan = plan_cluster(cluster, observed, self._settings, renew=due)
            try:
                etcd_answers &= await self._carry_out(live, cluster, observed, plan, not_done)
            except MovesUnavailable as error:
                log.warning("brokers_not_changed", cluster=metadata.name, error=str(error))
                plan = replace(plan, why=f"{plan.why}; no broker does it: {error}")
                return observed, spec, plan
            if plan.actions:
                log.info(
                    "cluster_changed",
                    namespace=metadata.namespace,
                    cluster=metadata.name,
                    why=plan.why,
                    actions=len(plan.actions),
                )
            disturbed = any(isinstance(action, EvictPod | DeletePod) for action in plan.actions)
            if not plan.actions or disturbed:
                break
        return observed, spec, plan

    async def _carry_out(
        self,
        live: Manifest,
        cluster: ClusterResource,
        observed: ObservedCluster,
        plan: ClusterPlan,
        not_done: NotDone,
    ) -> bool:
        """Perform the plan's actions in order; False once etcd fails. Raises MovesUnavailable."""
        for action in plan.actions:
            try:
                event = await self._perform(cluster, observed, action)
            except EtcdUnavailable as error:  # repaired later, and the rest goes on
                log.warning("member_not_changed", cluster=cluster.metadata.name, error=str(error))
                return False
            except (KubeError, ObjectConflict) as error:
                key = target(action)
                if key is None or key in not_done or isinstance(error, KubeConflict):
                    raise
                log.warning("object_refused", kind=key[0], name=key[1], error=str(error))
                not_done[key] = error
                continue
            if event is not None:
                await self._events.write(live, event)
            elif isinstance(action, EvictPod):
                break  # the budget forbids it: leave the rest of the wave, too
        return True

    def _recent_rewritings(self, namespace: str, cluster: str) -> dict[tuple[str, str], Rewriting]:
        oldest = self._now() - REWRITTEN_RECHECK
        known = self._rewritings.pop((namespace, cluster), {})
        recent = {key: found for key, found in known.items() if found.at > oldest}
        if recent:
            self._rewritings[namespace, cluster] = recent
        return dict(recent)

    def _due(self, cluster: str, observed: ObservedCluster) -> frozenset[str]:
        """Secrets whose certificate ends soon or is unreadable. A lost authority shows only then.

        The certificates themselves count: an annotation can be removed, or written by anybody.
        """
        ends = observed.ends
        authority = ends.get(names.etcd_secret(cluster, "ca"), datetime.max.replace(tzinfo=UTC))
        now = self._now()
        return frozenset(
            name
            for name in observed.secrets
            if name not in ends or certificates.is_renewed(ends[name], authority, now)
        )

    async def _perform(
        self, cluster: ClusterResource, observed: ObservedCluster, action: Action
    ) -> EventText | None:
        """Perform one action. Returns its Event; None if it deserves none or was not done."""
        namespace = cluster.metadata.namespace
        match action:
            case Apply(manifest, new):
                if new:
                    await refuse_foreign(self._kube, cluster.metadata, manifest)
                stored = await self._kube.apply(manifest)
                self._compare(cluster, manifest, stored)
                return stateful_set_event(stored, new=new)
            case MakeAuthority(secret):
                await self._create(certificates.authority_secret(cluster, secret, self._now()))
                return None
            case IssueCertificate():
                authority = observed.secrets[action.authority]
                made_of = certificates.certificate_secret(cluster, authority, action, self._now())
                await self._kube.apply(made_of)
                ends = made_of["metadata"]["annotations"][names.EXPIRY_ANNOTATION]
                return EventText("Normal", "CertificateIssued", f"{action.secret}, until {ends}")
            case DeletePod(name, uid):
                log.info("pod_deleted", namespace=namespace, pod=name)
                await self._kube.delete("Pod", namespace, name, uid)
                return EventText(
                    "Normal", "PodDeleted", f"{name} is out of date and not ready", uid
                )
            case Delete(kind, name, uid):
                log.info("deleted", namespace=namespace, kind=kind, name=name)
                await self._kube.delete(kind, namespace, name, uid)
                return EventText(
                    "Normal", "ObjectRemoved", f"{kind} {name} is not wanted any more", uid
                )
            case EvictPod(name, uid):
                allowed = await self._kube.evict_pod(namespace, name, uid)
                log.info("pod_evicted", namespace=namespace, pod=name, allowed=allowed)
                event = EventText("Normal", "PodEvicted", f"{name} is out of date", uid)
                return event if allowed else None
            case RemoveMember(name, id_):
                await self._etcds.remove(etcd_access(cluster, observed), id_)
                log.info("member_removed", namespace=namespace, member=name, id=id_)
                return EventText("Normal", "MemberRemoved", f"{name} lost its data", id_)
            case AddMember(name, peer_url):
                await self._etcds.add(etcd_access(cluster, observed), peer_url)
                log.info("member_added", namespace=namespace, member=name)
                return None
            case MarkClaim() | GrowClaim() | Uncordon() | UnregisterBroker():
                return await self._scale(cluster, observed, action)
            case _:
                assert_never(action)

    async def _scale(
        self,
        cluster: ClusterResource,
        observed: ObservedCluster,
        action: MarkClaim | GrowClaim | Uncordon | UnregisterBroker,
    ) -> EventText:
        """Perform an action on brokers that join or leave. Raises MovesUnavailable."""
        match action:
            case MarkClaim(name, state):
                await self._claim(cluster, observed, name, state)
                return EventText("Normal", EVENT_REASONS[State(state)], name, f"{name}/{state}")
            case GrowClaim(name, size):
                await self._claim(cluster, observed, name, None, size=size)
                return EventText("Normal", "VolumeGrows", f"{name} to {size}", f"{name}/{size}")
            case Uncordon(brokers, claims):
                await self._relocation.uncordon(cluster, brokers)
                for name in claims:
                    await self._claim(cluster, observed, name, "")
                ids = ", ".join(map(str, brokers))
                return EventText("Normal", "DrainCancelled", f"brokers {ids} are wanted again", ids)
            case UnregisterBroker(broker, claim):
                await self._relocation.unregister(cluster, broker)
                await self._claim(cluster, observed, claim, State.FORGOTTEN)
                return EventText(
                    "Normal", EVENT_REASONS[State.FORGOTTEN], f"broker {broker}", claim
                )

    async def _claim(
        self,
        cluster: ClusterResource,
        observed: ObservedCluster,
        name: str,
        state: str | None,
        *,
        size: str = "",
    ) -> None:
        """Write the broker's drain state and the requested size to its volume claim; nothing else.

        state: "" for none, None to keep it. size: "" to keep it. Both are always applied together:
        an apply removes what it leaves out.
        """
        live = next(each for each in observed.volumes if each["metadata"]["name"] == name)
        mark = state_of(live) if state is None else state
        metadata: Manifest = {"name": name, "namespace": cluster.metadata.namespace}
        if mark:
            metadata["annotations"] = {names.DRAIN_ANNOTATION: mark}
        claim: Manifest = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
        }
        if size := size or size_of(live):
            claim["spec"] = {"resources": {"requests": {"storage": size}}}
        await self._kube.apply(claim)

    async def _members(
        self, cluster: ClusterResource, observed: ObservedCluster
    ) -> tuple[EtcdMember, ...] | None:
        """The members, needed only to repair one; None if etcd does not answer, which is logged."""
        if members.lost(cluster, observed) is None:
            return None
        try:
            return await self._etcds.members(etcd_access(cluster, observed))
        except EtcdUnavailable as error:
            log.warning("etcd_unavailable", cluster=cluster.metadata.name, error=str(error))
            return None

    def _compare(self, cluster: ClusterResource, manifest: Manifest, stored: Manifest) -> None:
        """Remember that an object was stored differently: it is not applied again at once."""
        place = cluster.metadata.namespace, cluster.metadata.name
        key = manifest["kind"], manifest["metadata"]["name"]
        self._rewritings.get(place, {}).pop(key, None)
        found = rewriting(manifest, stored, self._now())
        if found is not None:
            self._rewritings.setdefault(place, {})[key] = found

    async def _create(self, manifest: Manifest) -> None:
        """Create an object; one created meanwhile stays, and is read in the next round."""
        try:
            await self._kube.create(manifest)
        except KubeConflict as error:
            log.info("exists_already", name=manifest["metadata"]["name"], error=str(error))

    async def _fail(self, live: Manifest, reason: Reason, sentence: str, now: str) -> None:
        await self._report(live, conditions.cluster_failed(live, reason, sentence, now), now)

    async def _report(self, live: Manifest, status: dict[str, Any], now: str) -> None:
        """Write a status with what topics add: brokers may work although the Cluster failed."""
        metadata = live["metadata"]
        key = metadata["namespace"], metadata["name"]
        conditions.add_partition_health(live, status, self.partition_health.get(key), now)
        others = (self.warnings.get(key, ""), self._maintenance.warnings.get(metadata["uid"], ""))
        if warnings := [warning for warning in others if warning]:
            status["warnings"] = [*status.get("warnings", ()), *warnings]
        notice = self.notices.get(key, "")
        conditions.add_notice(live, status, notice, now)
        await self._write(live, status)

    async def _write(self, live: Manifest, status: dict[str, Any]) -> None:
        if self._ownership.mine:
            status["operator"] = self._ownership.mine
        if live.get("status", {}) != status:
            await write_status(self._kube, live, status)
            for event in status_events(live.get("status", {}), status):
                await self._events.write(live, event)


def _refusals(
    spec: EffectiveSpec, not_done: NotDone, plan: ClusterPlan
) -> Iterator[tuple[SpecRefusal, Stage]]:
    """Why the Cluster does not match its spec although its plan goes on, each with its stage."""
    if spec.refusal is not None and spec.acts:
        yield spec.refusal, Stage.REFUSED
    if not_done:
        yield _refusal_of(not_done), Stage.REFUSED
    if plan.unmet:
        sizes = as_one_refusal(plan.unmet)
        yield sizes, Stage.GROWING if sizes.reason is Reason.PROGRESSING else Stage.REFUSED


def _refusal_of(not_done: NotDone) -> SpecRefusal:
    """The refusal for objects that could not be written; there is at least one."""
    messages = [
        str(error)
        if isinstance(error, ObjectConflict)
        else f"Kubernetes refuses {kind} {name}: {error}"
        for (kind, name), error in not_done.items()
    ]
    conflict = any(isinstance(error, ObjectConflict) for error in not_done.values())
    reason = Reason.CONFLICT if conflict else Reason.PROGRESSING
    return SpecRefusal(reason, "; ".join(messages[:NOT_DONE_LISTED_MAX]))
