"""Removes objects that are no longer wanted: brokers that never ran, unused Services. PURE."""

from collections.abc import Sequence

from logfleet.resources.cluster import ClusterResource, set_name

from logfleet_operator import names
from logfleet_operator.clusters import manifests, shrinking
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.clusters.broker_ids import ordinal_of
from logfleet_operator.clusters.observed import (
    ObservedCluster,
    configs_in_use,
    controlled_by,
    is_bound,
    node_ports,
)
from logfleet_operator.clusters.steps import ClusterPlan, Delete, Stage


def never_ran(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> ClusterPlan | None:
    """Remove StatefulSets without brokers, and claims without a volume that no pod waits for.

    `ranges` keep all brokers that ran (`broker_id_ranges.allocate`), so these never held a record.
    """
    wanted = {
        set_name(cluster.metadata.name, given.pool, given.zone): given.replicas for given in ranges
    }
    left = []
    for (kind, name), live in sorted(observed.objects.items()):
        component = live["metadata"]["labels"].get(names.COMPONENT_LABEL)
        is_ours = controlled_by(live, cluster.metadata.uid)
        if kind == "StatefulSet" and component == names.BROKER and is_ours and not wanted.get(name):
            left.append(Delete(kind, name, live["metadata"]["uid"]))
    pods = {pod.name for pod in observed.pods}
    for volume in observed.volumes:
        metadata = volume["metadata"]
        ordinal = ordinal_of(volume, cluster.metadata.name)
        if ordinal is None or is_bound(volume) or "deletionTimestamp" in metadata:
            continue
        if shrinking.state_of(volume) not in {"", shrinking.State.FORGOTTEN}:
            continue
        pod = str(metadata["name"]).removeprefix("data-")
        stateful_set = pod.rpartition("-")[0]
        live_set = observed.get("StatefulSet", stateful_set)
        asked = live_set["spec"]["replicas"] if live_set is not None else 0
        if ordinal >= max(wanted.get(stateful_set, 0), asked) and pod not in pods:
            left.append(Delete("PersistentVolumeClaim", metadata["name"], metadata["uid"]))
    return _removing(left, ", which never ran")


def unused_services(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> ClusterPlan | None:
    """Remove NodePorts of removed listeners and brokers, once no broker advertises them any more.

    Only those that this Cluster owns: labels are easily copied.
    """
    ports = node_ports(observed, cluster)
    wanted = {
        manifest["metadata"]["name"] for manifest in manifests.services(cluster, ranges, ports)
    }
    left = [
        Delete(kind, name, live["metadata"]["uid"])
        for (kind, name), live in sorted(observed.objects.items())
        if kind == "Service"
        and name not in wanted
        and live["spec"].get("type") == "NodePort"
        and controlled_by(live, cluster.metadata.uid)
    ]
    return _removing(left, "")


def unused_configs(
    cluster: ClusterResource, observed: ObservedCluster, wanted: str
) -> ClusterPlan | None:
    """Remove configurations that no pod uses. wanted: the ConfigMap that pods start with now."""
    used = {wanted, *configs_in_use(observed)}
    left = [
        Delete(kind, name, live["metadata"]["uid"])
        for (kind, name), live in sorted(observed.objects.items())
        if kind == "ConfigMap"
        and name.startswith(names.config_revision(cluster.metadata.name, ""))
        and name not in used
        and controlled_by(live, cluster.metadata.uid)
    ]
    return _removing(left, "")


def _removing(left: Sequence[Delete], why: str) -> ClusterPlan | None:
    if not left:
        return None
    listed = ", ".join(f"{each.kind} {each.name}" for each in left[:5])
    return ClusterPlan(f"removing {listed}{why}", tuple(left), stage=Stage.REMOVING)
