"""What goes on, on a real API server, while something of a Cluster is refused, by a CRD that is newer, by Kubernetes, by the operator, or waits."""

import copy
from collections.abc import Iterator

import pytest
import yaml

from e2e.harness.kube.fleet import CHARTS, CLUSTERS, TOPICS, topic
from e2e.harness.kube.kubernetes import Kubernetes, wait_for
from e2e.harness.kube.stage import SOON_S, Stage, bring_up, small


def why(kubernetes: Kubernetes, namespace: str) -> str:
    return str(kubernetes.get(CLUSTERS, "fleet", namespace)["status"]["why"])


def images(kubernetes: Kubernetes, namespace: str) -> set[str]:
    pods = kubernetes.pods(namespace, "app.kubernetes.io/component=broker")
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


def comes_back(kubernetes: Kubernetes, namespace: str, kind: str, name: str) -> None:
    uid = kubernetes.get(kind, name, namespace)["metadata"]["uid"]
    kubernetes.delete(kind, name, namespace, wait=False)

    def is_new() -> bool:
        found = kubernetes.items(kind, namespace)
        return any(
            live["metadata"]["name"] == name and live["metadata"]["uid"] != uid for live in found
        )

    wait_for(f"{name} to come back", is_new, SOON_S)


@pytest.fixture
def newer_crd(stage: Stage) -> Iterator[None]:
    """Of a version that comes later: with a field that has a default."""
    before = yaml.safe_load((CHARTS.parent / "crds/clusters.yaml").read_text())
    newer = copy.deepcopy(before)
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = schema["properties"]["spec"]["properties"]
    fields["networkPolicy"] = {"type": "boolean", "default": True}
    stage.kubernetes.apply(newer)
    yield
    stage.kubernetes.apply(before)


def test_a_newer_crd_keeps_nobody_from_being_looked_after(
    stage: Stage, namespace: str, newer_crd: None
) -> None:
    del newer_crd
    kubernetes = stage.kubernetes
    kubernetes.apply(small(), namespace=namespace)

    def is_defaulted() -> bool:
        return bool(kubernetes.get(CLUSTERS, "fleet", namespace)["spec"].get("networkPolicy"))

    wait_for("the newer schema to count", is_defaulted, SOON_S)
    status = kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)["status"]
    assert [each.partition(":")[0] for each in status["warnings"]] == ["spec.networkPolicy"]
    kubernetes.apply(topic("newer", "fleet"), namespace=namespace)
    kubernetes.wait_condition(TOPICS, "newer", namespace, within_s=SOON_S)
    comes_back(kubernetes, namespace, "statefulset", "fleet-main-b")


def test_a_spec_that_is_refused_leaves_the_one_before_looked_after(
    stage: Stage, namespace: str
) -> None:
    kubernetes = stage.kubernetes
    bring_up(stage, namespace, small())
    wrong = small(image="logfleet/broker:2", config={"log.retention.ms": "abc"})
    kubernetes.apply(wrong, namespace=namespace)
    stage.wait_reason(CLUSTERS, "fleet", namespace, "Invalid")
    stage.operator.kill()
    stage.operator.start()
    comes_back(kubernetes, namespace, "statefulset", "fleet-main-b")
    comes_back(kubernetes, namespace, "pdb", "fleet-brokers")
    assert images(kubernetes, namespace) == {"logfleet/broker:1"}
    bring_up(stage, namespace, small(image="logfleet/broker:2"))
    assert images(kubernetes, namespace) == {"logfleet/broker:2"}


def test_a_node_port_that_somebody_took_keeps_no_image_from_being_rolled(
    stage: Stage, namespace: str
) -> None:
    kubernetes = stage.kubernetes
    bring_up(stage, namespace, small())
    stage.operator.kill()
    service = kubernetes.get("service", "fleet-external-0", namespace)
    port = service["spec"]["ports"][0]
    kubernetes.delete("service", "fleet-external-0", namespace)
    taken = {"name": "theirs", "port": port["port"], "nodePort": port["nodePort"]}
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "theirs"},
        "spec": {"type": "NodePort", "selector": {"app": "theirs"}, "ports": [taken]},
    }
    kubernetes.apply(theirs, namespace=namespace)
    stage.operator.start()
    kubernetes.apply(small(image="logfleet/broker:2"), namespace=namespace)
    wait_for(
        "all brokers to be replaced",
        lambda: images(kubernetes, namespace) == {"logfleet/broker:2"},
        2 * SOON_S,
    )
    wait_for(
        "the reason",
        lambda: "Kubernetes refuses Service fleet-external-0" in why(kubernetes, namespace),
        SOON_S,
    )
    assert "provided port is already allocated" in why(kubernetes, namespace)
    kubernetes.delete("service", "theirs", namespace)
    bring_up(stage, namespace, small(image="logfleet/broker:2"))


def test_a_schedule_that_kubernetes_refuses_stops_the_snapshots_only(
    stage: Stage, namespace: str
) -> None:
    kubernetes = stage.kubernetes
    document = stage.with_snapshots()
    document["spec"]["metadata"]["managed"]["snapshots"]["schedule"] = "61 * * * *"
    kubernetes.apply(document, namespace=namespace)

    def has_brokers() -> bool:
        status = kubernetes.get(CLUSTERS, "fleet", namespace).get("status", {})
        return bool(status.get("readyReplicas") == 2)

    wait_for("the brokers", has_brokers, SOON_S)
    assert "Kubernetes refuses CronJob fleet-snapshots" in why(kubernetes, namespace)
    bring_up(stage, namespace, stage.with_snapshots())


def configs(kubernetes: Kubernetes, namespace: str) -> dict[str, str]:
    """Broker -> the ConfigMap that it starts with."""
    return {
        pod["metadata"]["name"]: volume["configMap"]["name"]
        for pod in kubernetes.pods(namespace, "app.kubernetes.io/component=broker")
        for volume in pod["spec"]["volumes"]
        if volume["name"] == "config"
    }


def test_each_broker_has_the_file_of_its_own_pod_while_a_roll_waits(
    stage: Stage, namespace: str
) -> None:
    kubernetes = stage.kubernetes
    bring_up(stage, namespace, small())
    (before,) = set(configs(kubernetes, namespace).values())
    text = kubernetes.get("configmap", before, namespace)["data"]
    stage.kubelets.held = {"fleet-main-a-0"}
    try:
        kubernetes.apply(small(config={"num.partitions": 4}), namespace=namespace)
        wait_for(
            "the first to be replaced",
            lambda: len(set(configs(kubernetes, namespace).values())) == 2,
            SOON_S,
        )
        assert configs(kubernetes, namespace)["fleet-main-b-0"] == before
        assert kubernetes.get("configmap", before, namespace)["data"] == text
    finally:
        stage.kubelets.held = set()
    bring_up(stage, namespace, small(config={"num.partitions": 4}))
    (after,) = set(configs(kubernetes, namespace).values())
    assert "num.partitions=4" in str(kubernetes.get("configmap", after, namespace)["data"])
    wait_for(
        "the former file to go",
        lambda: not kubernetes.exists("configmap", before, namespace),
        SOON_S,
    )
