"""What to do next for a Cluster, and why, in one sentence. PURE.

`plan_cluster` compares the spec with what exists and returns the next actions. It is called again
after they are done, so a call plans only one step ahead, and a crash between any two calls to
Kubernetes does no harm: the next call starts from what exists. The stages stand in the order in
which objects may exist: the record before anything that depends on it, Services before the pods
whose addresses they are, a working etcd before the first broker.

A plan replaces at most one running pod, or one wave of brokers, and only while no other pod of its
kind is missing or being deleted and all updated ones are ready (`rollout`). Pods that cannot run
are replaced together.
"""

from collections.abc import Sequence
from dataclasses import replace

from logfleet.resources.cluster import ClusterResource, set_name
from logfleet.resources.plan import SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters import (
    manifests,
    members,
    metadata_store,
    refusals,
    resizing,
    rollout,
    shrinking,
    unwanted_objects,
)
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange, allocate, merge
from logfleet_operator.clusters.broker_ids import claims_of
from logfleet_operator.clusters.broker_ids import record as record_of
from logfleet_operator.clusters.observed import (
    ObservedCluster,
    configs_in_use,
    foreign,
    node_ports,
    rewritten,
)
from logfleet_operator.clusters.steps import (
    ClusterPlan,
    Stage,
    applies,
    making,
    refused,
    with_original_claims,
    with_unchanged_template,
    without_refused,
)
from logfleet_operator.names import Manifest
from logfleet_operator.settings import Settings
from logfleet_operator.upgrades.rules import broker_image


def plan_cluster(
    cluster: ClusterResource,
    observed: ObservedCluster,
    settings: Settings,
    *,
    renew: frozenset[str],
) -> ClusterPlan:
    """The next actions for the Cluster. Raises ObjectConflict.

    cluster: with the accepted spec. renew: names of Secrets whose certificate should be issued
    again (the caller knows the time).
    """
    if cluster.spec.paused:
        return ClusterPlan("paused: nothing is changed", stage=Stage.PAUSED)
    others = foreign(observed, cluster)
    if others:
        return ClusterPlan(f"waiting until objects of a former Cluster are gone: {others[0]}")
    going = metadata_store.deleting_volume(cluster, observed)
    if going:
        return ClusterPlan(f"waiting until PersistentVolumeClaim {going} is deleted")
    given = merge(claims_of(observed, cluster.metadata.name))
    if isinstance(given, SpecRefusal):
        return refused(given)
    ranges = ranges_of(cluster, observed, given)
    config = manifests.config(cluster, _total(ranges))
    config_name = str(config["metadata"]["name"])
    plan = (
        _record_and_services(cluster, observed, ranges, config)
        or without_refused(unwanted_objects.never_ran(cluster, observed, ranges), observed)
        or metadata_store.plan_metadata_store(cluster, observed, settings, renew, config_name)
        or _brokers(cluster, observed, settings, ranges)
        or without_refused(resizing.plan_resizing(cluster, observed, ranges), observed)
        or without_refused(
            unwanted_objects.unused_configs(cluster, observed, config_name), observed
        )
        or _shrink_and_roll(cluster, observed, ranges)
        or without_refused(unwanted_objects.unused_services(cluster, observed, ranges), observed)
        or ClusterPlan("all brokers are ready", stage=Stage.DONE)
    )
    why = plan.why
    if others := rewritten(observed):
        why += f"; an admission webhook or policy rewrites {', '.join(others[:5])}"
    unmet = tuple(resizing.unmet(cluster, observed, ranges))
    return replace(plan, why=why, ranges=tuple(ranges), unmet=unmet)


def refusal_of(
    cluster: ClusterResource, observed: ObservedCluster, before: ClusterResource | None
) -> SpecRefusal | None:
    """Why the spec cannot be carried out, found before anything starts; None if it can be.

    before: the Cluster with its last accepted spec. Contradictory broker ids are not the spec's
    fault. Raises ObjectConflict.
    """
    given = merge(claims_of(observed, cluster.metadata.name))
    if isinstance(given, SpecRefusal):
        return None
    ranges = ranges_of(cluster, observed, given)
    found = [
        *refusals.config_refusals(cluster),
        *refusals.storage_refusals(cluster, observed, ranges),
        *refusals.volumes_refusals(cluster, observed, ranges, before),
        *metadata_store.zones_refusals(cluster, observed),
    ]
    return refusals.as_one_refusal(found) if found else None


def ranges_of(
    cluster: ClusterResource, observed: ObservedCluster, given: Sequence[BrokerIdRange]
) -> list[BrokerIdRange]:
    """The ranges that the spec asks for. given: the merged ranges of all sources."""
    ran = shrinking.without_drained(cluster.metadata.name, observed, given)
    return allocate(cluster.spec, ran)


def leaving_brokers(cluster: ClusterResource, observed: ObservedCluster) -> frozenset[int]:
    """Ids of the brokers to be drained; empty also with contradictory ids or while paused.

    Raises ObjectConflict.
    """
    given = merge(claims_of(observed, cluster.metadata.name))
    if isinstance(given, SpecRefusal) or cluster.spec.paused:
        return frozenset()
    return shrinking.leaving_ids(ranges_of(cluster, observed, given))


def _shrink_and_roll(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> ClusterPlan | None:
    """Replicas move for long; brokers are replaced meanwhile as usual."""
    shrinking_plan = without_refused(shrinking.plan_shrinking(cluster, observed, ranges), observed)
    if shrinking_plan is not None and shrinking_plan.actions:
        return shrinking_plan
    return _roll(cluster, observed, ranges) or shrinking_plan


def _record_and_services(
    cluster: ClusterResource,
    observed: ObservedCluster,
    ranges: Sequence[BrokerIdRange],
    config: Manifest,
) -> ClusterPlan | None:
    """The record first, alone: no object may exist that it does not cover.

    Then what pods refer to.
    """
    state = metadata_store.etcd_state(cluster, observed)
    record = record_of(cluster, ranges, state, members.admitted(cluster, observed, state))
    actions = applies(cluster, observed, [record])
    if actions:
        return making(actions, "the record of broker ids")
    ports = node_ports(observed, cluster)
    services = manifests.services(cluster, ranges, ports)
    objects = [manifests.service_account(cluster), config, *services]
    return making(applies(cluster, observed, objects), "Services")


def _total(ranges: Sequence[BrokerIdRange]) -> int:
    return sum(given.replicas for given in ranges)


def _brokers(
    cluster: ClusterResource,
    observed: ObservedCluster,
    settings: Settings,
    ranges: Sequence[BrokerIdRange],
) -> ClusterPlan | None:
    known, ids = node_ports(observed, cluster), manifests.broker_pods(cluster, ranges)
    serving = {broker_id for broker_id, _ in ids}
    ports = {place: port for place, port in known.items() if place[1] in serving}
    for listener in manifests.outside_listeners(cluster):
        for broker_id, _ in ids:
            if (listener.name, broker_id) not in ports:
                return ClusterPlan(
                    f"waiting for a node port for broker {broker_id}, listener {listener.name}"
                )
    pools = {pool.name: pool for pool in cluster.spec.pools}
    image = broker_image(cluster.spec, settings)
    managed = cluster.spec.metadata.managed is not None
    secret = names.etcd_secret(cluster.metadata.name, "client")
    until = observed.ends.get(secret) if managed else None
    total = _total(ranges)
    # Part of the pods' template: another format would replace all brokers.
    credentials = f"{until:%Y-%m-%dT%H:%M:%SZ}" if until is not None else ""
    sets = [
        with_original_claims(
            observed,
            manifests.broker_set(
                cluster,
                pools[given.pool],
                given,
                image=image,
                brokers=total,
                credentials=credentials,
            ),
        )
        for given in ranges
        if given.replicas and given.pool in pools  # a removed pool stays until it is empty
    ]
    sets = [with_unchanged_template(observed, wanted) for wanted in sets]
    # Create the files before the pods that read them.
    kept = _files_in_use(cluster, observed)
    if actions := applies(cluster, observed, [manifests.ports(cluster, ports, kept)]):
        return making(actions, "the brokers' ports")
    if refused_maps := sorted(name for kind, name in observed.refused if kind == "ConfigMap"):
        return ClusterPlan(f"waiting for ConfigMap {refused_maps[0]}, which pods start with")
    ready = sum(pod.ready for pod in observed.of_component(names.BROKER))
    budget = manifests.brokers_budget(cluster, _min_available(cluster, observed, total, ready))
    return making(applies(cluster, observed, [budget, *sets]), "brokers")


def _files_in_use(cluster: ClusterResource, observed: ObservedCluster) -> dict[str, str]:
    """The files in the ports' ConfigMap that brokers, not yet replaced, still read.

    These are the ports of listeners that the spec no longer names, while their Services exist, and
    the configuration if an older operator kept it there.
    """
    name = names.config_map(cluster.metadata.name)
    in_use = name in configs_in_use(observed)
    kept = {}
    for file, content in ((observed.get("ConfigMap", name) or {}).get("data") or {}).items():
        listener, _, broker = file.rpartition(".")
        service = f"{cluster.metadata.name}-{listener}-{broker}"
        if in_use if file == manifests.PROPERTIES else observed.get("Service", service):
            kept[file] = content
    return kept


def _min_available(
    cluster: ClusterResource, observed: ObservedCluster, total: int, ready: int
) -> int:
    """One broker may be away; new brokers count only once they are ready.

    The value is not lowered when brokers fail: no further one may go then.
    """
    live = observed.get("PodDisruptionBudget", names.brokers_budget(cluster.metadata.name))
    before = (live or {"spec": {}})["spec"].get("minAvailable")
    if not isinstance(before, int):  # no budget, or a percentage that another program wrote
        return total - 1
    return min(total - 1, max(before, ready - 1))


def _roll(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> ClusterPlan | None:
    name = cluster.metadata.name
    needed = {
        ("PodDisruptionBudget", names.brokers_budget(name)),
        ("PodDisruptionBudget", names.etcd_name(name)),
        # Without these a pod does not come back, or nobody finds it.
        ("ServiceAccount", names.service_account(name)),
        ("Service", names.brokers_service(name)),
        ("Service", names.etcd_name(name)),
    }
    if missing := [" ".join(each) for each in needed & observed.refused]:
        return ClusterPlan(f"no pod is replaced without {min(missing)}")
    steps = []
    if cluster.spec.metadata.managed is not None:
        steps.append((names.ETCD, [names.etcd_name(name)]))
    sets = [set_name(name, given.pool, given.zone) for given in ranges if given.replicas]
    steps.append((names.BROKER, sets))
    later = None
    for component, stateful_sets in steps:
        waiting = rollout.plan_rollout(observed, component, stateful_sets)
        if waiting is None:
            continue
        stage = Stage.REPLACING if waiting.replaces else Stage.STARTING
        plan = ClusterPlan(waiting.why, waiting.actions, stage=stage)
        goes_on = waiting.needs_person or members.serves_degraded(cluster, observed)
        if component == names.BROKER or waiting.actions or not goes_on:
            return plan
        later = plan
    return later
