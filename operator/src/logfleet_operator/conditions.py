"""The status of a resource: its conditions (metav1.Condition) and what a person wants to see. PURE.

Ready is always there, so that `kubectl wait --for=condition=Ready` works in every state. Its reason
is a logfleet.resources.plan.Reason, its message the sentence `why`. A Cluster always has these as
well: Progressing (reason: a clusters.steps.Stage), Degraded (what partitions lack, or
PodsCannotRun, NotDegraded, NobodyAnswers), Paused, TopicDeletionBlocked.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import ObservedTopic, PartitionHealth, Reason, SpecRefusal
from logfleet.resources.topic import TopicResource

from logfleet_operator import names
from logfleet_operator.clusters import manifests, resizing, snapshots, volumes
from logfleet_operator.clusters.observed import ObservedCluster, node_ports
from logfleet_operator.clusters.rollout import troubles_of
from logfleet_operator.clusters.steps import ClusterPlan, Stage
from logfleet_operator.documents import ignored_fields
from logfleet_operator.upgrades import rules as upgrades

Status = dict[str, Any]

BROKERS_LISTED_MAX: Final = 100
BOOTSTRAP_HOSTS_MAX: Final = 10
READY: Final = "Ready"
PROGRESSING: Final = "Progressing"
DEGRADED: Final = "Degraded"
PAUSED: Final = "Paused"
DELETION_BLOCKED: Final = "TopicDeletionBlocked"
TROUBLES_MAX: Final = 20
PODS_CANNOT_RUN: Final = "PodsCannotRun"


def condition_of(live: Mapping[str, Any], kind: str) -> Status | None:
    """The condition of type `kind` in the live object's status, or None."""
    conditions: list[Status] = live.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), None)


def condition(
    live: Mapping[str, Any], kind: str, *, true: bool | None, reason: str, message: str, now: str
) -> Status:
    """A condition of type `kind`; it keeps its transition time while its status stays the same.

    live: the whole live object. true: None for Unknown. now: RFC 3339, UTC, whole seconds.
    """
    status = "Unknown" if true is None else str(true)
    before = condition_of(live, kind) or {}
    changed = before.get("status") != status
    return {
        "type": kind,
        "status": status,
        "reason": str(reason),
        "message": message,
        "lastTransitionTime": now if changed else before["lastTransitionTime"],
        "observedGeneration": live["metadata"].get("generation", 0),
    }


def failed(live: Mapping[str, Any], reason: Reason, message: str, now: str) -> Status:
    """The live status with Ready=False; all other fields and conditions stay."""
    ready = condition(live, READY, true=False, reason=reason, message=message, now=now)
    others = [old for old in live.get("status", {}).get("conditions", ()) if old["type"] != READY]
    return {
        **live.get("status", {}),
        "observedGeneration": live["metadata"].get("generation", 0),
        "why": message,
        "conditions": [ready, *others],
    }


def cluster_failed(live: Mapping[str, Any], reason: Reason, message: str, now: str) -> Status:
    """As `failed`, for a Cluster: it is not progressing, and every condition is present."""
    status = failed(live, reason, message, now)
    known = {old["type"]: old for old in status["conditions"]}
    known[PROGRESSING] = condition(
        live, PROGRESSING, true=False, reason=Stage.REFUSED, message=message, now=now
    )
    known.setdefault(
        PAUSED, condition(live, PAUSED, true=False, reason="NotPaused", message="", now=now)
    )
    status["conditions"] = list(known.values())
    return status


def ready_as_written(live: Mapping[str, Any]) -> bool:
    """True if it was Ready at the generation that it has now."""
    ready = condition_of(live, READY)
    generation = live["metadata"].get("generation", 0)
    return ready is not None and (ready["status"], ready["observedGeneration"]) == (
        "True",
        generation,
    )


def postponed(live: Mapping[str, Any], message: str, now: str) -> Status:
    """The live status with the reason why nothing can be done now; a Ready object stays Ready.

    A message that differs from the last one only in numbers is not written again: it may contain
    the port of a connection, and each change of a status is an event that causes another reconcile
    at once.
    """
    status: Status = live.get("status", {})
    if _without_numbers(message) == _without_numbers(status.get("why", "")):
        message = status["why"]
    if ready_as_written(live):
        return {**status, "why": message}
    return cluster_failed(live, Reason.PROGRESSING, message, now)


def _without_numbers(message: str) -> str:
    return re.sub(r"\d+", "", message)


def spreads(live: Mapping[str, Any], cluster: ClusterResource) -> bool:
    """Whether new brokers may lack their share of replicas.

    True if the spec wants more brokers than last time, or did and no broker was removed since.
    """
    status = live.get("status", {})
    before = status.get("replicas", 0)
    is_wanted = cluster.spec.scaling.on_scale_up == "Rebalance"
    is_more = 0 < before < cluster.brokers
    return is_wanted and (is_more or (status.get("spreading", False) and before <= cluster.brokers))


def cluster_status(
    live: Mapping[str, Any],
    cluster: ClusterResource,
    observed: ObservedCluster,
    plan: ClusterPlan,
    now: str,
) -> Status:
    """The whole status of a Cluster whose spec is valid."""
    brokers = _brokers(cluster, observed, plan)
    etcd_pods = observed.of_component(names.ETCD)
    status: Status = {
        "observedGeneration": cluster.metadata.generation,
        "why": plan.why,
        "warnings": [
            f"spec.config.{key}: brokers know no such key, it is ignored"
            for key in manifests.unknown_keys(cluster)
        ]
        + [
            f"{path}: this version of the operator knows no such field, it is ignored"
            for path in ignored_fields(live)
        ],
        "troubles": troubles_of(observed)[:TROUBLES_MAX],
        "replicas": cluster.brokers,
        "readyReplicas": sum(pod.ready for pod in observed.of_component(names.BROKER)),
        "spreading": not plan.spread and spreads(live, cluster),
        "listeners": _listeners(cluster, observed, plan),
        "brokers": brokers[:BROKERS_LISTED_MAX],
        "ranges": [msgspec.structs.asdict(given) for given in plan.ranges],
        "pools": _pools(cluster, observed, plan),
        "conditions": _cluster_conditions(live, plan, now),
    }
    if not plan.ranges:  # paused or refused: the last values are still true
        for key in ("listeners", "brokers", "ranges", "pools"):
            status[key] = live.get("status", {}).get(key, [])
    if cluster.spec.metadata.managed is not None:
        status["metadata"] = {
            "members": cluster.spec.metadata.managed.replicas,
            "readyMembers": sum(pod.ready for pod in etcd_pods),
        }
        if taken := snapshots.last_taken(cluster, observed):
            status["metadata"]["lastSnapshot"] = taken
    status |= _levels(live, plan)
    level = status.get("featureLevel", 0)
    if below := upgrades.warning(cluster.spec.feature_level, level):
        status["warnings"].append(below)
    if failed := snapshots.trouble(cluster, observed, datetime.fromisoformat(now)):
        status["warnings"].append(failed)
    moment = datetime.fromisoformat(now)
    status["warnings"] += volumes.deletion_warnings(observed)
    status["warnings"] += resizing.warnings(cluster, observed, plan.ranges, moment)
    return status


def _pools(cluster: ClusterResource, observed: ObservedCluster, plan: ClusterPlan) -> list[Status]:
    return [
        {"name": there.name, "size": there.size} | ({"class": there.class_} if there.class_ else {})
        for there in volumes.by_pool(cluster, observed, plan.ranges)
    ]


def _levels(live: Mapping[str, Any], plan: ClusterPlan) -> Status:
    """The feature level, as it was read last."""
    if plan.level is not None:
        return {
            "featureLevel": plan.level.finalized,
            "featureLevelPossible": plan.level.possible,
        }
    before = live.get("status", {})
    return {key: before[key] for key in ("featureLevel", "featureLevelPossible") if key in before}


def _cluster_conditions(live: Mapping[str, Any], plan: ClusterPlan, now: str) -> list[Status]:
    paused = condition(
        live,
        PAUSED,
        true=plan.paused,
        reason="Paused" if plan.paused else "NotPaused",
        message=plan.why if plan.paused else "",
        now=now,
    )
    progressing = condition(
        live,
        PROGRESSING,
        true=plan.stage.is_progress,
        reason=plan.stage,
        message=plan.why if plan.stage.is_progress else "",
        now=now,
    )
    if plan.paused and (ready := condition_of(live, READY)) is not None:
        # While paused, Ready keeps its last value, except that partitions are still checked
        # (`add_partition_health`).
        if ready["reason"] == Reason.OFFLINE_PARTITIONS:
            ready = condition(
                live, READY, true=True, reason=Reason.READY, message=plan.why, now=now
            )
        return [ready, progressing, paused]
    reason: str = Reason.READY if plan.done else Reason.PROGRESSING
    if plan.refusal is not None:
        reason = plan.refusal.reason
    is_ready = plan.done and plan.refusal is None
    ready = condition(live, READY, true=is_ready, reason=reason, message=plan.why, now=now)
    return [ready, progressing, paused]


def _brokers(
    cluster: ClusterResource, observed: ObservedCluster, plan: ClusterPlan
) -> list[Status]:
    pods = {pod.name: pod for pod in observed.of_component(names.BROKER)}
    places = {
        broker_id: given
        for given in plan.ranges
        for broker_id in range(given.base, given.base + given.replicas)
    }
    result = []
    for broker_id, name in manifests.broker_pods(cluster, plan.ranges):
        pod, place = pods.get(name), places[broker_id]
        entry: Status = {"id": broker_id, "pool": place.pool, "zone": place.zone, "pod": name}
        entry["node"] = pod.node if pod is not None else ""
        entry["ready"] = pod is not None and pod.ready
        result.append(entry)
    return result


def _listeners(
    cluster: ClusterResource, observed: ObservedCluster, plan: ClusterPlan
) -> list[Status]:
    ports = node_ports(observed, cluster)
    hosts = {pod.name: pod.host_ip for pod in observed.of_component(names.BROKER)}
    result = []
    for listener in cluster.spec.listeners:
        if listener.type == "internal":
            bootstrap = manifests.bootstrap_address(cluster)
        else:
            addresses = []
            for broker_id, pod in manifests.broker_pods(cluster, plan.ranges):
                host = listener.advertised_host or hosts.get(pod)
                port = ports.get((listener.name, broker_id))
                if host and port:
                    addresses.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            bootstrap = ",".join(addresses[:BOOTSTRAP_HOSTS_MAX])
        result.append({"name": listener.name, "type": listener.type, "bootstrap": bootstrap})
    return result


def topic_status(
    live: Mapping[str, Any],
    topic: TopicResource,
    observed: ObservedTopic | None,
    *,
    refusal: SpecRefusal | None,
    why: str,
    now: str,
) -> Status:
    """The whole status of a Topic whose spec is valid; observed: the topic as it is now."""
    done = refusal is None
    ready = condition(
        live,
        "Ready",
        true=done,
        reason=Reason.READY if refusal is None else refusal.reason,
        message=why,
        now=now,
    )
    status: Status = {
        "observedGeneration": topic.metadata.generation,
        "why": why,
        "topicName": topic.name,
        "conditions": [ready],
    }
    if observed is not None:
        status["topicId"] = observed.topic_id
        status["partitions"] = observed.partitions
        status["replicas"] = observed.replicas
    return status


def add_partition_health(
    live: Mapping[str, Any], status: Status, partition_health: PartitionHealth | None, now: str
) -> None:
    """Put what its partitions lack into a Cluster's status.

    partition_health: None if no broker answers.

    Degraded means that replicas or pods are missing and will not come back by themselves soon. A
    fleet with offline partitions is not Ready.
    """
    troubles = status.get("troubles", [])
    true: bool | None = True
    if partition_health is not None and partition_health.reason is not None:
        reason: str = partition_health.reason
        text = str(partition_health)
    elif troubles:
        reason, text = PODS_CANNOT_RUN, "; ".join(troubles)
    elif partition_health is None:
        true, reason, text = None, "NobodyAnswers", "no broker answers what the partitions lack"
    else:
        true, reason, text = False, "NotDegraded", ""
    changed_condition = condition(live, DEGRADED, true=true, reason=reason, message=text, now=now)
    others = [known for known in status["conditions"] if known["type"] != DEGRADED]
    status["conditions"] = [*others, changed_condition]
    if partition_health is None:
        status.pop("partitions", None)
        return
    status["partitions"] = {
        "offline": partition_health.offline,
        "underMinIsr": partition_health.under_min_isr,
        "underReplicated": partition_health.under_replicated,
    }
    if partition_health.reason is None:
        return
    status["why"] = f"{status['why']}; {partition_health}"
    if partition_health.offline:
        status["conditions"] = [
            condition(
                live,
                READY,
                true=False,
                reason=partition_health.reason,
                message=status["why"],
                now=now,
            )
            if known["type"] == READY and known["status"] == "True"
            else known
            for known in status["conditions"]
        ]


def add_notice(live: Mapping[str, Any], status: Status, notice: str, now: str) -> None:
    """Put into a Cluster's status what blocks the deletion of topics; "" if nothing does."""
    kind = DELETION_BLOCKED
    changed_condition = condition(
        live,
        kind,
        true=bool(notice),
        reason=Reason.DELETE_BLOCKED if notice else "NotBlocked",
        message=notice,
        now=now,
    )
    others = [known for known in status["conditions"] if known["type"] != kind]
    status["conditions"] = [*others, changed_condition]
    if notice:
        status["why"] = f"{status['why']}; {notice}"
