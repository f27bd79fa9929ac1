"""An operator with its chart's rights on a real API server, with simulated pods and one broker.

All of its Clusters use that broker.
"""

from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from e2e.harness.kube.control_plane import ControlPlane, Kubelets, Right
from e2e.harness.kube.fleet import (
    CLUSTERS,
    OPERATOR_NAMESPACE,
    OPERATOR_RELEASE,
    REBALANCES,
    example,
)
from e2e.harness.kube.kubernetes import Kubernetes, Object, condition, wait_for
from e2e.harness.operator_program import Operator
from e2e.harness.processes import Broker

SOON_S = 60.0
# All kinds of objects that a Cluster owns.
OWNED = (
    "configmaps",
    "poddisruptionbudgets",
    "secrets",
    "serviceaccounts",
    "services",
    "statefulsets",
)


class Stage:
    """The operator, the API server and the broker of a test."""

    def __init__(
        self, plane: ControlPlane, kubelets: Kubelets, operator: Operator, broker: Broker
    ) -> None:
        self.plane, self.kubelets = plane, kubelets
        self.operator, self.broker = operator, broker
        self.kubernetes: Kubernetes = plane.kubernetes

    def topics(self) -> dict[str, int]:
        """Return topic -> number of partitions, as clients see them."""
        listed = AdminClient({"bootstrap.servers": self.broker.bootstrap}).list_topics(timeout=20)
        return {name: len(found.partitions) for name, found in listed.topics.items()}

    def wait_reason(self, kind: str, name: str, namespace: str, reason: str) -> Object:
        """Return the resource once Ready has this reason for the current generation."""

        def probe() -> Object | None:
            found = self.kubernetes.get(kind, name, namespace)
            ready = condition(found, "Ready") or {}
            generation = found["metadata"]["generation"]
            fits = ready.get("reason") == reason and ready["observedGeneration"] == generation
            return found if fits else None

        return wait_for(f"{name} to be {reason}", probe, SOON_S)

    def with_snapshots(self) -> Object:
        """As `small`, with snapshots of the metadata store."""
        snapshots = {"schedule": "17 * * * *", "claimName": "backups"}
        managed = {"replicas": 1, "storage": {"size": "1Gi"}, "snapshots": snapshots}
        return small(metadata={"managed": managed})

    def rebalance(self, namespace: str) -> tuple[Object, Object]:
        """Run the example Rebalance; return its status when it is proposed, and when it is done.

        It is approved in between, and must delete itself afterwards.
        """
        document, kubernetes = example("rebalance"), self.kubernetes
        name = document["metadata"]["name"]
        kubernetes.apply(document, namespace=namespace)
        proposed = self.wait_reason(REBALANCES, name, namespace, "WaitingForApproval")
        document["spec"] |= {"approved": True, "ttlSecondsAfterFinished": 5}
        kubernetes.apply(document, namespace=namespace)
        done = kubernetes.wait_condition(REBALANCES, name, namespace, within_s=SOON_S)
        is_there = partial(kubernetes.exists, REBALANCES, name, namespace)
        wait_for("it to go by itself", lambda: not is_there(), SOON_S)
        return proposed["status"], done["status"]


def small(**spec: Any) -> Object:
    """A Cluster with one etcd member and two brokers in two zones."""
    document = example("cluster")
    pools = [{"name": "main", "replicas": 2, "storage": {"size": "1Gi"}}]
    metadata = {"managed": {"replicas": 1, "storage": {"size": "1Gi"}}}
    document["spec"] |= {"zones": ["a", "b"], "pools": pools, "metadata": metadata} | spec
    return document


def bring_up(stage: Stage, namespace: str, document: Object) -> Object:
    stage.kubernetes.apply(document, namespace=namespace)
    name = document["metadata"]["name"]
    return stage.kubernetes.wait_condition(CLUSTERS, name, namespace, within_s=SOON_S)


def owned(kubernetes: Kubernetes, namespace: str) -> list[Object]:
    found = []
    for kind in OWNED:
        found += kubernetes.items(kind, namespace, "logfleet.dev/cluster")
    return found


def granted(kubernetes: Kubernetes) -> set[Right]:
    """Return the rights that the operator's chart grants."""
    rules = kubernetes.get("clusterrole", f"{OPERATOR_RELEASE}-{OPERATOR_NAMESPACE}")["rules"]
    rules += kubernetes.get("role", f"{OPERATOR_RELEASE}-lease", OPERATOR_NAMESPACE)["rules"]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked_inside(used: set[Right]) -> set[Right]:
    """Return the rights that the audit log does not show.

    They are create, used by an apply that creates an object, and clusters/finalizers, used for
    blockOwnerDeletion. The operator never creates claims.
    """
    makes = {(group, kind, "create") for group, kind, verb in used if verb == "patch"}
    makes -= {("", "persistentvolumeclaims", "create")}
    statuses = {right for right in makes if right[1].endswith("/status")}
    return makes - statuses | {("logfleet.dev", "clusters/finalizers", "update")}
