"""What to do next for a Cluster, and why, in one sentence. PURE.

`plan_cluster` looks at the spec and at what exists and returns the next actions. It is called
again after they were done, so each call needs to see only one step ahead, and a crash between any
two calls to Kubernetes changes nothing: the next call starts from what is there. The stages stand
in the order in which objects may exist: the record before anything that depends on it, Services
before the pods whose addresses they are, a working etcd before the first broker.

At most one pod that runs is replaced by a plan, and only when no other of its kind is missing or
going and every one that is up to date is ready (`rollout`). Pods that cannot run go together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from logfleet.control.config_keys import ConfigError
from logfleet.control.configs import broker_config
from logfleet.resources.cluster import ClusterResource, ManagedMetadata, set_name
from logfleet.resources.plan import Reason, Refusal

from logfleet_operator import names
from logfleet_operator.clusters import etcd, manifests, pods, rollout
from logfleet_operator.clusters.observed import (
    Observed,
    claims_of,
    controlled_by,
    controlled_by_another,
    differs,
    foreign,
    labelled_for,
    node_ports,
    not_of_the_cluster,
    recorded,
    rewritten,
)
from logfleet_operator.clusters.ranges import Range, allocate, merge
from logfleet_operator.clusters.rollout import DeletePod, EvictPod
from logfleet_operator.names import Manifest
from logfleet_operator.settings import Settings

DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


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
class DeleteService:
    """Delete this very Service, of a listener that is not written any more."""

    name: str
    uid: str


Action = Apply | MakeAuthority | IssueCertificate | EvictPod | DeletePod | DeleteService


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The next actions (none: wait, or nothing is left), `why` in one sentence.

    done: the fleet is as written and works. ranges: for status, empty if they are not known.
    """

    why: str
    actions: tuple[Action, ...] = ()
    refusal: Refusal | None = None
    done: bool = False
    paused: bool = False
    ranges: tuple[Range, ...] = field(default=())


def plan_cluster(
    cluster: ClusterResource, observed: Observed, settings: Settings, *, renew: frozenset[str]
) -> ClusterPlan:
    """renew: names of Secrets whose certificate should be issued anew (the clock is the caller's).

    Raises ObjectConflict.
    """
    if cluster.spec.paused:
        return ClusterPlan("paused: nothing is changed", paused=True)
    others = foreign(observed, cluster)
    if others:
        return ClusterPlan(f"waiting until objects of a former Cluster are gone: {others[0]}")
    going = _going_volume(cluster, observed)
    if going:
        return ClusterPlan(f"waiting until PersistentVolumeClaim {going} is deleted")
    given = merge(claims_of(observed, cluster.metadata.name))
    ranges = given if isinstance(given, Refusal) else allocate(cluster.spec, given)
    if isinstance(ranges, Refusal):
        return _refused(ranges)
    refusal = (
        _config_refusal(cluster)
        or _storage_refusal(cluster, observed, ranges)
        or _zones_refusal(cluster, observed)
    )
    if refusal is not None:
        return _refused(refusal)
    plan = (
        _ground(cluster, observed, ranges)
        or _metadata_store(cluster, observed, settings, renew)
        or _brokers(cluster, observed, settings, ranges)
        or _roll(cluster, observed, ranges)
        or _leftovers(cluster, observed, ranges)
        or ClusterPlan("all brokers are ready", done=True)
    )
    why = plan.why
    if others := rewritten(observed):
        why += f"; an admission webhook or policy rewrites {', '.join(others[:5])}"
    return ClusterPlan(why, plan.actions, plan.refusal, plan.done, ranges=tuple(ranges))


def _refused(refusal: Refusal) -> ClusterPlan:
    return ClusterPlan(refusal.message, refusal=refusal)


def _config_refusal(cluster: ClusterResource) -> Refusal | None:
    """The brokers' own judgement of their configuration, before it can keep one from starting."""
    identity = {"node.id": "0", "advertised.listeners": _advertised(cluster)}
    try:
        broker_config({**manifests.server_properties(cluster), **identity})
    except ConfigError as error:
        return Refusal(Reason.INVALID, f"spec.config.{error.key}: {error}")
    return None


def _advertised(cluster: ClusterResource) -> str:
    return ",".join(f"{entry.name.upper()}://host:{entry.port}" for entry in cluster.spec.listeners)


def _storage_refusal(
    cluster: ClusterResource, observed: Observed, ranges: Sequence[Range]
) -> Refusal | None:
    """New volumes must come from a class that waits for the pod, else they choose the zone."""
    name = cluster.metadata.name
    pools = {pool.name: pool for pool in cluster.spec.pools}
    wanted = {
        f"spec.pools[{given.pool}].storage.class": pools[given.pool].storage.class_
        for given in ranges
        if not observed.get("StatefulSet", set_name(name, given.pool, given.zone))
    }
    managed = cluster.spec.metadata.managed
    if managed is not None and not observed.get("StatefulSet", names.etcd_name(name)):
        wanted["spec.metadata.managed.storage.class"] = managed.storage.class_
    for path, class_name in wanted.items():
        found = _storage_class(observed, class_name)
        if found is None:
            what = f"{class_name} does not exist" if class_name else "there is no default one"
            return Refusal(Reason.INVALID, f"{path}: StorageClass: {what}, write an existing one")
        if cluster.spec.zones and found.get("volumeBindingMode") != "WaitForFirstConsumer":
            return Refusal(
                Reason.INVALID,
                f"{path}: StorageClass {found['metadata']['name']} binds volumes at once, in any "
                "zone; write one with volumeBindingMode WaitForFirstConsumer",
            )
    return None


def _zones_refusal(cluster: ClusterResource, observed: Observed) -> Refusal | None:
    """A zone that is taken away is soon without nodes, and members of etcd cannot follow."""
    managed = cluster.spec.metadata.managed
    if managed is None:
        return None
    placed = _etcd_placement(cluster, managed, observed)
    gone = [zone for zone in placed.zones if zone not in cluster.spec.zones]
    if not gone:
        return None
    return Refusal(
        Reason.NOT_SUPPORTED,
        f"spec.zones: volumes of etcd may be in zone {', '.join(gone)}, and this version does not "
        "move them; write it back",
    )


def _etcd_placement(
    cluster: ClusterResource, managed: ManagedMetadata, observed: Observed
) -> etcd.Placement:
    live = observed.get("StatefulSet", names.etcd_name(cluster.metadata.name))
    return etcd.placement(cluster, managed, live, etcd_state(cluster, observed))


def _storage_class(observed: Observed, name: str | None) -> Manifest | None:
    for found in observed.storage_classes:
        metadata = found["metadata"]
        if name is None:
            if metadata.get("annotations", {}).get(DEFAULT_CLASS_ANNOTATION) == "true":
                return found
        elif metadata["name"] == name:
            return found
    return None


def _applies(
    cluster: ClusterResource, observed: Observed, wanted: Iterable[Manifest]
) -> tuple[Action, ...]:
    """Apply for each manifest that does not exist as wanted, or as it was stored when applied."""
    actions: list[Action] = []
    for manifest in wanted:
        complete = manifests.owned(cluster.metadata, manifest)
        kind, name = complete["kind"], complete["metadata"]["name"]
        live = observed.get(kind, name)
        known = observed.rewritings.get((kind, name))
        if live is not None and known is not None and known.explains(complete, live):
            continue
        if live is None or differs(complete, live):
            actions.append(Apply(complete, new=live is None))
    return tuple(actions)


def _making(actions: Sequence[Action], what: str) -> ClusterPlan | None:
    return ClusterPlan(f"making {what}", tuple(actions)) if actions else None


def etcd_state(cluster: ClusterResource, observed: Observed) -> str:
    """Whether etcd's members may bootstrap.

    Only until all have been ready once, and never where a volume of an earlier one is left.
    """
    managed = cluster.spec.metadata.managed
    if managed is None:
        return etcd.ESTABLISHED
    name = cluster.metadata.name
    record = recorded(observed, name)
    if record is None:
        return etcd.ESTABLISHED if _etcd_volumes(cluster, observed) else etcd.BOOTSTRAPPING
    ready = sum(pod.ready for pod in observed.of_component(names.ETCD))
    if record[1] == etcd.ESTABLISHED or ready == managed.replicas:
        return etcd.ESTABLISHED
    return etcd.BOOTSTRAPPING


def _etcd_volumes(cluster: ClusterResource, observed: Observed) -> list[Manifest]:
    prefix = f"data-{names.etcd_name(cluster.metadata.name)}-"
    return [live for live in observed.volumes if live["metadata"]["name"].startswith(prefix)]


def _going_volume(cluster: ClusterResource, observed: Observed) -> str:
    """A volume claim of etcd that is being deleted while there is no etcd; "" if there is none.

    A claim stays until no pod uses it (Kubernetes: Storage Object in Use Protection). It says
    nothing about the volume that a new member gets, so `etcd_state` is not decided meanwhile.
    """
    name = cluster.metadata.name
    begun = (
        ("ConfigMap", names.record_map(name)),
        ("StatefulSet", names.etcd_name(name)),
    )
    if cluster.spec.metadata.managed is None or any(observed.get(*each) for each in begun):
        return ""
    going = [live["metadata"] for live in _etcd_volumes(cluster, observed)]
    return min((str(each["name"]) for each in going if "deletionTimestamp" in each), default="")


def _ground(
    cluster: ClusterResource, observed: Observed, ranges: Sequence[Range]
) -> ClusterPlan | None:
    """The record first, alone: nothing may exist that it does not know. Then what pods refer to."""
    record = manifests.record(cluster, ranges, etcd_state(cluster, observed))
    actions = _applies(cluster, observed, [record])
    if actions:
        return _making(actions, "the record of broker ids")
    ports = node_ports(observed, cluster)
    objects = [manifests.service_account(cluster), *manifests.services(cluster, ranges, ports)]
    return _making(_applies(cluster, observed, objects), "Services")


def _metadata_store(
    cluster: ClusterResource, observed: Observed, settings: Settings, renew: frozenset[str]
) -> ClusterPlan | None:
    managed = cluster.spec.metadata.managed
    if managed is None:
        return None
    plan = _certificates(cluster, observed, renew)
    if plan is not None:
        return plan
    # The operator's default and not spec.image, so that changing that does not restart etcd.
    members = etcd.stateful_set(
        cluster,
        managed,
        _etcd_placement(cluster, managed, observed),
        image=settings.etcd_image,
        gate_image=settings.broker_image,
    )
    members = _with_claims_as_begun(observed, members)
    objects = [etcd.service(cluster), etcd.budget(cluster, managed), members]
    actions = _applies(cluster, observed, objects)
    if actions:
        return _making(actions, "etcd")
    if etcd_state(cluster, observed) == etcd.ESTABLISHED:
        return None
    ready = sum(pod.ready for pod in observed.of_component(names.ETCD))
    waiting = rollout.plan_rollout(observed, names.ETCD, [names.etcd_name(cluster.metadata.name)])
    if waiting is not None and waiting.actions:
        return ClusterPlan(waiting.why, waiting.actions)
    return ClusterPlan(
        f"waiting for etcd: {ready} of {managed.replicas} members are ready"
        + rollout.troubles(observed.of_component(names.ETCD))
    )


def _certificates(
    cluster: ClusterResource, observed: Observed, renew: frozenset[str]
) -> ClusterPlan | None:
    name, namespace = cluster.metadata.name, cluster.metadata.namespace
    authority, server, client = (
        names.etcd_secret(name, role) for role in ("ca", "server", "client")
    )
    for secret in (authority, server, client):
        live = observed.get("Secret", secret)
        if live is not None and controlled_by_another(live, cluster.metadata.uid):
            return ClusterPlan(f"waiting until a former Cluster's Secret {secret} is gone")
    # Members read their authority only when they start, so those that run keep what they have.
    starting = etcd_state(cluster, observed) == etcd.BOOTSTRAPPING
    due = [
        secret
        for secret in (server, client)
        if observed.get("Secret", secret) is None
        or secret in renew
        or (starting and _is_of_another(observed, secret, authority))
    ]
    if not due:
        return None
    made = observed.get("Secret", authority) is not None
    for secret in due if made else (server, client):
        live = observed.get("Secret", secret)
        if live is not None and not labelled_for(live, name):
            return _refused(Refusal(Reason.CONFLICT, not_of_the_cluster("Secret", secret)))
    if not made:
        if len(due) == 2 and not observed.get("StatefulSet", names.etcd_name(name)):
            return _making([MakeAuthority(authority)], "the certificate authority of etcd")
        return _refused(
            Refusal(
                Reason.CONFLICT,
                f"Secret {authority} is gone and {due[0]} must be issued: restore it from a backup",
            )
        )
    hosts = {server: tuple(etcd.server_names(cluster)), client: ()}
    subjects = {server: f"{namespace}.{name} etcd", client: f"{namespace}.{name} brokers"}
    return _making(
        [IssueCertificate(secret, authority, subjects[secret], hosts[secret]) for secret in due],
        "certificates of etcd",
    )


def _is_of_another(observed: Observed, secret: str, authority: str) -> bool:
    """True if a certificate is of another authority than the one that there is."""
    issued, issuer = (observed.get("Secret", name) for name in (secret, authority))
    if issued is None or issuer is None:
        return False
    shown, there = (live.get("data") or {} for live in (issued, issuer))
    return shown.get("ca.crt") != there.get("tls.crt")


def _brokers(
    cluster: ClusterResource, observed: Observed, settings: Settings, ranges: Sequence[Range]
) -> ClusterPlan | None:
    ports = node_ports(observed, cluster)
    for listener in manifests.outside_listeners(cluster):
        for broker_id, _ in manifests.broker_pods(cluster, ranges):
            if (listener.name, broker_id) not in ports:
                return ClusterPlan(
                    f"waiting for a node port for broker {broker_id}, listener {listener.name}"
                )
    pools = {pool.name: pool for pool in cluster.spec.pools}
    image = cluster.spec.image or settings.broker_image
    managed = cluster.spec.metadata.managed is not None
    secret = names.etcd_secret(cluster.metadata.name, "client")
    until = observed.ends.get(secret) if managed else None
    # Part of the pods' template: written in another way, it would replace all brokers.
    credentials = f"{until:%Y-%m-%dT%H:%M:%SZ}" if until is not None else ""
    sets = [
        _with_claims_as_begun(
            observed,
            manifests.broker_set(
                cluster, pools[given.pool], given, image=image, credentials=credentials
            ),
        )
        for given in ranges
        if given.replicas
    ]
    refusal = _volumes_refusal(observed, sets)
    if refusal is not None:
        return _refused(refusal)
    # The configuration before the pods that read it.
    actions = _applies(cluster, observed, [manifests.config(cluster, ports)])
    if actions:
        return _making(actions, "the brokers' configuration")
    total = sum(given.replicas for given in ranges)
    ready = sum(pod.ready for pod in observed.of_component(names.BROKER))
    budget = manifests.brokers_budget(cluster, _min_available(cluster, observed, total, ready))
    return _making(_applies(cluster, observed, [budget, *sets]), "brokers")


def _with_claims_as_begun(observed: Observed, wanted: Manifest) -> Manifest:
    live = observed.get("StatefulSet", wanted["metadata"]["name"])
    return pods.with_labels_of_claims(wanted, live)


def _volumes_refusal(observed: Observed, sets: Sequence[Manifest]) -> Refusal | None:
    """Volume claim templates never change; what differs would be refused without a sentence."""
    for wanted in sets:
        live = observed.get("StatefulSet", wanted["metadata"]["name"])
        if live is None:
            continue
        old, new = (found["spec"]["volumeClaimTemplates"][0]["spec"] for found in (live, wanted))
        if differs(new, old):
            return Refusal(
                Reason.NOT_SUPPORTED,
                f"spec.pools[].storage: volumes of {wanted['metadata']['name']} have "
                f"{old['resources']['requests']['storage']} of class "
                f"{old.get('storageClassName', '-')}, and this version does not change them",
            )
    return None


def _min_available(cluster: ClusterResource, observed: Observed, total: int, ready: int) -> int:
    """One broker may be away. Raised with the new brokers that are ready: they are away until then.

    Not lowered when brokers get lost, which is when no further one may go.
    """
    live = observed.get("PodDisruptionBudget", names.brokers_budget(cluster.metadata.name))
    before = (live or {"spec": {}})["spec"].get("minAvailable")
    if not isinstance(before, int):  # none, or a percentage that somebody else wrote
        return total - 1
    return min(total - 1, max(before, ready - 1))


def _roll(
    cluster: ClusterResource, observed: Observed, ranges: Sequence[Range]
) -> ClusterPlan | None:
    name = cluster.metadata.name
    steps = []
    if cluster.spec.metadata.managed is not None:
        steps.append((names.ETCD, [names.etcd_name(name)]))
    sets = [set_name(name, given.pool, given.zone) for given in ranges if given.replicas]
    steps.append((names.BROKER, sets))
    for component, stateful_sets in steps:
        waiting = rollout.plan_rollout(observed, component, stateful_sets)
        if waiting is not None:
            return ClusterPlan(waiting.why, waiting.actions)
    return None


def _leftovers(
    cluster: ClusterResource, observed: Observed, ranges: Sequence[Range]
) -> ClusterPlan | None:
    """NodePorts of listeners that are gone, once no broker advertises them any more.

    Only those that this Cluster owns: a label is soon copied.
    """
    ports = node_ports(observed, cluster)
    wanted = {
        manifest["metadata"]["name"] for manifest in manifests.services(cluster, ranges, ports)
    }
    left = [
        DeleteService(name, live["metadata"]["uid"])
        for (kind, name), live in sorted(observed.objects.items())
        if kind == "Service"
        and name not in wanted
        and live["spec"].get("type") == "NodePort"
        and controlled_by(live, cluster.metadata.uid)
    ]
    if not left:
        return None
    return ClusterPlan(f"removing {', '.join(each.name for each in left[:5])}", tuple(left))
