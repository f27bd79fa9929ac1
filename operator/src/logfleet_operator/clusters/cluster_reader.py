"""Reads the existing objects of a Cluster from Kubernetes. SHELL."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from logfleet.resources.cluster import ClusterResource

from logfleet_operator import names
from logfleet_operator.accepted import last_accepted
from logfleet_operator.clusters import certificates, metadata_store
from logfleet_operator.clusters.observed import (
    FRESH,
    ObservedCluster,
    Rewriting,
    by_kind_and_name,
    pod_from,
    ready_condition,
)
from logfleet_operator.clusters.pods import ZONE_KEY
from logfleet_operator.kube import Kube
from logfleet_operator.names import Manifest

OWNED_KINDS: Final = (
    "ConfigMap",
    "CronJob",
    "PodDisruptionBudget",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)


class Readiness:
    """Since when pods have been ready, by the clock of this process.

    A pod's status has the time of its node, and clocks of two machines are not compared: a changed
    time means that the pod became ready again, whatever the time is. A pod that was ready at this
    process's first read of the Cluster counts as ready since the node's time, at the latest since
    that read.
    """

    def __init__(self) -> None:
        # (namespace, Cluster) -> uid -> (the node's time, since when by this clock), of ready pods.
        self._seen: dict[tuple[str, str], dict[str, tuple[str, datetime]]] = {}

    def remove(self, namespace: str, cluster: str) -> None:
        self._seen.pop((namespace, cluster), None)

    def fresh(
        self, namespace: str, cluster: str, pods: Iterable[Manifest], now: datetime
    ) -> frozenset[str]:
        """The uids of a Cluster's pods that have been ready for less than FRESH."""
        before = self._seen.get((namespace, cluster))
        seen: dict[str, tuple[str, datetime]] = {}
        for live in pods:
            uid = live["metadata"]["uid"]
            written = (ready_condition(live) or {}).get("lastTransitionTime")
            if written is None:
                continue
            since = min(now, datetime.fromisoformat(written)) if before is None else now
            known = (before or {}).get(uid, ("", now))
            seen[uid] = known if known[0] == written else (written, since)
        self._seen[namespace, cluster] = seen
        return frozenset(uid for uid, (_, since) in seen.items() if now - since < FRESH)


async def observe(
    kube: Kube,
    cluster: ClusterResource,
    rewritings: Mapping[tuple[str, str], Rewriting],
    readiness: Readiness,
    now: datetime,
) -> ObservedCluster:
    """Read everything that the plan needs. Raises KubeError, KubeUnavailable."""
    name, namespace = cluster.metadata.name, cluster.metadata.namespace
    ours = {names.CLUSTER_LABEL: name}
    kinds = (*OWNED_KINDS, "Pod", "PersistentVolumeClaim")
    lists = await asyncio.gather(
        *(kube.list(kind, namespace, ours) for kind in kinds),
        kube.list("StorageClass", ""),
    )
    found = dict(zip((*kinds, "StorageClass"), lists, strict=True))
    secret_names = [names.etcd_secret(name, role) for role in ("ca", "server", "client")]
    secrets = await asyncio.gather(
        *(kube.get("Secret", namespace, secret) for secret in secret_names)
    )
    known = {
        secret: live for secret, live in zip(secret_names, secrets, strict=True) if live is not None
    }
    fresh = readiness.fresh(namespace, name, found["Pod"], now)
    ends = {secret: certificates.not_after(live) for secret, live in known.items()}
    observed = ObservedCluster(
        objects=by_kind_and_name(live for kind in OWNED_KINDS for live in found[kind]),
        secrets=known,
        ends={secret: end for secret, end in ends.items() if end is not None},
        pods=tuple(pod_from(live, fresh=live["metadata"]["uid"] in fresh) for live in found["Pod"]),
        volumes=tuple(found["PersistentVolumeClaim"]),
        storage_classes=tuple(found["StorageClass"]),
        rewritings=rewritings,
    )
    brokers = observed.of_component(names.BROKER)
    if any(not pod.node for pod in brokers):
        cordoned = await _cordoned(kube, {pod.node for pod in brokers} - {""})
        observed = replace(observed, cordoned=cordoned)
    if not metadata_store.zones_taken_away(cluster, observed):
        return observed
    nodes = {pod.node for pod in observed.of_component(names.ETCD)} - {""}
    return replace(observed, zones=await _zones_of(kube, nodes))


async def accepted_cluster(kube: Kube, live: Manifest) -> ClusterResource | None:
    """The last accepted Cluster, see `accepted`. Raises KubeError, KubeUnavailable."""
    metadata = live["metadata"]
    name = names.record_map(metadata["name"])
    return last_accepted(live, await kube.get("ConfigMap", metadata["namespace"], name))


async def _cordoned(kube: Kube, nodes: set[str]) -> frozenset[str]:
    found = await asyncio.gather(*(kube.get("Node", "", node) for node in sorted(nodes)))
    return frozenset(
        live["metadata"]["name"]
        for live in found
        if live is not None and live.get("spec", {}).get("unschedulable", False)
    )


async def _zones_of(kube: Kube, nodes: set[str]) -> dict[str, str]:
    """Node -> zone, of the nodes that exist and have a zone."""
    zones = {}
    for node in sorted(nodes):
        live = await kube.get("Node", "", node)
        zone = (live or {"metadata": {}})["metadata"].get("labels", {}).get(ZONE_KEY)
        if zone:
            zones[node] = zone
    return zones
