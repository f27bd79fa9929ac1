"""Replacing pods whose template changed, one at a time. PURE.

StatefulSets here never replace pods themselves (OnDelete). A pod is out of date when its revision
is not its set's. A pod that runs goes only while no other is missing or going and all that are up
to date are ready. It goes by eviction, not deletion: so the disruption budget has the last word,
also about what happens at the same moment elsewhere. Only where the budget would refuse for ever,
since the pod is not ready and others are not either, is it deleted. Pods that cannot run (a wrong
image, an impossible request) are deleted together: they serve nobody and nothing is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from logfleet_operator.clusters.observed import EMPTY_VOLUME, Observed, Pod
from logfleet_operator.names import ETCD


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Ask for the eviction of this very pod."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this very pod, which is not ready and whose eviction the budget would refuse."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """Not all pods are there, ready and up to date: what is done or waited for. replaces: some are out of date."""

    why: str
    actions: tuple[EvictPod | DeletePod, ...] = ()
    replaces: bool = False


def plan_rollout(
    observed: Observed, component: str, stateful_sets: Sequence[str]
) -> Rollout | None:
    """The next step for the pods of these sets; None if all are ready and up to date."""
    pods = {pod.name: pod for pod in observed.of_component(component)}
    expected: list[str] = []
    revisions: dict[str, str] = {}
    for name in stateful_sets:
        live = observed.get("StatefulSet", name)
        status = (live or {}).get("status", {})
        if live is None or status.get("observedGeneration", 0) < live["metadata"]["generation"]:
            return Rollout(f"waiting until Kubernetes acts on StatefulSet {name}")
        for ordinal in range(live["spec"]["replicas"]):
            expected.append(f"{name}-{ordinal}")
            revisions[f"{name}-{ordinal}"] = status.get("updateRevision", "")
    missing = [name for name in expected if name not in pods]
    present = [pods[name] for name in expected if name in pods]
    outdated = [pod for pod in present if pod.revision != revisions[pod.name] and not pod.deleting]
    stuck = [pod for pod in outdated if pod.stuck and not pod.ready]
    if stuck:
        return Rollout(
            f"replacing {_names(stuck)}: out of date and not running" + troubles(stuck),
            tuple(DeletePod(pod.name, pod.uid) for pod in stuck),
            replaces=True,
        )
    unready = [pod for pod in present if not pod.ready or pod.deleting]
    if outdated:
        # One that is not ready goes first: replacing it costs nobody anything.
        pod = min(outdated, key=lambda candidate: (candidate.ready, candidate.name))
        others = [*missing, *_awaited(component, present, outdated)]
        if not others:
            return Rollout(
                f"replacing {pod.name}: out of date", (_removal(pod, present),), replaces=True
            )
        return Rollout(
            f"waiting for {', '.join(others[:5])}; will replace {pod.name} next"
            + troubles(unready),
            replaces=True,
        )
    if missing or unready:
        ready = len(expected) - len(missing) - len(unready)
        late = [*missing, *(pod.name for pod in unready)]
        return Rollout(
            f"waiting for {', '.join(late[:5])}: {ready} of {len(expected)} {_noun(component)} "
            "are ready" + troubles(unready)
        )
    return None


def _awaited(component: str, pods: Sequence[Pod], outdated: Sequence[Pod]) -> list[str]:
    """Names of the pods that must be gone or ready before one that runs is replaced.

    Not those that are out of date: perhaps it is what they run with that keeps them from being
    ready. Nor, while no member of etcd is ready, new members: they are only with a quorum.
    """
    without_quorum = component == ETCD and not any(pod.ready for pod in pods)
    return [
        pod.name
        for pod in pods
        if pod.deleting or not (pod.ready or without_quorum or pod in outdated)
    ]


def _removal(pod: Pod, pods: Sequence[Pod]) -> EvictPod | DeletePod:
    """How a pod that runs goes.

    A pod that is not ready may be evicted only beside enough that are, and never where the budget
    asks for none (unhealthyPodEvictionPolicy IfHealthyBudget; Kubernetes, pod/storage/eviction.go).
    """
    others = [other.ready for other in pods if other is not pod]
    if pod.ready or (others and all(others)):
        return EvictPod(pod.name, pod.uid)
    return DeletePod(pod.name, pod.uid)


def troubles(pods: Sequence[Pod]) -> str:
    """What Kubernetes says about pods that cannot run, to be put behind a sentence."""
    said = _troubles(pods)
    return f" ({'; '.join(said[:5])})" if said else ""


def troubles_of(observed: Observed) -> list[str]:
    """All pods of the Cluster that cannot run, each with what Kubernetes says of it."""
    return _troubles(sorted(observed.pods, key=lambda pod: pod.name))


def _troubles(pods: Sequence[Pod]) -> list[str]:
    said = []
    for pod in pods:
        if pod.stuck == EMPTY_VOLUME:
            said.append(
                f"{pod.name} lost its data and may not vote again; this version does not replace "
                "it, restore its volume"
            )
        elif pod.stuck:
            said.append(f"{pod.name}: {pod.stuck}")
    return said


def _names(pods: Sequence[Pod]) -> str:
    return ", ".join(pod.name for pod in pods[:5])


def _noun(component: str) -> str:
    return "members of etcd" if component == ETCD else "brokers"
