"""Names and labels of the objects that a Cluster owns. PURE.

Every object carries the cluster label, so that one label selector lists them all, and an owner
reference, so that Kubernetes deletes them with their Cluster. Volumes outlive it: they carry the
pool, the zone and the first broker id, by which a later Cluster of the same name finds its data and
its ids.
"""

from typing import Any, Final

from logfleet.resources.document import API_VERSION, GROUP

Manifest = dict[str, Any]

FIELD_MANAGER: Final = "logfleet-operator"
CLUSTER_LABEL: Final = f"{GROUP}/cluster"
POOL_LABEL: Final = f"{GROUP}/pool"
ZONE_LABEL: Final = f"{GROUP}/zone"
BASE_LABEL: Final = f"{GROUP}/broker-base"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
REVISION_LABEL: Final = "controller-revision-hash"

CREDENTIALS_ANNOTATION: Final = f"{GROUP}/etcd-credentials"
CONFIG_ANNOTATION: Final = f"{GROUP}/config"
# Digest of what a person wrote about the pods: while it is the same, no pod is replaced.
ASKED_ANNOTATION: Final = f"{GROUP}/asked"
# On pods: the digest of their template, as an operator built it.
MADE_ANNOTATION: Final = f"{GROUP}/made"
# On a Cluster and, copied, on its pods: pods with another value are replaced.
RENEW_ANNOTATION: Final = f"{GROUP}/renew"
APPLIED_ANNOTATION: Final = f"{GROUP}/applied"
# On the volume claim of a broker that is to be removed: its clusters.shrinking.State.
DRAIN_ANNOTATION: Final = f"{GROUP}/drain"
# When a Secret's certificate expires; for people, the operator reads the certificate itself.
EXPIRY_ANNOTATION: Final = f"{GROUP}/not-after"
CONFIRM_ANNOTATION: Final = f"{GROUP}/confirm-topic-deletions"

BROKER: Final = "broker"
ETCD: Final = "etcd"
SNAPSHOTS: Final = "snapshots"
RECORD: Final = "record"

ETCD_CLIENT_PORT: Final = 2379
ETCD_PEER_PORT: Final = 2380
ETCD_METRICS_PORT: Final = 2381
ETCD_MEMBERS_MAX: Final = 3


def brokers_service(cluster: str) -> str:
    return f"{cluster}-brokers"


def bootstrap_service(cluster: str) -> str:
    return f"{cluster}-bootstrap"


def listener_service(cluster: str, listener: str, broker_id: int) -> str:
    return f"{cluster}-{listener}-{broker_id}"


def config_map(cluster: str) -> str:
    """The ConfigMap of node ports; older operators kept the brokers' configuration there too."""
    return f"{cluster}-config"


def config_revision(cluster: str, digest: str) -> str:
    """The ConfigMap with the brokers' start configuration; one for each text of it."""
    return f"{cluster}-config-{digest}"


def record_map(cluster: str) -> str:
    return f"{cluster}-record"


def service_account(cluster: str) -> str:
    return f"{cluster}-brokers"


def brokers_budget(cluster: str) -> str:
    return f"{cluster}-brokers"


def etcd_name(cluster: str) -> str:
    """The etcd StatefulSet, its Service and its disruption budget."""
    return f"{cluster}-etcd"


def snapshots(cluster: str) -> str:
    """The CronJob that takes etcd snapshots."""
    return f"{cluster}-snapshots"


def etcd_secret(cluster: str, role: str) -> str:
    """role: ca, server or client."""
    return f"{cluster}-etcd-{role}"


def labels(cluster: str, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "logfleet",
        INSTANCE_LABEL: cluster,
        COMPONENT_LABEL: component,
        "app.kubernetes.io/part-of": "logfleet",
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        CLUSTER_LABEL: cluster,
    }


def selector(cluster: str, component: str) -> dict[str, str]:
    return {CLUSTER_LABEL: cluster, COMPONENT_LABEL: component}


def owner(name: str, uid: str) -> Manifest:
    """The owner reference that makes Kubernetes delete an object with its Cluster."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
