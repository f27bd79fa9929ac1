"""What the pods of brokers and etcd have in common: restricted security, spread, one volume.

PURE.
"""

from collections.abc import Sequence
from typing import Final

from logfleet.resources.cluster import Storage
from logfleet.resources.quantity import parse_quantity

from logfleet_operator import names
from logfleet_operator.names import Manifest

USER_ID: Final = 10001
ZONE_KEY: Final = "topology.kubernetes.io/zone"
HOST_KEY: Final = "kubernetes.io/hostname"
CONFIG_VOLUME: Final = "config"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

# Pod Security Standards, level "restricted", and a read-only root on top of it.
POD_SECURITY: Final[Manifest] = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[Manifest] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def config_of(spec: Manifest) -> str:
    """The ConfigMap with the configuration that a pod of this spec starts with; "" for none."""
    for volume in spec.get("volumes", ()):
        if volume["name"] == CONFIG_VOLUME:
            return str(volume.get("configMap", {}).get("name", ""))
    return ""


def in_zones(zones: Sequence[str]) -> Manifest:
    """The affinity that keeps a pod in one of `zones`; empty without zones."""
    if not zones:
        return {}
    expression = {"key": ZONE_KEY, "operator": "In", "values": list(zones)}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}


def zones_in(affinity: Manifest) -> tuple[str, ...]:
    """The zones that `in_zones` was given; empty without."""
    required = affinity.get("nodeAffinity", {}).get(_REQUIRED, {})
    for term in required.get("nodeSelectorTerms", ()):
        for expression in term.get("matchExpressions", ()):
            if expression["key"] == ZONE_KEY:
                return tuple(expression.get("values", ()))
    return ()


def apart(key: str, labels: Manifest) -> Manifest:
    """The affinity that keeps pods with these labels on nodes with different values of `key`."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {_REQUIRED: [term]}}


def is_apart(key: str, affinity: Manifest) -> bool:
    """Whether `affinity` contains what `apart` builds."""
    terms = affinity.get("podAntiAffinity", {}).get(_REQUIRED, ())
    return any(term["topologyKey"] == key for term in terms)


def spread_over(key: str, labels: Manifest) -> Manifest:
    """A topology spread that prefers pods with these labels apart, but always schedules them."""
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }


def claim(storage: Storage, labels: Manifest) -> Manifest:
    """The volume claim template `data`.

    It lacks the label by which Argo CD may track an application's objects: a claim has no owner, so
    Argo CD would prune it as an object that is in no manifest.
    """
    kept = {name: value for name, value in labels.items() if name != names.INSTANCE_LABEL}
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.class_ is not None:
        spec["storageClassName"] = storage.class_
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": kept},
        "spec": spec,
    }


def with_original_claims(stateful_set: Manifest, live: Manifest | None) -> Manifest:
    """The StatefulSet with its original volume claim template, since templates cannot change.

    The claims themselves are resized to the wanted size (`resizing`).
    """
    if live is None:
        return stateful_set
    (wanted,), (begun,) = (found["spec"]["volumeClaimTemplates"] for found in (stateful_set, live))
    metadata = {**wanted["metadata"], "labels": begun["metadata"].get("labels", {})}
    spec_of_claim = {**wanted["spec"], "resources": begun["spec"]["resources"]}
    if "storageClassName" in begun["spec"]:
        spec_of_claim["storageClassName"] = begun["spec"]["storageClassName"]
    templates = [{**wanted, "metadata": metadata, "spec": spec_of_claim}]
    spec = {**stateful_set["spec"], "volumeClaimTemplates": templates}
    return {**stateful_set, "spec": spec}


def is_larger(one: str, other: str) -> bool:
    """Whether quantity `one` exceeds `other`; False if either is malformed."""
    amounts = parse_quantity(one), parse_quantity(other)
    return amounts[0] is not None and amounts[1] is not None and amounts[0] > amounts[1]


def budget(name: str, labels: Manifest, match: Manifest, min_available: int) -> Manifest:
    """A PodDisruptionBudget with an integer minAvailable.

    Kubernetes computes a percentage, or maxUnavailable, from the controllers of existing pods:
    while a StatefulSet's only pod is absent it is not expected either, and a second pod could be
    evicted.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "minAvailable": min_available,
            "selector": {"matchLabels": match},
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
        },
    }
