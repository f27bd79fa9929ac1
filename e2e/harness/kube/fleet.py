"""A Logfleet Cluster on a Kubernetes rig, as its users see it: charts, resources, addresses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.harness.images import ROOT
from e2e.harness.kube.kubernetes import (
    RESTRICTED,
    ZONE_LABEL,
    Kubernetes,
    Object,
    condition,
    wait_for,
)
from e2e.harness.kube.kubernetes_rig import OPERATOR_ZONE

OPERATOR_NAMESPACE = "logfleet-system"
OPERATOR_RELEASE = "logfleet-operator"
CHARTS = ROOT / "charts"
EXAMPLES = ROOT / "crds" / "examples"
CLUSTERS = "clusters.logfleet.dev"
TOPICS = "topics.logfleet.dev"
REBALANCES = "rebalances.logfleet.dev"
PARTITIONS = 6
"""Of the topics that are written while a scenario runs."""
FLEET_WITHIN_S = 240.0
TOPIC_WITHIN_S = 120.0
BROKERS_WITHIN_S = 240.0


def install_operator(kubernetes: Kubernetes) -> None:
    """Install or upgrade the operator's chart with its CRDs; wait until its pod is Ready.

    The values are the defaults, except for the zone: only one has the operator's image.
    """
    values = {"nodeSelector": {ZONE_LABEL: OPERATOR_ZONE}}
    kubernetes.install(OPERATOR_RELEASE, CHARTS / "operator", OPERATOR_NAMESPACE, values)


def set_operator(kubernetes: Kubernetes, *, running: bool) -> None:
    """Stop the operator or start it again, and wait until that is done."""
    count = "1" if running else "0"
    target = ("scale", f"deployment/{OPERATOR_RELEASE}", f"--replicas={count}")
    kubernetes.kubectl(*target, namespace=OPERATOR_NAMESPACE)
    wait_for(
        f"{count} operators",
        lambda: len(operator_pods(kubernetes, ready=running)) == int(count),
        within_s=180,
    )


def operator_pods(kubernetes: Kubernetes, *, ready: bool) -> list[Object]:
    """Return the operator's pods. ready: only those that are Ready."""
    selector = f"app.kubernetes.io/instance={OPERATOR_RELEASE}"
    pods = kubernetes.pods(OPERATOR_NAMESPACE, selector)
    return [
        pod for pod in pods if not ready or (condition(pod, "Ready") or {}).get("status") == "True"
    ]


def example(name: str) -> Object:
    """Return a committed example by its file's name, such as `topic`."""
    found: Object = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return found


def topic(name: str, cluster: str, partitions: int = 1, **spec: Any) -> Object:
    return {
        "apiVersion": "logfleet.dev/v1beta1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": cluster}, "partitions": partitions, "replicas": 1} | spec,
    }


@dataclass(frozen=True, slots=True)
class Fleet:
    """The Cluster of that name in that namespace."""

    kubernetes: Kubernetes
    namespace: str
    name: str

    def resource(self) -> Object:
        return self.kubernetes.get(CLUSTERS, self.name, self.namespace)

    def wait_ready(self, within_s: float = FLEET_WITHIN_S) -> Object:
        return self.kubernetes.wait_condition(
            CLUSTERS, self.name, self.namespace, within_s=within_s
        )

    def wait_topic(self, name: str, within_s: float = TOPIC_WITHIN_S) -> Object:
        return self.kubernetes.wait_condition(TOPICS, name, self.namespace, within_s=within_s)

    def bootstrap(self, kind: str) -> str:
        """Return bootstrap.servers of the `internal` or `nodeport` listener, from the status."""
        listeners = self.resource()["status"]["listeners"]
        (found,) = (each["bootstrap"] for each in listeners if each["type"] == kind)
        return str(found)

    @property
    def inside(self) -> str:
        return self.bootstrap("internal")

    @property
    def outside(self) -> str:
        return self.bootstrap("nodeport")

    def broker_pods(self) -> list[Object]:
        """Return all current pods of brokers, ready or not."""
        selector = f"logfleet.dev/cluster={self.name},app.kubernetes.io/component=broker"
        return self.kubernetes.pods(self.namespace, selector)

    def brokers(self) -> list[Object]:
        """Return the brokers in the status: id, pool, zone, pod, node, ready."""
        found: list[Object] = self.resource()["status"]["brokers"]
        return found


def install_example_fleet(kubernetes: Kubernetes, namespace: str) -> Fleet:
    """Create a namespace of restricted security with the committed examples.

    Wait until all are Ready.
    """
    kubernetes.create_namespace(namespace, RESTRICTED)
    examples: list[Path] = sorted(EXAMPLES.glob("*.yaml"))
    kubernetes.apply(*examples, namespace=namespace)
    fleet = Fleet(kubernetes, namespace, example("cluster")["metadata"]["name"])
    fleet.wait_ready()
    fleet.wait_topic(example("topic")["metadata"]["name"])
    return fleet


def wait_brokers(fleet: Fleet) -> None:
    """Wait until the wanted number of brokers have pods, all of them Ready."""

    def are_ready() -> bool:
        pods = fleet.broker_pods()
        ready = [(condition(pod, "Ready") or {}).get("status") == "True" for pod in pods]
        return len(ready) == fleet.resource()["status"]["replicas"] and all(ready)

    wait_for("all brokers to be Ready", are_ready, BROKERS_WITHIN_S)
