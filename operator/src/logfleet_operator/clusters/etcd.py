"""The etcd of a Cluster with `metadata.managed`, as Kubernetes objects. PURE.

Each rule prevents a way to lose a quorum or its data. Members start together and find each other
before they are ready. A member bootstraps a new cluster only while the record says `bootstrapping`,
which ends for ever once every member has been ready (a member that comes back with an empty volume
would otherwise vote with a lost log), or after the others added it as a new member (`members`).
Peers and clients present certificates of this Cluster's own authority, since many networks enforce
no policy. Members that have volumes keep the zones they started with, since a volume never leaves
its zone.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from logfleet.resources.cluster import ClusterResource, ManagedMetadata, Storage
from logfleet.resources.quantity import parse_quantity

from logfleet_operator import names
from logfleet_operator.clusters import pods
from logfleet_operator.names import Manifest

BOOTSTRAPPING: Final = "bootstrapping"
RESUMING: Final = "resuming"
"""Volumes of an earlier Cluster exist, and no member of this one was ready yet."""
ESTABLISHED: Final = "established"
STATES: Final = frozenset({BOOTSTRAPPING, RESUMING, ESTABLISHED})

# Keys of the record: etcd's `initial-cluster-state` for a member without data, and the uid of the
# pod that may start without data because the others added it as a new member ("": none).
INITIAL_STATE_KEY: Final = "etcd-initial-state"
ADMITTED_KEY: Final = "etcd-admitted"

DATA_DIRECTORY: Final = "/var/lib/etcd"
CERTIFICATES: Final = "/etc/etcd"
QUOTA_BYTES_MAX: Final = 8 << 30  # etcd's recommendation
GATE: Final = "gate"
# The exit code by which the gate refuses. Nothing else uses it (a signal's is 128 and more, a
# shell's own 1, 2, 126 or 127; sysexits.h: EX_NOINPUT).
EMPTY_VOLUME_EXIT: Final = 66
# Script of the init container that runs before a member starts; the etcd image has no shell.
_GATE: Final = f"""\
if [ -d {DATA_DIRECTORY}/data/member/wal ] || [ "$ETCD_STATE" = {BOOTSTRAPPING} ]; then exit 0; fi
if [ -n "$ETCD_ADMITTED" ] && [ "$ETCD_ADMITTED" = "$POD_UID" ]; then exit 0; fi
echo "this member's volume is empty and its cluster exists: it must not vote again under its old name." >&2
exit {EMPTY_VOLUME_EXIT}
"""


def service(cluster: ClusterResource) -> Manifest:
    """A headless Service; peers must find each other before any of them is ready."""
    name = cluster.metadata.name
    ports = [
        {"name": port_name, "port": port, "protocol": "TCP", "targetPort": port}
        for port_name, port in (
            ("client", names.ETCD_CLIENT_PORT),
            ("peer", names.ETCD_PEER_PORT),
            ("metrics", names.ETCD_METRICS_PORT),
        )
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": names.etcd_name(name), "labels": names.labels(name, names.ETCD)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.selector(name, names.ETCD),
            "ports": ports,
        },
    }


def server_names(cluster: ClusterResource) -> list[str]:
    """DNS names of all possible members, for the server certificate.

    etcd resolves them to check that a peer connects from an address that its certificate names.
    """
    name, namespace = names.etcd_name(cluster.metadata.name), cluster.metadata.namespace
    members = [
        f"{name}-{member}.{name}.{namespace}.svc" for member in range(names.ETCD_MEMBERS_MAX)
    ]
    return [*members, f"{name}.{namespace}.svc", "localhost"]


def budget(cluster: ClusterResource, managed: ManagedMetadata) -> Manifest:
    """Keeps a quorum through evictions; a single member protects nothing and blocks nothing."""
    name = cluster.metadata.name
    return pods.budget(
        names.etcd_name(name),
        names.labels(name, names.ETCD),
        names.selector(name, names.ETCD),
        managed.replicas // 2 + 1 if managed.replicas > 1 else 0,
    )


def quota_bytes(storage: Storage) -> int:
    """Quota of the database: four fifths of the volume; the rest is for the log and snapshots."""
    size = parse_quantity(storage.size)
    assert size is not None
    return min(QUOTA_BYTES_MAX, int(size * Fraction(4, 5)))


def peer_url(cluster: ClusterResource, pod: str) -> str:
    """The URL at which other members reach the one in this pod."""
    name, namespace = names.etcd_name(cluster.metadata.name), cluster.metadata.namespace
    return f"https://{pod}.{name}.{namespace}.svc:{names.ETCD_PEER_PORT}"


def arguments(cluster: ClusterResource, managed: ManagedMetadata) -> list[str]:
    name, namespace = names.etcd_name(cluster.metadata.name), cluster.metadata.namespace
    host = f"$(POD_NAME).{name}.{namespace}.svc"
    members = ",".join(
        f"{name}-{member}={peer_url(cluster, f'{name}-{member}')}"
        for member in range(managed.replicas)
    )
    certificates = [
        f"--{prefix}{option}={CERTIFICATES}/{file}"
        for prefix in ("", "peer-")
        for option, file in (
            ("cert-file", "tls.crt"),
            ("key-file", "tls.key"),
            ("trusted-ca-file", "ca.crt"),
        )
    ]
    return [
        "--name=$(POD_NAME)",
        f"--data-dir={DATA_DIRECTORY}/data",
        f"--listen-client-urls=https://0.0.0.0:{names.ETCD_CLIENT_PORT}",
        f"--advertise-client-urls=https://{host}:{names.ETCD_CLIENT_PORT}",
        f"--listen-peer-urls=https://0.0.0.0:{names.ETCD_PEER_PORT}",
        f"--initial-advertise-peer-urls=https://{host}:{names.ETCD_PEER_PORT}",
        f"--listen-metrics-urls=http://0.0.0.0:{names.ETCD_METRICS_PORT}",
        f"--initial-cluster={members}",
        f"--initial-cluster-token={cluster.metadata.uid}",
        # Read only with an empty volume: the gate lets it pass while bootstrapping, or for a new
        # member.
        "--initial-cluster-state=$(INITIAL_STATE)",
        "--client-cert-auth=true",
        "--peer-client-cert-auth=true",
        *certificates,
        f"--quota-backend-bytes={quota_bytes(managed.storage)}",
        "--logger=zap",
    ]


@dataclass(frozen=True, slots=True)
class Placement:
    """zones: where members may run, empty: anywhere. apart: no two members in the same zone."""

    zones: tuple[str, ...]
    apart: bool


def placement(
    cluster: ClusterResource, managed: ManagedMetadata, live: Manifest | None, state: str
) -> Placement:
    """Where etcd's members may run: by the spec until they have data, then as at their start.

    A later change of the zones cannot be followed, because the volumes stay where they are: a
    member must be allowed to run in the zone of its volume, and beside another member whose volume
    is in the same zone. live: the current StatefulSet.
    """
    zones = tuple(cluster.spec.zones)
    if state == BOOTSTRAPPING:
        return Placement(zones, apart=1 < managed.replicas <= len(zones))
    if live is None:
        # Created again: the zones of the volumes are unknown here, but the volumes keep the members
        # there.
        return Placement(zones, apart=False)
    affinity = live["spec"]["template"]["spec"].get("affinity", {})
    return Placement(pods.zones_in(affinity), pods.is_apart(pods.ZONE_KEY, affinity))


def stateful_set(
    cluster: ClusterResource,
    managed: ManagedMetadata,
    placed: Placement,
    *,
    image: str,
    gate_image: str,
) -> Manifest:
    """gate_image: any image with a shell; the brokers' image is on the nodes anyway."""
    name = cluster.metadata.name
    labels, match = names.labels(name, names.ETCD), names.selector(name, names.ETCD)
    affinity = pods.in_zones(placed.zones)
    if placed.apart:
        affinity |= pods.apart(pods.ZONE_KEY, match)
    pod = {
        "serviceAccountName": names.service_account(name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pods.POD_SECURITY,
        "affinity": affinity,
        "topologySpreadConstraints": [pods.spread_over(pods.HOST_KEY, match)],
        "initContainers": [_gate(cluster, gate_image)],
        "containers": [_member(cluster, managed, image)],
        "volumes": [
            {
                "name": "certificates",
                "secret": {"secretName": names.etcd_secret(name, "server"), "defaultMode": 0o440},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": names.etcd_name(name), "labels": labels},
        "spec": {
            "serviceName": names.etcd_name(name),
            "replicas": managed.replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": match},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            "volumeClaimTemplates": [pods.claim(managed.storage, labels)],
        },
    }


def gate_image(live: Manifest) -> str:
    """The image of the gate in a live StatefulSet; "" if it has no gate."""
    containers = live["spec"]["template"]["spec"].get("initContainers", ())
    return next((str(each["image"]) for each in containers if each["name"] == GATE), "")


def _gate(cluster: ClusterResource, image: str) -> Manifest:
    record = names.record_map(cluster.metadata.name)
    return {
        "name": GATE,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-ec", _GATE],
        "env": [
            _of_record("ETCD_STATE", record, "etcd"),
            _of_record("ETCD_ADMITTED", record, ADMITTED_KEY),
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        "securityContext": pods.CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": DATA_DIRECTORY, "readOnly": True}],
    }


def _of_record(variable: str, record: str, key: str) -> Manifest:
    return {"name": variable, "valueFrom": {"configMapKeyRef": {"name": record, "key": key}}}


def _member(cluster: ClusterResource, managed: ManagedMetadata, image: str) -> Manifest:
    ports = [
        {"name": "client", "containerPort": names.ETCD_CLIENT_PORT},
        {"name": "peer", "containerPort": names.ETCD_PEER_PORT},
        {"name": "metrics", "containerPort": names.ETCD_METRICS_PORT},
    ]
    return {
        "name": "etcd",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["etcd"],
        "args": arguments(cluster, managed),
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            _of_record("INITIAL_STATE", names.record_map(cluster.metadata.name), INITIAL_STATE_KEY),
        ],
        "ports": ports,
        "startupProbe": {**_probe("/livez", 2), "failureThreshold": 150},
        "livenessProbe": {**_probe("/livez", 10), "failureThreshold": 8},
        "readinessProbe": {**_probe("/readyz", 2), "failureThreshold": 3},
        "securityContext": pods.CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
        "volumeMounts": [
            {"name": "data", "mountPath": DATA_DIRECTORY},
            {"name": "certificates", "mountPath": CERTIFICATES, "readOnly": True},
        ],
    }


def _probe(path: str, period_s: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
    }
