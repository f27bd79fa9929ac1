"""Repairs an etcd member that lost its volume: removes it and adds it as a new, empty one. PURE.

Under its old id it would vote with a lost log, and an entry that a majority had could be lost
(Raft, 5.4; etcd's guide to runtime reconfiguration asks for removing and adding). So its gate stays
closed until the member list has it as one that never started. Only that pod's uid is admitted:
another pod without data is stopped again.
"""

from logfleet.resources.cluster import ClusterResource

from logfleet_operator import names
from logfleet_operator.clusters import etcd
from logfleet_operator.clusters.broker_ids import recorded
from logfleet_operator.clusters.observed import EMPTY_VOLUME, EtcdMember, ObservedCluster, Pod
from logfleet_operator.clusters.steps import AddMember, ClusterPlan, RemoveMember, Stage


def has_majority(cluster: ClusterResource, observed: ObservedCluster) -> bool:
    """Whether enough members are ready for etcd to serve."""
    managed = cluster.spec.metadata.managed
    ready = sum(pod.ready and not pod.deleting for pod in observed.of_component(names.ETCD))
    return managed is not None and ready > managed.replicas // 2


def serves_degraded(cluster: ClusterResource, observed: ObservedCluster) -> bool:
    """Whether etcd serves although a member cannot run, so that it holds up nothing else."""
    stuck = any(pod.stuck and not pod.ready for pod in observed.of_component(names.ETCD))
    return stuck and has_majority(cluster, observed)


def lost(cluster: ClusterResource, observed: ObservedCluster) -> Pod | None:
    """The member to repair: one at a time, while a majority is ready. Never force-new-cluster."""
    record = recorded(observed, cluster.metadata.name)
    if record is None or record[1] != etcd.ESTABLISHED or not has_majority(cluster, observed):
        return None
    found = [
        pod
        for pod in observed.of_component(names.ETCD)
        if pod.stuck == EMPTY_VOLUME and not pod.ready and not pod.deleting
    ]
    return min(found, key=lambda pod: pod.name, default=None)


def admitted(cluster: ClusterResource, observed: ObservedCluster, state: str) -> str:
    """The uid of the pod that may start without data, for the record; "" for none."""
    pod = lost(cluster, observed) if state == etcd.ESTABLISHED else None
    if pod is not None:
        entry = _entry(cluster, observed, pod)
        if entry is not None and not entry.name:
            return pod.uid
    live = observed.get("ConfigMap", names.record_map(cluster.metadata.name))
    before = str(((live or {}).get("data") or {}).get(etcd.ADMITTED_KEY, ""))
    waiting = (pod.uid for pod in observed.of_component(names.ETCD) if not pod.ready)
    return before if before in waiting else ""


def heal(cluster: ClusterResource, observed: ObservedCluster) -> ClusterPlan | None:
    """Remove the lost member, then add it; after that the record admits its pod."""
    pod = lost(cluster, observed)
    if pod is None or observed.members is None:
        return None
    entry = _entry(cluster, observed, pod)
    if entry is None:
        url = etcd.peer_url(cluster, pod.name)
        why = f"adding {pod.name} to etcd as a new member"
        return ClusterPlan(why, (AddMember(pod.name, url),), stage=Stage.HEALING)
    if entry.name and pod.uid != admitted(cluster, observed, etcd.ESTABLISHED):
        why = f"removing {pod.name} from etcd: it lost its data"
        return ClusterPlan(why, (RemoveMember(pod.name, entry.id),), stage=Stage.HEALING)
    return None


def _entry(cluster: ClusterResource, observed: ObservedCluster, pod: Pod) -> EtcdMember | None:
    url = etcd.peer_url(cluster, pod.name)
    return next((each for each in observed.members or () if each.peer_url == url), None)
