"""The managed etcd of a Cluster: whether its members may bootstrap, its certificates, its pods.

PURE.
"""

from collections.abc import Iterator

from logfleet.resources.cluster import ClusterResource, ManagedMetadata
from logfleet.resources.plan import Reason, SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters import etcd, members, pods, rollout, snapshots
from logfleet_operator.clusters.broker_ids import ordinal_of, recorded
from logfleet_operator.clusters.observed import (
    EMPTY_VOLUME,
    ObservedCluster,
    controlled_by_another,
    differs,
    is_bound,
    labelled_for,
    not_of_the_cluster,
)
from logfleet_operator.clusters.steps import (
    ClusterPlan,
    IssueCertificate,
    MakeAuthority,
    Stage,
    applies,
    making,
    refused,
    with_original_claims,
    without_refused,
)
from logfleet_operator.names import Manifest
from logfleet_operator.settings import Settings
from logfleet_operator.upgrades.rules import broker_image


def etcd_state(cluster: ClusterResource, observed: ObservedCluster) -> str:
    """Whether etcd's members may bootstrap: a state of `etcd.STATES`.

    They may only until all have been ready once, and never if data of an earlier etcd may be left.
    A Cluster that finds volumes of an earlier one is `resuming` until a member is ready. If all
    those volumes are empty and no broker has a volume, nothing ever ran: it bootstraps.
    """
    managed = cluster.spec.metadata.managed
    if managed is None:
        return etcd.ESTABLISHED
    name = cluster.metadata.name
    record = recorded(observed, name)
    members = observed.of_component(names.ETCD)
    ready = sum(pod.ready for pod in members)
    if record is None:
        left = any(is_bound(volume) for volume in _volumes(cluster, observed))
        return etcd.RESUMING if left else etcd.BOOTSTRAPPING
    state = record[1]
    if state == etcd.RESUMING:
        empty = sum(pod.stuck == EMPTY_VOLUME for pod in members)
        if empty == managed.replicas and not _brokers_have_volumes(cluster, observed):
            return etcd.BOOTSTRAPPING
        return etcd.ESTABLISHED if ready else etcd.RESUMING
    if state == etcd.ESTABLISHED or ready == managed.replicas:
        return etcd.ESTABLISHED
    return etcd.BOOTSTRAPPING


def _volumes(cluster: ClusterResource, observed: ObservedCluster) -> list[Manifest]:
    """The volume claims of etcd's members."""
    prefix = f"data-{names.etcd_name(cluster.metadata.name)}-"
    return [live for live in observed.volumes if live["metadata"]["name"].startswith(prefix)]


def _brokers_have_volumes(cluster: ClusterResource, observed: ObservedCluster) -> bool:
    return any(
        ordinal_of(volume, cluster.metadata.name) is not None and is_bound(volume)
        for volume in observed.volumes
    )


def deleting_volume(cluster: ClusterResource, observed: ObservedCluster) -> str:
    """An etcd volume claim that is being deleted before etcd was created; "" if there is none.

    A claim stays until no pod uses it (Kubernetes: Storage Object in Use Protection). It says
    nothing about the volume that a new member gets, so `etcd_state` is not decided meanwhile.
    """
    name = cluster.metadata.name
    begun = (
        ("ConfigMap", names.record_map(name)),
        ("StatefulSet", names.etcd_name(name)),
    )
    if cluster.spec.metadata.managed is None or any(observed.get(*each) for each in begun):
        return ""
    going = [live["metadata"] for live in _volumes(cluster, observed)]
    return min((str(each["name"]) for each in going if "deletionTimestamp" in each), default="")


def zones_refusals(cluster: ClusterResource, observed: ObservedCluster) -> Iterator[SpecRefusal]:
    """Refuse to remove a zone that may hold members of etcd: their volumes cannot follow."""
    managed = cluster.spec.metadata.managed
    if managed is None:
        return
    placed = _etcd_placement(cluster, managed, observed)
    gone = [zone for zone in placed.zones if zone not in cluster.spec.zones]
    if gone:
        yield SpecRefusal(
            Reason.NOT_SUPPORTED,
            f"spec.zones: volumes of etcd may be in zone {', '.join(gone)}, and this version does "
            "not move them; write it back",
        )


def _etcd_placement(
    cluster: ClusterResource, managed: ManagedMetadata, observed: ObservedCluster
) -> etcd.Placement:
    """Etcd's present placement, without zones that were removed and never had a member.

    A zone counts as such only once every member has a node with a zone: its volume is there, too.
    """
    live = observed.get("StatefulSet", names.etcd_name(cluster.metadata.name))
    placed = etcd.placement(cluster, managed, live, etcd_state(cluster, observed))
    members = observed.of_component(names.ETCD)
    found = {observed.zones.get(pod.node, "") for pod in members}
    if len(members) < managed.replicas or "" in found:
        return placed
    kept = tuple(zone for zone in placed.zones if zone in found or zone in cluster.spec.zones)
    return etcd.Placement(kept, placed.apart)


def zones_taken_away(cluster: ClusterResource, observed: ObservedCluster) -> frozenset[str]:
    """Zones that may hold members of etcd and that the spec no longer names."""
    live = observed.get("StatefulSet", names.etcd_name(cluster.metadata.name))
    if live is None:
        return frozenset()
    affinity = live["spec"]["template"]["spec"].get("affinity", {})
    return frozenset(pods.zones_in(affinity)) - frozenset(cluster.spec.zones)


def plan_metadata_store(
    cluster: ClusterResource,
    observed: ObservedCluster,
    settings: Settings,
    renew: frozenset[str],
    config: str,
) -> ClusterPlan | None:
    """The next step for etcd, None if there is none. config: the name of the brokers' ConfigMap."""
    managed = cluster.spec.metadata.managed
    if managed is None:
        return None
    plan = _certificates(cluster, observed, renew)
    if plan is not None:
        return plan
    wanted = _etcd_set(cluster, managed, observed, settings)
    objects = [etcd.service(cluster), etcd.budget(cluster, managed), wanted]
    if cron_job := snapshots.cron_job(cluster, broker_image(cluster.spec, settings), config):
        objects.append(cron_job)
    actions = (
        *applies(cluster, observed, objects),
        *snapshots.unwanted_cron_job(cluster, observed),
    )
    if plan := without_refused(making(actions, "etcd"), observed):
        return plan
    if etcd_state(cluster, observed) == etcd.ESTABLISHED:
        return members.heal(cluster, observed)
    ready = sum(pod.ready for pod in observed.of_component(names.ETCD))
    waiting = rollout.plan_rollout(observed, names.ETCD, [names.etcd_name(cluster.metadata.name)])
    if waiting is not None and waiting.actions:
        return ClusterPlan(waiting.why, waiting.actions, stage=Stage.REPLACING)
    return ClusterPlan(
        f"waiting for etcd: {ready} of {managed.replicas} members are ready"
        + rollout.troubles(observed.of_component(names.ETCD)),
        stage=Stage.STARTING,
    )


def _etcd_set(
    cluster: ClusterResource,
    managed: ManagedMetadata,
    observed: ObservedCluster,
    settings: Settings,
) -> Manifest:
    """The StatefulSet; it keeps the gate's image until its pods are replaced for another reason.

    That image is the brokers', and any version of it will do for the gate: an operator with another
    default image replaces no member for it.
    """
    live = observed.get("StatefulSet", names.etcd_name(cluster.metadata.name))
    placed = _etcd_placement(cluster, managed, observed)

    def with_gate(gate_image: str) -> Manifest:
        # The operator's default and not spec.image, so that a change of that does not restart etcd.
        made = etcd.stateful_set(
            cluster, managed, placed, image=settings.etcd_image, gate_image=gate_image
        )
        return with_original_claims(observed, made)

    if live is not None and (image := etcd.gate_image(live)):
        kept = with_gate(image)
        if not differs(kept["spec"]["template"], live["spec"]["template"]):
            return kept
    return with_gate(settings.broker_image)


def _certificates(
    cluster: ClusterResource, observed: ObservedCluster, renew: frozenset[str]
) -> ClusterPlan | None:
    name, namespace = cluster.metadata.name, cluster.metadata.namespace
    authority, server, client = (
        names.etcd_secret(name, role) for role in ("ca", "server", "client")
    )
    for secret in (authority, server, client):
        live = observed.get("Secret", secret)
        if live is not None and controlled_by_another(live, cluster.metadata.uid):
            return ClusterPlan(f"waiting until a former Cluster's Secret {secret} is gone")
    # Members read their authority only at their start, so running ones keep what they have.
    starting = etcd_state(cluster, observed) == etcd.BOOTSTRAPPING
    due = [
        secret
        for secret in (server, client)
        if observed.get("Secret", secret) is None
        or (secret in renew and ("Secret", secret) not in observed.refused)
        or (starting and _is_of_another(observed, secret, authority))
    ]
    if not due:
        return None
    made = observed.get("Secret", authority) is not None
    for secret in due if made else (server, client):
        live = observed.get("Secret", secret)
        if live is not None and not labelled_for(live, name):
            return refused(SpecRefusal(Reason.CONFLICT, not_of_the_cluster("Secret", secret)))
    if not made:
        if len(due) == 2 and not observed.get("StatefulSet", names.etcd_name(name)):
            return making([MakeAuthority(authority)], "the certificate authority of etcd")
        return refused(
            SpecRefusal(
                Reason.CONFLICT,
                f"Secret {authority} is gone and {due[0]} must be issued: restore it from a backup",
            )
        )
    hosts = {server: tuple(etcd.server_names(cluster)), client: ()}
    subjects = {server: f"{namespace}.{name} etcd", client: f"{namespace}.{name} brokers"}
    return making(
        [IssueCertificate(secret, authority, subjects[secret], hosts[secret]) for secret in due],
        "certificates of etcd",
    )


def _is_of_another(observed: ObservedCluster, secret: str, authority: str) -> bool:
    """Whether a certificate was signed by another authority than the present one."""
    issued, issuer = (observed.get("Secret", name) for name in (secret, authority))
    if issued is None or issuer is None:
        return False
    shown, there = (live.get("data") or {} for live in (issued, issuer))
    return shown.get("ca.crt") != there.get("tls.crt")
