"""What exists of a Cluster, as read from Kubernetes. PURE.

`Observed` holds the live objects as they came (plain mappings), since the plan compares manifests
with them field by field, and `Pod` is what matters of a pod.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logfleet.resources.cluster import ClusterResource, set_name
from logfleet.resources.quantity import parse_quantity

from logfleet_operator import names
from logfleet_operator.names import Manifest
from logfleet_operator.ranges import Claim, Range

# A container that waits for one of these does not run, and will not without a change.
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

# Field -> what tells entries of a list map (x-kubernetes-list-map-keys in Kubernetes's OpenAPI) from
# each other, for all that manifests here have. Any other list is atomic. `ports` are a Service's or
# a container's: an entry has only one of the two port fields.
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

# An etcd member whose gate (etcd.py) does not let it start.
EMPTY_VOLUME: Final = "EmptyVolume"


@dataclass(frozen=True, slots=True)
class Pod:
    """stuck: why it will not run as it is, in a word; "" if it runs or may still."""

    name: str
    uid: str
    component: str
    revision: str
    ready: bool
    deleting: bool
    stuck: str
    node: str
    host_ip: str


@dataclass(frozen=True, slots=True)
class Observed:
    """objects: (kind, name) -> live object with the Cluster's label. secrets: by name.

    volumes: volume claims of brokers and etcd. storage_classes: None if they cannot be listed.
    """

    objects: Mapping[tuple[str, str], Manifest]
    secrets: Mapping[str, Manifest]
    pods: tuple[Pod, ...]
    volumes: tuple[Manifest, ...]
    storage_classes: tuple[Manifest, ...]

    def get(self, kind: str, name: str) -> Manifest | None:
        if kind == "Secret":
            return self.secrets.get(name)
        return self.objects.get((kind, name))

    def of_component(self, component: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.component == component]


def pod_from(live: Manifest) -> Pod:
    metadata, status = live["metadata"], live.get("status", {})
    labels = metadata.get("labels", {})
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions", ())
    )
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        component=labels.get(names.COMPONENT_LABEL, ""),
        revision=labels.get(names.REVISION_LABEL, ""),
        ready=ready,
        deleting="deletionTimestamp" in metadata,
        stuck=_stuck(status),
        node=live.get("spec", {}).get("nodeName", ""),
        host_ip=status.get("hostIP", ""),
    )


def _stuck(status: Manifest) -> str:
    for container in status.get("initContainerStatuses", ()):
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get(
            "terminated", {}
        )
        if container["name"] == "gate" and not container["ready"] and ended.get("exitCode"):
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


def claims_of(observed: Observed, cluster: str) -> list[Claim]:
    """What record, StatefulSets and volume claims say about broker ids, in this order."""
    claims = []
    record = observed.get("ConfigMap", names.record_map(cluster))
    if record is not None:
        for entry in json.loads(record["data"]["ranges"]):
            given = Range(entry["pool"], entry["zone"], entry["base"], entry["replicas"])
            claims.append(Claim(f"ConfigMap {names.record_map(cluster)}", given))
    for (kind, name), live in sorted(observed.objects.items()):
        component = live["metadata"]["labels"].get(names.COMPONENT_LABEL)
        if kind == "StatefulSet" and component == names.BROKER:
            claims += _claim(f"StatefulSet {name}", live, live["spec"]["replicas"])
    for live in sorted(observed.volumes, key=lambda volume: str(volume["metadata"]["name"])):
        ordinal = _ordinal(live, cluster)
        if ordinal is not None:
            source = f"PersistentVolumeClaim {live['metadata']['name']}"
            claims += _claim(source, live, ordinal + 1)
    return claims


def _ordinal(volume: Manifest, cluster: str) -> int | None:
    """Of the broker whose volume claim this is; None if it is none (a copy has all its labels)."""
    labels = volume["metadata"]["labels"]
    pool, zone = labels.get(names.POOL_LABEL), labels.get(names.ZONE_LABEL)
    if pool is None or zone is None:
        return None
    prefix, _, ordinal = volume["metadata"]["name"].rpartition("-")
    is_number = re.fullmatch("0|[1-9][0-9]*", ordinal) is not None
    return int(ordinal) if is_number and prefix == f"data-{set_name(cluster, pool, zone)}" else None


def _claim(source: str, live: Manifest, replicas: int) -> list[Claim]:
    labels = live["metadata"]["labels"]
    if names.BASE_LABEL not in labels:
        return []
    base = int(labels[names.BASE_LABEL])
    return [
        Claim(source, Range(labels[names.POOL_LABEL], labels[names.ZONE_LABEL], base, replicas))
    ]


def foreign(observed: Observed, cluster: ClusterResource) -> list[str]:
    """Objects with the Cluster's label that another owner controls, as "Kind name"."""
    return [
        f"{kind} {name}"
        for (kind, name), live in sorted(observed.objects.items())
        if controlled_by_another(live, cluster.metadata.uid)
    ]


def controlled_by(live: Manifest, uid: str) -> bool:
    return uid in _controllers(live)


def controlled_by_another(live: Manifest, uid: str) -> bool:
    return any(other != uid for other in _controllers(live))


def _controllers(live: Manifest) -> list[str]:
    """Uids: at most one, says Kubernetes."""
    owners = live["metadata"].get("ownerReferences", ())
    return [owner["uid"] for owner in owners if owner.get("controller")]


def node_ports(observed: Observed, cluster: ClusterResource) -> dict[tuple[str, int], int]:
    """(listener, broker id) -> port of the node: of the live Service, else the one it had.

    Of listeners of the spec only.
    """
    listeners = {entry.name for entry in cluster.spec.listeners if entry.type == "nodeport"}
    found: dict[tuple[str, int], int] = {}
    config = observed.get("ConfigMap", names.config_map(cluster.metadata.name))
    for file, content in (config or {}).get("data", {}).items():
        listener, _, broker_id = file.rpartition(".")
        if listener in listeners and broker_id.isdecimal():
            found[listener, int(broker_id)] = int(content)
    prefix = f"{cluster.metadata.name}-"
    for (kind, name), live in observed.objects.items():
        if kind != "Service" or live["spec"].get("type") != "NodePort":
            continue
        listener, _, broker_id = name.removeprefix(prefix).rpartition("-")
        for port in live["spec"]["ports"]:
            # By its name: others may add ports of their own.
            ours = port.get("name") == listener and listener in listeners
            if ours and broker_id.isdecimal() and "nodePort" in port:
                found[listener, int(broker_id)] = int(port["nodePort"])
    return found


def differs(wanted: Any, live: Any) -> bool:
    """True if `live` lacks something of `wanted`; what else it has (defaults) does not matter.

    Nor do entries that others put into a list map, which server-side apply leaves there, nor its
    order. Quantities are compared by value (the API server writes "0.5" as "500m"), and a missing
    field equals an empty one (it leaves out many of those).
    """
    if isinstance(wanted, Mapping):
        return not isinstance(live, Mapping) or any(
            _field_differs(name, value, live[name]) if name in live else bool(value)
            for name, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            not isinstance(live, list)
            or len(live) != len(wanted)
            or any(differs(one, other) for one, other in zip(wanted, live, strict=True))
        )
    if wanted == live:
        return False
    if isinstance(wanted, str) and isinstance(live, str):
        amount = parse_quantity(wanted)
        return amount is None or amount != parse_quantity(live)
    return True


def _field_differs(name: str, wanted: Any, live: Any) -> bool:
    keys = LIST_MAP_KEYS.get(name)
    if keys is None or not isinstance(wanted, list | tuple) or not isinstance(live, list):
        return differs(wanted, live)
    found = {_identity(entry, keys): entry for entry in live}
    return any(differs(entry, found.get(_identity(entry, keys))) for entry in wanted)


def _identity(entry: Manifest, keys: Sequence[str]) -> tuple[Any, ...]:
    """A port without a protocol has the default one, which the API server writes into the object."""
    return tuple(entry.get(key, DEFAULT_PROTOCOL if key == "protocol" else None) for key in keys)


def by_kind_and_name(objects: Iterable[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(live["kind"], live["metadata"]["name"]): live for live in objects}
