"""What exists of a Cluster, as read from Kubernetes. PURE.

`ObservedCluster` holds the live objects unchanged (plain mappings), since the plan compares
manifests with them field by field; a `Pod` holds what matters of a pod.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from logfleet.resources.cluster import ClusterResource
from logfleet.resources.document import GROUP
from logfleet.resources.quantity import parse_quantity

from logfleet_operator import names
from logfleet_operator.clusters import etcd
from logfleet_operator.clusters.pods import config_of
from logfleet_operator.names import Manifest

# A container that waits for one of these reasons does not run, and will not without a change.
STUCK_REASONS: Final = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)

# Field -> the keys of its list map (x-kubernetes-list-map-keys in Kubernetes's OpenAPI), for all
# list maps in our manifests. Any other list is atomic. `ports` are a Service's or a container's: an
# entry has only one of the two port fields.
LIST_MAP_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "env": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("port", "containerPort", "protocol"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
DEFAULT_PROTOCOL: Final = "TCP"
# Prefixes of the paths that decide the next step when read again: objects are found by these
# labels, ConfigMaps keep broker ids and node ports, and a set's replicas say how many pods to
# expect.
READ_AGAIN: Final = (f"metadata.labels.{GROUP}/", "data.", "spec.replicas")

FIELDS_LISTED_MAX: Final = 3

FRESH: Final = timedelta(seconds=30)
"""Time for which a pod that became ready may be unreachable at its new address for some clients.

kube-proxy gathers changes for a second, name servers cache answers for up to thirty (CoreDNS,
plugin cache). Brokers hand leadership to one that has run for as long
(`logfleet.controller.changes.election_writes.SETTLED_MS`), so the next wave's leaders move to
replaced brokers, and not a second time."""
# The `stuck` reason of an etcd member whose gate (etcd.py) does not let it start.
EMPTY_VOLUME: Final = "EmptyVolume"


@dataclass(frozen=True, slots=True)
class Pod:
    """stuck: the reason why it will not run without a change; "" if it runs or may still.

    node: "" before it is scheduled. fresh: ready for less than FRESH, by the operator's clock
    (`cluster_reader.Readiness`). config: the ConfigMap that it starts with, "" for none.
    """

    name: str
    uid: str
    component: str
    revision: str
    ready: bool
    deleting: bool
    stuck: str
    node: str
    host_ip: str
    fresh: bool = False
    config: str = ""


@dataclass(frozen=True, slots=True)
class StopPermission:
    """The brokers' answer: the pods of the next wave that may stop now.

    objection: why no more may go, or none.
    """

    pods: frozenset[str] = frozenset()
    objection: str = ""


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """A member as etcd lists it. name: "" until it has started once (etcd, api/v3 MemberList)."""

    id: str
    name: str
    peer_url: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """The brokers' report about replicas.

    replica_counts: by broker id. progress: the progress of moves, in a sentence.
    """

    replica_counts: Mapping[int, int]
    progress: str = ""


class ObjectConflict(Exception):
    """An object is not as the Cluster needs it. The message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """An object was stored differently than applied, as by a mutating admission webhook.

    asked: what was applied. stored: how the stored object differs from it. at: when.
    """

    asked: Manifest
    stored: tuple[tuple[str, Any], ...]
    at: datetime

    def explains(self, wanted: Manifest, live: Manifest) -> bool:
        """Whether another apply of `wanted` would leave `live` as it is."""
        return self.asked == wanted and self.stored == tuple(differences(wanted, live))


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """objects: (kind, name) -> live object with the Cluster's label. secrets: by name.

    volumes: volume claims of brokers and etcd.
    ends: Secret -> when its certificate ends, for readable ones.
    rewritings: by kind and name.
    zones: node -> its zone, for the nodes that were read.
    leave: which pods of the next wave may go.
    members: of etcd, as it lists them; None if it was not asked or did not answer.
    fleet: likewise of brokers.
    cordoned: nodes of brokers that take no pods; read only while a broker has no node.
    refused: kind and name of objects that the API server refused in this pass; they are left alone.
    """

    objects: Mapping[tuple[str, str], Manifest]
    secrets: Mapping[str, Manifest]
    pods: tuple[Pod, ...]
    volumes: tuple[Manifest, ...]
    storage_classes: tuple[Manifest, ...]
    ends: Mapping[str, datetime] = field(default_factory=dict)
    rewritings: Mapping[tuple[str, str], Rewriting] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    leave: StopPermission = field(default_factory=StopPermission)
    members: tuple[EtcdMember, ...] | None = None
    fleet: Fleet | None = None
    cordoned: frozenset[str] = frozenset()
    refused: frozenset[tuple[str, str]] = frozenset()

    def get(self, kind: str, name: str) -> Manifest | None:
        if kind == "Secret":
            return self.secrets.get(name)
        return self.objects.get((kind, name))

    def of_component(self, component: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.component == component]


def ready_condition(live: Manifest) -> Manifest | None:
    """The condition that shows a pod as ready; None if it is not ready."""
    for condition in live.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready" and condition["status"] == "True":
            found: Manifest = condition
            return found
    return None


def pod_from(live: Manifest, *, fresh: bool = False) -> Pod:
    metadata, status = live["metadata"], live.get("status", {})
    labels = metadata.get("labels", {})
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        component=labels.get(names.COMPONENT_LABEL, ""),
        revision=labels.get(names.REVISION_LABEL, ""),
        ready=ready_condition(live) is not None,
        deleting="deletionTimestamp" in metadata,
        stuck=_stuck(status),
        node=live.get("spec", {}).get("nodeName", ""),
        host_ip=status.get("hostIP", ""),
        fresh=fresh,
        config=config_of(live.get("spec", {})),
    )


def _stuck(status: Manifest) -> str:
    for container in status.get("initContainerStatuses", ()):
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get(
            "terminated", {}
        )
        shut = ended.get("exitCode") == etcd.EMPTY_VOLUME_EXIT
        if container["name"] == etcd.GATE and not container["ready"] and shut:
            return EMPTY_VOLUME
    for container in (
        *status.get("initContainerStatuses", ()),
        *status.get("containerStatuses", ()),
    ):
        reason = container.get("state", {}).get("waiting", {}).get("reason", "")
        if reason in STUCK_REASONS:
            return str(reason)
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("reason", "Unschedulable"))
    return ""


def is_bound(volume: Manifest) -> bool:
    """Whether the claim has a volume, empty or not."""
    return bool(volume.get("spec", {}).get("volumeName"))


def foreign(observed: ObservedCluster, cluster: ClusterResource) -> list[str]:
    """Objects with the Cluster's label that another owner controls, as "Kind name"."""
    return [
        f"{kind} {name}"
        for (kind, name), live in sorted(observed.objects.items())
        if controlled_by_another(live, cluster.metadata.uid)
    ]


def not_of_the_cluster(kind: str, name: str) -> str:
    """The message about an object that the Cluster needs and somebody else created."""
    return (
        f"{kind} {name} exists and is not this Cluster's: remove it, or give the Cluster another "
        "name"
    )


def labelled_for(live: Manifest, cluster: str) -> bool:
    """Whether it was created for a Cluster of this name, even if restored from a backup."""
    return bool((live["metadata"].get("labels") or {}).get(names.CLUSTER_LABEL) == cluster)


def controlled_by(live: Manifest, uid: str) -> bool:
    return uid in _controllers(live)


def controlled_by_another(live: Manifest, uid: str) -> bool:
    return any(other != uid for other in _controllers(live))


def _controllers(live: Manifest) -> list[str]:
    """Uids of the controllers; Kubernetes allows at most one."""
    owners = live["metadata"].get("ownerReferences", ())
    return [owner["uid"] for owner in owners if owner.get("controller")]


def configs_in_use(observed: ObservedCluster) -> frozenset[str]:
    """ConfigMaps that existing pods, or pods created now, start with."""
    specs = [
        live["spec"]["template"]["spec"] if kind == "StatefulSet" else _pod_of_job(live)
        for (kind, _), live in observed.objects.items()
        if kind in {"StatefulSet", "CronJob"}
    ]
    return frozenset({*map(config_of, specs), *(pod.config for pod in observed.pods)})


def _pod_of_job(live: Manifest) -> Manifest:
    spec: Manifest = live["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def node_ports(observed: ObservedCluster, cluster: ClusterResource) -> dict[tuple[str, int], int]:
    """(listener, broker id) -> port of the node: the live Service's, else the recorded one.

    Only listeners in the spec.
    """
    listeners = {entry.name for entry in cluster.spec.listeners if entry.type == "nodeport"}
    found: dict[tuple[str, int], int] = {}
    config = observed.get("ConfigMap", names.config_map(cluster.metadata.name))
    for file, content in (config or {}).get("data", {}).items():
        listener, _, broker_id = file.rpartition(".")
        if listener in listeners and broker_id.isdecimal() and content.isdecimal():
            found[listener, int(broker_id)] = int(content)
    prefix = f"{cluster.metadata.name}-"
    for (kind, name), live in observed.objects.items():
        if kind != "Service" or live["spec"].get("type") != "NodePort":
            continue
        listener, _, broker_id = name.removeprefix(prefix).rpartition("-")
        for port in live["spec"]["ports"]:
            # Match by name: others may add ports to the Service.
            ours = port.get("name") == listener and listener in listeners
            if ours and broker_id.isdecimal() and "nodePort" in port:
                found[listener, int(broker_id)] = int(port["nodePort"])
    return found


def differs(wanted: Any, live: Any) -> bool:
    """True if `live` lacks a part of `wanted`; additions in `live` (defaults) do not count."""
    return any(True for _ in differences(wanted, live))


def differences(wanted: Any, live: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value in `live`) for every part of `wanted` that `live` lacks.

    Entries that others add to a list map do not count, since server-side apply keeps them, nor does
    their order. Quantities are compared by value (the API server writes "0.5" as "500m"), and a
    missing field equals an empty one (it leaves out many of those).
    """
    if wanted == live:  # most parts are equal, and one comparison is far cheaper than a walk
        return
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for name, value in wanted.items():
            where = f"{path}.{name}" if path else name
            if name in live:
                yield from _differences_of_field(name, value, live[name], where)
            elif value:
                yield where, None
    elif isinstance(wanted, list | tuple) and isinstance(live, list) and len(live) == len(wanted):
        for index, (one, other) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif not _same_value(wanted, live):
        yield path, live


def _differences_of_field(
    name: str, wanted: Any, live: Any, path: str
) -> Iterator[tuple[str, Any]]:
    keys = LIST_MAP_KEYS.get(name)
    if keys is None or not isinstance(wanted, list | tuple) or not isinstance(live, list):
        yield from differences(wanted, live, path)
        return
    found = {_identity(entry, keys): entry for entry in live}
    for entry in wanted:
        identity = _identity(entry, keys)
        listed = ",".join(str(part) for part in identity if part is not None)
        yield from differences(entry, found.get(identity), f"{path}[{listed}]")


def _same_value(wanted: Any, live: Any) -> bool:
    if wanted == live:
        return True
    if isinstance(wanted, str) and isinstance(live, str):
        amount = parse_quantity(wanted)
        return amount is not None and amount == parse_quantity(live)
    return False


def _identity(entry: Manifest, keys: Sequence[str]) -> tuple[Any, ...]:
    """The values of the keys; a port without a protocol gets the API server's default."""
    return tuple(entry.get(key, DEFAULT_PROTOCOL if key == "protocol" else None) for key in keys)


def rewriting(wanted: Manifest, stored: Manifest, now: datetime) -> Rewriting | None:
    """The difference between `wanted` and the stored object; None if it was not.

    Raises ObjectConflict if the operator cannot work with the stored object.
    """
    found = tuple(differences(wanted, stored))
    if not found:
        return None
    lost = [path for path, _ in found if path.startswith(READ_AGAIN)]
    if lost:
        raise ObjectConflict(
            f"{wanted['kind']} {wanted['metadata']['name']} is stored with another {lost[0]} than "
            "the operator applies and must read again: exempt it from the admission webhook or "
            "policy that rewrites it"
        )
    return Rewriting(wanted, found, now)


def rewritten(observed: ObservedCluster) -> list[str]:
    """Objects that were stored differently than applied, as "Kind name (fields)"."""
    listed = []
    for (kind, name), known in sorted(observed.rewritings.items(), key=lambda entry: entry[0]):
        live = observed.get(kind, name)
        if live is not None and known.explains(known.asked, live):
            fields = ", ".join(path for path, _ in known.stored[:FIELDS_LISTED_MAX])
            listed.append(f"{kind} {name} ({fields})")
    return listed


def by_kind_and_name(objects: Iterable[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(live["kind"], live["metadata"]["name"]): live for live in objects}
