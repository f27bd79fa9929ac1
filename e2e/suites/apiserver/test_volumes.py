"""Sizes of volumes that cannot be had, on a real API server: told, in the way of nothing else, and written back."""

import json
from typing import Any

import pytest

from e2e.harness.kube.fleet import CLUSTERS
from e2e.harness.kube.kubernetes import Object, wait_for
from e2e.harness.kube.stage import SOON_S, Stage, bring_up, small

ELASTIC: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "elastic"},
    "provisioner": "example.com/none",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowVolumeExpansion": True,
}


def of_size(size: str, **spec: Any) -> Object:
    """A small Cluster on a class whose volumes may grow, which nobody carries out."""
    storage = {"size": size, "class": "elastic"}
    return small(pools=[{"name": "main", "replicas": 2, "storage": storage}], **spec)


def claims(stage: Stage, namespace: str) -> list[Object]:
    return stage.kubernetes.items("pvc", namespace, "logfleet.dev/pool=main")


def asked(stage: Stage, namespace: str) -> set[str]:
    return {each["spec"]["resources"]["requests"]["storage"] for each in claims(stage, namespace)}


def status(stage: Stage, namespace: str) -> Object:
    found: Object = stage.kubernetes.get(CLUSTERS, "fleet", namespace)["status"]
    return found


def images(stage: Stage, namespace: str) -> set[str]:
    pods = stage.kubernetes.pods(namespace, "app.kubernetes.io/component=broker")
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


@pytest.fixture
def elastic(stage: Stage) -> None:
    stage.kubernetes.apply(ELASTIC)


def test_a_class_that_cannot_grow_stops_no_roll_and_the_way_back_is_open(stage, namespace):
    bring_up(stage, namespace, small())
    pools = [{"name": "main", "replicas": 2, "storage": {"size": "2Gi"}}]
    stage.kubernetes.apply(small(pools=pools, image="logfleet/broker:2"), namespace=namespace)
    found = stage.wait_reason(CLUSTERS, "fleet", namespace, "NotSupported")
    assert "write 1Gi, or add a pool" in found["status"]["why"]
    wait_for("the roll", lambda: images(stage, namespace) == {"logfleet/broker:2"}, 2 * SOON_S)
    stage.kubernetes.apply(small(image="logfleet/broker:2"), namespace=namespace)
    stage.kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)
    assert asked(stage, namespace) == {"1Gi"}


@pytest.mark.usefixtures("elastic")
def test_a_size_that_nobody_gives_is_told_and_can_be_taken_back(stage, namespace):
    bring_up(stage, namespace, of_size("1Gi"))
    assert status(stage, namespace)["pools"] == [
        {"name": "main", "size": "1Gi", "class": "elastic"}
    ]
    stage.kubernetes.apply(of_size("20Ti"), namespace=namespace)
    wait_for("claims to ask for more", lambda: asked(stage, namespace) == {"20Ti"}, SOON_S)

    def waits() -> bool:
        return (
            "data-fleet-main-a-0 has 1Gi of 20Ti (asked for at 2" in status(stage, namespace)["why"]
        )

    wait_for("it to be told", waits, SOON_S)
    said = stage.kubernetes.refusal(of_size("512Mi"), namespace)
    assert "volumes only grow" in " ".join(said.split())
    stage.kubernetes.apply(of_size("2Gi"), namespace=namespace)
    wait_for("claims to ask for less again", lambda: asked(stage, namespace) == {"2Gi"}, SOON_S)
    assert "waiting for volumes to grow" in status(stage, namespace)["why"]
    for claim in claims(stage, namespace):
        options = ("--subresource=status", "--type=merge", "-p")
        given = json.dumps({"status": {"capacity": {"storage": "2Gi"}}})
        name = claim["metadata"]["name"]
        stage.kubernetes.kubectl("patch", "pvc", name, *options, given, namespace=namespace)
    stage.kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)
