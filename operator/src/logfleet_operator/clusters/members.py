"""Heals a member of etcd that lost its volume: it is removed, added, and begins empty as a new one. PURE.

Under its old id it would vote with a forgotten log, so that an entry which a majority had could be lost (Raft, 5.4; etcd's
guide to runtime reconfiguration asks for removing and adding). So its gate stays shut until the list of members has it as
one that never started, and it is that very pod's uid that is let in: another pod without data is asked again.
"""

from logfleet.resources.cluster import ClusterResource

from logfleet_operator import names
from logfleet_operator.clusters import etcd
from logfleet_operator.clusters.broker_ids import recorded
from logfleet_operator.clusters.observed import EMPTY_VOLUME, EtcdMember, ObservedCluster, Pod
from logfleet_operator.clusters.steps import AddMember, ClusterPlan, RemoveMember, Stage


def has_majority(cluster: ClusterResource, observed: ObservedCluster) -> bool:
    """Whether so many members are ready that etcd serves."""
    managed = cluster.spec.metadata.managed
    ready = sum(pod.ready and not pod.deleting for pod in observed.of_component(names.ETCD))
    return managed is not None and ready > managed.replicas // 2


def is_lame(cluster: ClusterResource, observed: ObservedCluster) -> bool:
    """It serves though some member cannot run: that holds up nothing else."""
    stuck = any(pod.stuck and not pod.ready for pod in observed.of_component(names.ETCD))
    return stuck and has_majority(cluster, observed)


def lost(cluster: ClusterResource, observed: ObservedCluster) -> Pod | None:
    """The member to heal: one at a time, while a majority of the others is ready. Never force-new-cluster."""
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
    """The uid of the pod that may begin without data, for the record; "" for none."""
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
    """Have the lost member removed, then added; what comes then is the record's to say."""
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
