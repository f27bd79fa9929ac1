"""What a plan for a Cluster is made of: actions, and the plan that names the next of them. PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from logfleet.control.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters import manifests, pods
from logfleet_operator.clusters.broker_id_ranges import Range
from logfleet_operator.clusters.observed import ObservedCluster, differs
from logfleet_operator.clusters.rollout import DeletePod, EvictPod
from logfleet_operator.names import Manifest


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply this whole manifest.

    new: it was not seen among the Cluster's objects; one of that name may belong to another.
    """

    manifest: Manifest
    new: bool


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """Make the Secret with a new certificate authority."""

    secret: str


@dataclass(frozen=True, slots=True)
class IssueCertificate:
    """Make, or renew, the Secret with a certificate of the authority in the Secret `authority`."""

    secret: str
    authority: str
    common_name: str
    host_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete this very object, which is not wanted any more and holds no records."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Remove a member of etcd, whose data are gone, from its cluster. name: of its pod. id: etcd's."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class AddMember:
    """Add a member to etcd's cluster, that will begin empty in the pod of this name."""

    name: str
    peer_url: str


@dataclass(frozen=True, slots=True)
class MarkClaim:
    """Write on a broker's volume claim how far the broker is: a word of `shrinking.State`."""

    name: str
    state: str


@dataclass(frozen=True, slots=True)
class GrowClaim:
    """Ask for a larger volume for this claim, or for less than was asked for in vain. size: a quantity."""

    name: str
    size: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Let these brokers be given replicas again, and take the marks from their volume claims."""

    brokers: tuple[int, ...]
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Have the brokers forget this id, whose pod has gone, and write so on its volume claim."""

    broker: int
    claim: str


class Stage(StrEnum):
    """What is under way: the reason of the condition Progressing."""

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
    | TakeBack
    | Forget
)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The next actions (none: wait, or nothing is left), `why` in one sentence.

    stage: what that is. ranges: for status, empty if they are not known. level: likewise, of brokers that were asked.
    unmet: what of the spec is not carried out, or not yet, while all else is; see `hindered`.
    spread: brokers that are new have their share of replicas.
    """

    why: str
    actions: tuple[Action, ...] = ()
    refusal: SpecRefusal | None = None
    stage: Stage = Stage.WAITING
    ranges: tuple[Range, ...] = field(default=())
    level: FeatureLevel | None = None
    unmet: tuple[SpecRefusal, ...] = ()
    spread: bool = False

    @property
    def done(self) -> bool:
        """The fleet is as written and works; replicas may still move to brokers that are new."""
        return self.stage in {Stage.DONE, Stage.SPREADING}

    @property
    def paused(self) -> bool:
        return self.stage is Stage.PAUSED


def target(action: Action) -> tuple[str, str] | None:
    """(kind, name) of the one object that the action is about, if all else can go on without it.

    None for the record, which the next operator reads, and for what only the last stages do.
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


def left(plan: ClusterPlan | None, observed: ObservedCluster) -> ClusterPlan | None:
    """The plan without what was refused in this pass; None if it had nothing else to do."""
    if plan is None or not plan.actions:
        return plan
    actions = tuple(each for each in plan.actions if target(each) not in observed.refused)
    return replace(plan, actions=actions) if actions else None


def hindered(
    plan: ClusterPlan, refusal: SpecRefusal, at_last: Stage = Stage.REFUSED
) -> ClusterPlan:
    """The plan of a Cluster that is not as written all the same. at_last: its stage once all else is done."""
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
    """Apply for each manifest that does not exist as wanted, or as it was stored when applied."""
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


def with_claims_as_begun(observed: ObservedCluster, wanted: Manifest) -> Manifest:
    """The StatefulSet, with the claim templates of the one that exists: they never change."""
    live = observed.get("StatefulSet", wanted["metadata"]["name"])
    return pods.with_claims_as_begun(wanted, live)


def with_template_as_asked(observed: ObservedCluster, wanted: Manifest) -> Manifest:
    """The set, with the template that it has if nothing of what a person wrote differs from then.

    So an operator of another version, which makes pods in another way, replaces none by itself.
    """
    live = observed.get("StatefulSet", wanted["metadata"]["name"])
    if live is None or not is_kept(observed, wanted):
        return wanted
    return {**wanted, "spec": {**wanted["spec"], "template": live["spec"]["template"]}}


def is_kept(observed: ObservedCluster, wanted: Manifest) -> bool:
    """Whether its pods stay as they were made, though this operator would make others.

    A template that somebody changed is put back: then its digest still is this operator's.
    """
    live = observed.get("StatefulSet", wanted["metadata"]["name"])
    if live is None:
        return False
    before, now = (each["metadata"].get("annotations", {}) for each in (live, wanted))
    if before.get(names.ASKED_ANNOTATION) != now[names.ASKED_ANNOTATION]:
        return False
    config = observed.get("ConfigMap", pods.config_of(live["spec"]["template"]["spec"])) or {}
    if manifests.PROPERTIES not in (config.get("data") or {}):
        return False  # this operator may not know what stood there
    made = [
        each["spec"]["template"]["metadata"].get("annotations", {}).get(names.MADE_ANNOTATION)
        for each in (live, wanted)
    ]
    return made[0] is not None and made[0] != made[1]
