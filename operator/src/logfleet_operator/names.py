"""Names and labels of what a Cluster owns. PURE.

Every object carries the cluster label, so that one label selector lists them all, and an owner
reference, so that Kubernetes removes them with their Cluster. Volumes outlive it: they carry the
pool, the zone and the base of the broker ids, which is how a later Cluster of the same name finds
its data and its ids again.
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
# Of what a person wrote, all that pods are made of: while it is the same, no pod is replaced.
ASKED_ANNOTATION: Final = f"{GROUP}/asked"
# On pods: the digest of their template, as an operator made it.
MADE_ANNOTATION: Final = f"{GROUP}/made"
# On a Cluster and, copied, on its pods: another value has these replaced, as this operator makes them.
RENEW_ANNOTATION: Final = f"{GROUP}/renew"
APPLIED_ANNOTATION: Final = f"{GROUP}/applied"
# On a volume claim: how far the broker is that is to leave it, a word of clusters.shrinking.State.
DRAIN_ANNOTATION: Final = f"{GROUP}/drain"
# When a Secret's certificate ends, for people: the operator reads the certificate.
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
    """Of the nodes' ports; operators of before kept the brokers' configuration there as well."""
    return f"{cluster}-config"


def config_revision(cluster: str, digest: str) -> str:
    """Of the configuration that brokers start with, one ConfigMap for each text of it."""
    return f"{cluster}-config-{digest}"


def record_map(cluster: str) -> str:
    return f"{cluster}-record"


def service_account(cluster: str) -> str:
    return f"{cluster}-brokers"


def brokers_budget(cluster: str) -> str:
    return f"{cluster}-brokers"


def etcd_name(cluster: str) -> str:
    """Of the StatefulSet, its Service and its budget."""
    return f"{cluster}-etcd"


def snapshots(cluster: str) -> str:
    """Of the CronJob."""
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
    """The reference that makes Kubernetes remove an object with its Cluster."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
