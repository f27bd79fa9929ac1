"""Replacing pods whose template changed, one at a time. PURE.

StatefulSets here never replace pods themselves (OnDelete). A pod is out of date when its revision
is not its set's. Eviction, not deletion, is how a running pod goes: so the disruption budget has
the last word, also about what happens at the same moment elsewhere. Pods that cannot run (a wrong
image, an impossible request) are deleted instead: eviction of one of several such pods would be
refused for ever, and they serve nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from logfleet_operator.names import ETCD
from logfleet_operator.observed import EMPTY_VOLUME, Observed, Pod


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Ask for the eviction of this very pod."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this very pod, which does not run."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """Not all pods are there, ready and up to date: what is done or waited for."""

    why: str
    actions: tuple[EvictPod | DeletePod, ...] = ()


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
    useless = [pod for pod in outdated if _useless(pod, present)]
    if useless:
        return Rollout(
            f"replacing {_names(useless)}: out of date and not running" + troubles(useless),
            tuple(DeletePod(pod.name, pod.uid) for pod in useless),
        )
    unready = [pod for pod in present if not pod.ready or pod.deleting]
    if outdated:
        # One that is not ready goes first: replacing it costs nobody anything.
        pod = min(outdated, key=lambda candidate: (candidate.ready, candidate.name))
        others = [*missing, *(other.name for other in unready if other.name != pod.name)]
        if not others:
            return Rollout(f"replacing {pod.name}: out of date", (EvictPod(pod.name, pod.uid),))
        return Rollout(
            f"waiting for {', '.join(others[:5])}; will replace {pod.name} next" + troubles(unready)
        )
    if missing or unready:
        ready = len(expected) - len(missing) - len(unready)
        late = [*missing, *(pod.name for pod in unready)]
        return Rollout(
            f"waiting for {', '.join(late[:5])}: {ready} of {len(expected)} {_noun(component)} "
            "are ready" + troubles(unready)
        )
    return None


def _useless(pod: Pod, all_pods: Sequence[Pod]) -> bool:
    """True if replacing it takes nothing away: it cannot run, or the whole fleet is down anyway."""
    return not pod.ready and (bool(pod.stuck) or not any(other.ready for other in all_pods))


def troubles(pods: Sequence[Pod]) -> str:
    """What Kubernetes says about pods that cannot run, to be put behind a sentence."""
    said = []
    for pod in pods:
        if pod.stuck == EMPTY_VOLUME:
            said.append(
                f"{pod.name} lost its data and may not vote again; this version does not replace "
                "it, restore its volume"
            )
        elif pod.stuck:
            said.append(f"{pod.name}: {pod.stuck}")
    return f" ({'; '.join(said[:5])})" if said else ""


def _names(pods: Sequence[Pod]) -> str:
    return ", ".join(pod.name for pod in pods[:5])


def _noun(component: str) -> str:
    return "members of etcd" if component == ETCD else "brokers"
