"""Replaces pods whose template changed: one at a time, brokers zone by zone. PURE.

StatefulSets here never replace pods themselves (OnDelete). A pod is out of date if its revision is
not its set's. A running pod is replaced only while no other is missing or being deleted and all
updated ones are ready, brokers for half a minute (like minReadySeconds of a Deployment: until load
balancers and name servers have their new addresses, and leaders may move to them).

Brokers are replaced in waves: all outdated ones of a zone, or as many of them as the brokers let
stop together (`may_i`); none while no broker answers. The first of a wave is evicted, not deleted,
so that the disruption budget decides, also about what happens elsewhere at the same moment. The
others, for which the budget has no room, are deleted, but only after that eviction was allowed. A
pod that is not ready is deleted if the budget would refuse for ever, because others are not ready
either. Pods that cannot run (a wrong image, an impossible request) are deleted together: they serve
nobody and nothing is lost.

A pod whose volume claim is being deleted is never removed: Kubernetes keeps the claim, and the disk
with its data, as long as the pod exists (Storage Object in Use Protection). A person decides when
the disk goes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from logfleet_operator.clusters.observed import EMPTY_VOLUME, FRESH, ObservedCluster, Pod, is_bound
from logfleet_operator.names import BROKER, ETCD, ZONE_LABEL

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Ask for the eviction of the pod with this uid."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod with this uid, which is not ready; the budget would refuse an eviction."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """The action or the wait while some pods are missing, unready or out of date.

    replaces: some pods are out of date. needs_person: only a person can go on.
    """

    why: str
    actions: tuple[EvictPod | DeletePod, ...] = ()
    replaces: bool = False
    needs_person: bool = False


@dataclass(frozen=True, slots=True)
class _Pods:
    """The pods that some sets should have.

    missing: names. outdated: pods to be replaced, not yet being deleted. losing_disk: outdated, but
    their disk would go with them. places: name -> (number of the set in the sets' order, zone).
    """

    expected: tuple[str, ...]
    missing: tuple[str, ...]
    present: tuple[Pod, ...]
    outdated: tuple[Pod, ...]
    losing_disk: tuple[Pod, ...]
    places: Mapping[str, tuple[int, str]]


def _pods_of(observed: ObservedCluster, component: str, sets: Sequence[str]) -> _Pods | str:
    """The pods, or the name of a set on whose change Kubernetes has not acted yet."""
    pods = {pod.name: pod for pod in observed.of_component(component)}
    revisions: dict[str, str] = {}
    places: dict[str, tuple[int, str]] = {}
    for number, name in enumerate(sets):
        live = observed.get("StatefulSet", name)
        status = (live or {}).get("status", {})
        if live is None or status.get("observedGeneration", 0) < live["metadata"]["generation"]:
            return name
        zone = live["metadata"].get("labels", {}).get(ZONE_LABEL, "")
        for ordinal in range(live["spec"]["replicas"]):
            revisions[f"{name}-{ordinal}"] = status.get("updateRevision", "")
            places[f"{name}-{ordinal}"] = number, zone
    present = tuple(pods[name] for name in revisions if name in pods)
    outdated = [pod for pod in present if pod.revision != revisions[pod.name] and not pod.deleting]
    last = pods_losing_volumes(observed)
    return _Pods(
        expected=tuple(revisions),
        missing=tuple(name for name in revisions if name not in pods),
        present=present,
        outdated=tuple(pod for pod in outdated if pod.name not in last),
        losing_disk=tuple(pod for pod in outdated if pod.name in last),
        places=places,
    )


def pods_losing_volumes(observed: ObservedCluster) -> frozenset[str]:
    """Names of the pods whose volume claims are deleted as soon as the pods are."""
    claims = (live["metadata"] for live in observed.volumes)
    going = {
        str(claim["name"]).removeprefix("data-") for claim in claims if "deletionTimestamp" in claim
    }
    return frozenset(pod.name for pod in observed.pods if pod.name in going)


def next_wave(observed: ObservedCluster, stateful_sets: Sequence[str]) -> tuple[Pod, ...]:
    """The brokers to replace next, all of one zone; empty if none can be replaced now.

    A zone with updated brokers comes first. A broker that is not ready goes first and alone: it may
    catch up, and be in sync with some of its partitions. Without zones each goes alone. Pods that
    cannot run are not included: they are deleted without asking.
    """
    pods = _pods_of(observed, BROKER, stateful_sets)
    if not isinstance(pods, str) and (drained := _drained(observed, pods)):
        return drained
    if isinstance(pods, str) or not pods.outdated or pods.missing or _stuck(pods):
        return ()
    if _awaited(BROKER, pods):
        return ()
    unready = [pod for pod in pods.outdated if not pod.ready]
    if unready:
        return (min(unready, key=lambda pod: pod.name),)
    old = {pod.name for pod in (*pods.outdated, *pods.losing_disk)}
    begun = {pods.places[pod.name][1] for pod in pods.present if pod.name not in old}
    first = min(pods.outdated, key=lambda pod: _place(pods, pod, begun))
    zone = pods.places[first.name][1]
    if not zone:
        return (first,)
    wave = [pod for pod in pods.outdated if pods.places[pod.name][1] == zone]
    return tuple(sorted(wave, key=lambda pod: _place(pods, pod, begun)))


def _drained(observed: ObservedCluster, pods: _Pods) -> tuple[Pod, ...]:
    """Brokers that must leave a cordoned node because a pod from there waits for that node.

    Volumes bound to a node make their pod wait for that node. The budget allows no second eviction
    before the first pod is back, which is not before the node is: `kubectl drain` would wait for
    ever. So these brokers are handled like a wave, if the brokers allow it, and deleted, which the
    budget does not count.
    """
    waiting = {
        pods.places[pod.name][1]
        for pod in pods.present
        if not pod.ready and not pod.node and _waits_for_its_node(observed, pod)
    }
    return tuple(
        pod
        for pod in pods.present
        if pod.node in observed.cordoned
        and not pod.deleting
        and pod.name not in pods_losing_volumes(observed)
        and pods.places[pod.name][1] in waiting - {""}
    )


def _waits_for_its_node(observed: ObservedCluster, pod: Pod) -> bool:
    """Whether its volume is on a cordoned node; a new broker without room waits for any node.

    This annotation tells the provisioner where the pod is to run (Kubernetes, volume scheduling).
    """
    claim = next(
        (each for each in observed.volumes if each["metadata"]["name"] == f"data-{pod.name}"), None
    )
    if claim is None or not is_bound(claim):
        return False
    node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
    return node is None or node in observed.cordoned


def _stuck(pods: _Pods) -> list[Pod]:
    """Return the outdated pods that cannot run, so replacing them interrupts nothing."""
    return [pod for pod in pods.outdated if pod.stuck and not pod.ready]


def _place(pods: _Pods, pod: Pod, begun: set[str]) -> tuple[bool, int, str]:
    number, zone = pods.places[pod.name]
    return zone not in begun, number, pod.name


def plan_rollout(
    observed: ObservedCluster, component: str, stateful_sets: Sequence[str]
) -> Rollout | None:
    """The next step for the pods of these sets; None if all are ready and up to date."""
    pods = _pods_of(observed, component, stateful_sets)
    if isinstance(pods, str):
        return Rollout(f"waiting until Kubernetes acts on StatefulSet {pods}")
    stuck = _stuck(pods)
    if stuck:
        return Rollout(
            f"replacing {_names(stuck)}: out of date and not running" + troubles(stuck),
            tuple(DeletePod(pod.name, pod.uid) for pod in stuck),
            replaces=True,
        )
    drained = _drained(observed, pods) if component == BROKER else ()
    if drained:
        going = [each for each in drained if each.name in observed.leave.pods]
        if not going:
            return Rollout(f"waiting to empty {drained[0].node}: {observed.leave.objection}")
        return Rollout(
            f"emptying {drained[0].node}, which is drained: {_names(going)}",
            tuple(DeletePod(each.name, each.uid) for each in going),
        )
    unready = [pod for pod in pods.present if not pod.ready or pod.deleting]
    # Beside a kept member that is not ready the budget allows no eviction of a ready one.
    blocked = component == ETCD and not all(pod.ready for pod in pods.losing_disk)
    if pods.outdated and not (blocked and all(pod.ready for pod in pods.outdated)):
        return _replace(observed, component, stateful_sets, pods)
    late = [*pods.missing, *(pod.name for pod in unready)]
    if {*late} - {pod.name for pod in pods.losing_disk}:
        ready = len(pods.expected) - len(late)
        return Rollout(
            f"waiting for {', '.join(late[:5])}: {ready} of {len(pods.expected)} "
            f"{_noun(component)} are ready" + troubles(unready)
        )
    if pods.losing_disk:
        return Rollout(
            f"not replacing {_names(pods.losing_disk)}: out of date, but the disk goes with the "
            f"pod, as its volume claim is being deleted; see status.warnings{troubles(unready)}",
            replaces=True,
            needs_person=True,
        )
    return None


def _replace(
    observed: ObservedCluster, component: str, stateful_sets: Sequence[str], pods: _Pods
) -> Rollout:
    """Replace one member of etcd, an unready one first, or a wave of brokers."""
    one = min(pods.outdated, key=lambda candidate: (candidate.ready, candidate.name))
    wave = next_wave(observed, stateful_sets) if component == BROKER else ()
    others = [*pods.missing, *_awaited(component, pods)]
    if others:
        unready = [each for each in pods.present if not each.ready or each.deleting]
        settling = all(each.ready and each.fresh for each in pods.present if each.name in others)
        since = f", ready for less than {FRESH.seconds} s" if settling and not pods.missing else ""
        return Rollout(
            f"waiting for {', '.join(others[:5])}{since}; will replace {one.name} next"
            + troubles(unready),
            replaces=True,
        )
    if component == ETCD:
        alone = (_removal(one, pods.present),)
        return Rollout(f"replacing {one.name}: out of date", alone, replaces=True)
    going = [each for each in wave if each.name in observed.leave.pods]
    if not going:
        return Rollout(
            f"waiting to replace {wave[0].name}: {observed.leave.objection}", replaces=True
        )
    rest = (DeletePod(each.name, each.uid) for each in going[1:])
    actions = (_removal(going[0], pods.present), *rest)
    return Rollout(f"replacing {_names(going)}: out of date", actions, replaces=True)


def _awaited(component: str, pods: _Pods) -> list[str]:
    """Names of the pods that must be gone or ready before a running pod is replaced.

    Outdated pods are left out: their old template may be what keeps them from being ready. So are
    new etcd members while no member is ready: they get ready only with a quorum.
    """
    without_quorum = component == ETCD and not any(pod.ready for pod in pods.present)
    outdated = (*pods.outdated, *pods.losing_disk)
    return [
        pod.name
        for pod in pods.present
        if pod.deleting
        or not (pod.ready or without_quorum or pod in outdated)
        or (component == BROKER and pod.fresh and pod not in outdated)
    ]


def _removal(pod: Pod, pods: Sequence[Pod]) -> EvictPod | DeletePod:
    """Choose the way to remove a running pod.

    A pod that is not ready may be evicted only beside enough ready ones, and never where the budget
    asks for none (unhealthyPodEvictionPolicy IfHealthyBudget; Kubernetes, pod/storage/eviction.go).
    """
    others = [other.ready for other in pods if other is not pod]
    if pod.ready or (others and all(others)):
        return EvictPod(pod.name, pod.uid)
    return DeletePod(pod.name, pod.uid)


def troubles(pods: Sequence[Pod]) -> str:
    """Kubernetes' reasons for pods that cannot run, as a suffix of a sentence."""
    found = _troubles(pods)
    return f" ({'; '.join(found[:5])})" if found else ""


def troubles_of(observed: ObservedCluster) -> list[str]:
    """All pods of the Cluster that cannot run, each with what Kubernetes reports."""
    return _troubles(sorted(observed.pods, key=lambda pod: pod.name))


def _troubles(pods: Sequence[Pod]) -> list[str]:
    found = []
    for pod in pods:
        if pod.stuck == EMPTY_VOLUME:
            found.append(
                f"{pod.name} lost its data and may not vote again; it joins again once a "
                "majority of the others is ready"
            )
        elif pod.stuck:
            found.append(f"{pod.name}: {pod.stuck}")
    return found


def _names(pods: Sequence[Pod]) -> str:
    return ", ".join(pod.name for pod in pods[:5])


def _noun(component: str) -> str:
    return "members of etcd" if component == ETCD else "brokers"
