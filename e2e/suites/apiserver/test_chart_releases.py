"""Charts as releases on a real API server: installed, upgraded with their CRDs, taken away without taking data along."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.harness.kube.fleet import CHARTS, CLUSTERS, TOPICS, example
from e2e.harness.kube.kubernetes import Kubernetes, condition

OPERATOR_AT = "releases-system"
FLEET_AT = "releases"
FULL = {
    "cluster": example("cluster")["spec"],
    "topics": [{"name": "flights", "partitions": 6, "config": {"retention.ms": 1}}],
}


def install(kubernetes: Kubernetes, release: str, chart: Path, namespace: str, *more: str) -> str:
    command = ("upgrade", "--install", release, str(chart), "-n", namespace, "--create-namespace")
    return kubernetes.helm(*command, *more)


@pytest.fixture(scope="module", autouse=True)
def releases(kubernetes: Kubernetes) -> Iterator[None]:
    yield
    for namespace in (FLEET_AT, OPERATOR_AT):
        for release in kubernetes.helm("list", "-q", "-n", namespace).split():
            kubernetes.helm("uninstall", release, "-n", namespace)
        kubernetes.delete("namespace", namespace, wait=False)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's chart as it might have been: its CRD knew no `paused`."""
    chart = tmp_path_factory.mktemp("older") / "operator"
    shutil.copytree(CHARTS / "operator", chart)
    path = chart / "files/crds/clusters.yaml"
    crd = yaml.safe_load(path.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["paused"]
    path.write_text(yaml.safe_dump(crd))
    return chart


def knows_paused(kubernetes: Kubernetes) -> bool:
    (version,) = kubernetes.get("crd", CLUSTERS)["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return "paused" in fields


def test_the_api_server_takes_both_charts_and_an_upgrade_brings_the_crds(kubernetes, older):
    notes = install(kubernetes, "logfleet-operator", older, OPERATOR_AT, "--take-ownership")
    assert "looks after all namespaces" in notes
    assert not knows_paused(kubernetes)
    install(kubernetes, "logfleet-operator", CHARTS / "operator", OPERATOR_AT)
    assert knows_paused(kubernetes)
    kubernetes.wait_condition("crd", CLUSTERS, is_now="Established", within_s=30)
    command = ("upgrade", "--install", "fleet", str(CHARTS / "cluster"), "-n", FLEET_AT)
    notes = kubernetes.helm(*command, "--create-namespace", "-f", "-", values=FULL)
    assert f"bootstrap.servers=fleet-bootstrap.{FLEET_AT}.svc:9092" in notes
    assert kubernetes.get(CLUSTERS, "fleet", FLEET_AT)["spec"]["zones"] == ["a", "b", "c"]
    assert kubernetes.get(TOPICS, "flights", FLEET_AT)["spec"]["partitions"] == 6


def test_with_named_namespaces_the_api_server_takes_the_roles(kubernetes):
    listed = f"watchNamespaces={{{FLEET_AT}}}"
    install(
        kubernetes, "logfleet-operator", CHARTS / "operator", OPERATOR_AT, "--set-string", listed
    )
    account = f"system:serviceaccount:{OPERATOR_AT}:logfleet-operator"
    may = ("auth", "can-i", "patch", "statefulsets", "--as", account)
    assert kubernetes.kubectl(*may, namespace=FLEET_AT).strip() == "yes"
    said = kubernetes.kubectl("auth", "can-i", "--list", "--as", account, namespace="default")
    assert "statefulsets" not in said


def test_a_change_that_the_crd_forbids_fails_the_upgrade_with_its_sentence(kubernetes):
    wrong = {**FULL, "topics": [{"name": "flights", "partitions": 3}]}
    command = ("upgrade", "fleet", str(CHARTS / "cluster"), "-n", FLEET_AT, "-f", "-")
    with pytest.raises(Exception, match="partitions only grow"):
        kubernetes.helm(*command, values=wrong)
    assert kubernetes.get(TOPICS, "flights", FLEET_AT)["spec"]["partitions"] == 6


def test_without_the_operators_release_crds_and_clusters_stay(kubernetes):
    uid = kubernetes.get(CLUSTERS, "fleet", FLEET_AT)["metadata"]["uid"]
    kubernetes.helm("uninstall", "logfleet-operator", "-n", OPERATOR_AT)
    assert not kubernetes.exists("deployment", "logfleet-operator", OPERATOR_AT)
    for crd in (CLUSTERS, TOPICS):
        assert (condition(kubernetes.get("crd", crd), "Established") or {})["status"] == "True"
    assert kubernetes.get(CLUSTERS, "fleet", FLEET_AT)["metadata"]["uid"] == uid
    install(kubernetes, "logfleet-operator", CHARTS / "operator", OPERATOR_AT)
