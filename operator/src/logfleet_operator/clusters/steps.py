"""The parts of a plan for a Cluster: actions, and the plan itself. PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters import manifests, pods
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.clusters.observed import ObservedCluster, differs
from logfleet_operator.clusters.rollout import DeletePod, EvictPod
from logfleet_operator.names import Manifest


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply this whole manifest by server-side apply.

    new: it was not among the Cluster's objects; an object of that name may belong to somebody else.
    """

    manifest: Manifest
    new: bool


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """Create the Secret with a new certificate authority."""

    secret: str


@dataclass(frozen=True, slots=True)
class IssueCertificate:
    """Create or renew the Secret with a certificate of the authority in the Secret `authority`."""

    secret: str
    authority: str
    common_name: str
    host_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with this uid, which is no longer wanted and holds no records."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Remove a member that lost its data from etcd's cluster. name: its pod's. id: etcd's."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class AddMember:
    """Add a member to etcd's cluster, which will start empty in the pod of this name."""

    name: str
    peer_url: str


@dataclass(frozen=True, slots=True)
class MarkClaim:
    """Write a broker's drain state, a `shrinking.State`, to its volume claim."""

    name: str
    state: str


@dataclass(frozen=True, slots=True)
class GrowClaim:
    """Request another size (a quantity) for a claim: more, or less than was asked in vain."""

    name: str
    size: str


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Uncordon these brokers, and remove the drain marks from their volume claims."""

    brokers: tuple[int, ...]
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Unregister this broker id, whose pod is gone, and mark its volume claim."""

    broker: int
    claim: str


class Stage(StrEnum):
    """The work under way; the reason of the condition Progressing."""

    MAKING = "MakingObjects"
    REMOVING = "RemovingObjects"
    STARTING = "StartingPods"
    REPLACING = "ReplacingPods"
    DRAINING = "DrainingBrokers"
    SPREADING = "SpreadingReplicas"
    RAISING = "RaisingFeatureLevel"
    GROWING = "GrowingVolumes"
    HEALING = "HealingMetadataStore"
    WAITING = "Waiting"
    DONE = "AsWritten"
    REFUSED = "Refused"
    PAUSED = "Paused"

    @property
    def is_progress(self) -> bool:
        return self not in {Stage.DONE, Stage.REFUSED, Stage.PAUSED}


Action = (
    Apply
    | MakeAuthority
    | IssueCertificate
    | EvictPod
    | DeletePod
    | Delete
    | RemoveMember
    | AddMember
    | MarkClaim
    | GrowClaim
    | Uncordon
    | UnregisterBroker
)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The next actions (none: wait, or nothing is left); why: a sentence for the status.

    stage: what is under way. ranges: for the status, empty if unknown. level: the brokers' feature
    level, None if they were not asked. unmet: parts of the spec that are not, or not yet, carried
    out while the rest is; see `resizing.unmet`. spread: new brokers have their share of replicas.
    """

    why: str
    actions: tuple[Action, ...] = ()
    refusal: SpecRefusal | None = None
    stage: Stage = Stage.WAITING
    ranges: tuple[BrokerIdRange, ...] = field(default=())
    level: FeatureLevel | None = None
    unmet: tuple[SpecRefusal, ...] = ()
    spread: bool = False

    @property
    def done(self) -> bool:
        """Whether the fleet works as the spec says; replicas may still move to new brokers."""
        return self.stage in {Stage.DONE, Stage.SPREADING}

    @property
    def paused(self) -> bool:
        return self.stage is Stage.PAUSED


def target(action: Action) -> tuple[str, str] | None:
    """(kind, name) of the action's object, if the rest can go on without it; else None.

    None for the record, which the next operator reads, and for actions of the last stages only.
    """
    match action:
        case Apply(manifest):
            metadata = manifest["metadata"]
            if metadata["labels"][names.COMPONENT_LABEL] == names.RECORD:
                return None
            return str(manifest["kind"]), str(metadata["name"])
        case Delete(kind, name):
            return kind, name
        case MarkClaim(name) | GrowClaim(name):
            return "PersistentVolumeClaim", name
        case IssueCertificate(secret):
            return "Secret", secret
        case _:
            return None


def without_refused(plan: ClusterPlan | None, observed: ObservedCluster) -> ClusterPlan | None:
    """The plan without the actions refused in this pass; None if no action is left."""
    if plan is None or not plan.actions:
        return plan
    actions = tuple(each for each in plan.actions if target(each) not in observed.refused)
    return replace(plan, actions=actions) if actions else None


def with_refusal(
    plan: ClusterPlan, refusal: SpecRefusal, at_last: Stage = Stage.REFUSED
) -> ClusterPlan:
    """The plan with a refusal added. at_last: its stage once all else is done."""
    if plan.paused:
        return plan
    why = refusal.message if plan.stage is Stage.DONE else f"{refusal.message}; {plan.why}"
    stage = at_last if plan.stage is Stage.DONE else plan.stage
    return replace(plan, why=why, stage=stage, refusal=plan.refusal or refusal)


def refused(refusal: SpecRefusal) -> ClusterPlan:
    return ClusterPlan(refusal.message, refusal=refusal, stage=Stage.REFUSED)


def applies(
    cluster: ClusterResource, observed: ObservedCluster, wanted: Iterable[Manifest]
) -> tuple[Action, ...]:
    """An Apply for each manifest that is not stored as wanted, unless a rewriting explains it."""
    actions: list[Action] = []
    for manifest in wanted:
        complete = manifests.owned(cluster.metadata, manifest)
        kind, name = complete["kind"], complete["metadata"]["name"]
        live = observed.get(kind, name)
        known = observed.rewritings.get((kind, name))
        if (kind, name) in observed.refused:
            continue
        if live is not None and known is not None and known.explains(complete, live):
            continue
        if live is None or differs(complete, live):
            actions.append(Apply(complete, new=live is None))
    return tuple(actions)


def making(actions: Sequence[Action], what: str) -> ClusterPlan | None:
    return ClusterPlan(f"making {what}", tuple(actions), stage=Stage.MAKING) if actions else None


def with_original_claims(observed: ObservedCluster, wanted: Manifest) -> Manifest:
    """The StatefulSet with the claim templates of the live one, since they cannot change."""
    live = observed.get("StatefulSet", wanted["metadata"]["name"])
    return pods.with_original_claims(wanted, live)


def with_unchanged_template(observed: ObservedCluster, wanted: Manifest) -> Manifest:
    """The StatefulSet; it keeps its live template if what a person wrote is the same as then.

    So another version of the operator, which builds pods differently, replaces no pod by itself.
    """
    live = observed.get("StatefulSet", wanted["metadata"]["name"])
    if live is None or not is_kept(observed, wanted):
        return wanted
    return {**wanted, "spec": {**wanted["spec"], "template": live["spec"]["template"]}}


def is_kept(observed: ObservedCluster, wanted: Manifest) -> bool:
    """Whether the pods stay as they were created, though this operator would build others.

    A template that somebody edited is put back: its digest is still this operator's.
    """
    live = observed.get("StatefulSet", wanted["metadata"]["name"])
    if live is None:
        return False
    before, now = (each["metadata"].get("annotations", {}) for each in (live, wanted))
    if before.get(names.ASKED_ANNOTATION) != now[names.ASKED_ANNOTATION]:
        return False
    config = observed.get("ConfigMap", pods.config_of(live["spec"]["template"]["spec"])) or {}
    if manifests.PROPERTIES not in (config.get("data") or {}):
        return False  # it is gone, or has the form of another version
    made = [
        each["spec"]["template"]["metadata"].get("annotations", {}).get(names.MADE_ANNOTATION)
        for each in (live, wanted)
    ]
    return made[0] is not None and made[0] != made[1]
