"""Two releases of the operator, of two versions, under their charts' rights on one real API server: no Cluster goes to and fro."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from e2e.harness.kube.control_plane import ControlPlane, Kubelets
from e2e.harness.kube.fleet import CHARTS, CLUSTERS, OPERATOR_NAMESPACE, OPERATOR_RELEASE
from e2e.harness.kube.kubernetes import RESTRICTED, Kubernetes, Object, wait_for
from e2e.harness.kube.stage import SOON_S, small
from e2e.harness.operator_program import Operator
from e2e.harness.processes import Broker

SECOND_NAMESPACE = "second-system"
LOOKS = 5
RECONCILES = re.compile(
    r'^logfleet_operator_reconciles_total\{[^}]*"cluster"[^}]*\} (\d+)', re.MULTILINE
)


@pytest.fixture
def releases(plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """Both run; nothing is there yet to look after."""
    install = ("upgrade", "--install", OPERATOR_RELEASE, str(CHARTS / "operator"))
    first = ("-n", OPERATOR_NAMESPACE, "--create-namespace", "--take-ownership")
    second = ("-n", SECOND_NAMESPACE, "--create-namespace", "--set", "crds.enabled=false")
    programs: list[Operator] = []
    broker, kubelets = Broker(tmp_path / "broker"), Kubelets(plane)
    for image, options in (("logfleet/broker:1", first), ("logfleet/broker:2", second)):
        plane.kubernetes.helm(*install, *options)
        namespace = options[1]
        token = plane.kubeconfig_of(OPERATOR_RELEASE, namespace)
        programs.append(
            Operator(
                tmp_path / namespace,
                token,
                broker,
                lease_namespace=namespace,
                broker_image=image,
            )
        )
    try:
        broker.start()
        kubelets.start()
        for program in programs:
            program.start()
        yield programs[0], programs[1]
    finally:
        for program in programs:
            program.close()
        kubelets.close()
        broker.close()
        plane.kubernetes.helm("uninstall", OPERATOR_RELEASE, "-n", SECOND_NAMESPACE)


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Iterator[str]:
    kubernetes.create_namespace("two-releases", RESTRICTED)
    yield "two-releases"
    kubernetes.delete("namespace", "two-releases")


def looks(operator: Operator) -> int:
    """How often it looked at a Cluster."""
    return sum(int(found) for found in RECONCILES.findall(operator.fetch("/metrics")))


def looked_since(operator: Operator, count: int) -> bool:
    return looks(operator) > count


def state(kubernetes: Kubernetes, namespace: str) -> dict[str, object]:
    """What changes if two write in turn: generations of the sets, uids of the pods, the status."""
    found: dict[str, object] = {
        live["metadata"]["name"]: live["metadata"]["generation"]
        for live in kubernetes.items("statefulsets", namespace)
    }
    found |= {
        live["metadata"]["name"]: live["metadata"]["uid"] for live in kubernetes.pods(namespace)
    }
    return found | {"status": kubernetes.get(CLUSTERS, "fleet", namespace)["status"]}


def holder(kubernetes: Kubernetes, namespace: str) -> str:
    live: Object = kubernetes.get(CLUSTERS, "fleet", namespace)
    return str(live.get("status", {}).get("operator", ""))


@pytest.mark.full
def test_one_of_them_looks_after_a_cluster_and_the_other_says_so_and_follows(
    releases: tuple[Operator, Operator], kubernetes: Kubernetes, namespace: str
) -> None:
    kubernetes.apply(small(), namespace=namespace)
    kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)
    places = [f"{each}/{OPERATOR_RELEASE}" for each in (OPERATOR_NAMESPACE, SECOND_NAMESPACE)]
    had = places.index(holder(kubernetes, namespace))
    owner, other = releases[had], releases[1 - had]
    left = f"{namespace}/fleet by {places[had]}"
    other.wait_until(lambda: left in other.fetch("/readyz"))
    assert other.fetch("/readyz").startswith("ready; other operators look after ")
    assert namespace not in owner.fetch("/readyz")
    events = kubernetes.kubectl("describe", CLUSTERS, "fleet", namespace=namespace)
    assert f"the operator of Lease {places[had]} looks after this Cluster" in events

    before = state(kubernetes, namespace)
    for number in range(LOOKS):
        done = [looks(each) for each in releases]
        note = ("annotate", CLUSTERS, "fleet", f"example.com/look={number}", "--overwrite")
        kubernetes.kubectl(*note, namespace=namespace)
        for each, count in zip(releases, done, strict=True):
            wait_for("a look", partial(looked_since, each, count), SOON_S)
    assert state(kubernetes, namespace) == before

    # The first is taken away, with its Lease: nobody waits for it, and no pod is replaced.
    owner.kill()
    kubernetes.delete("lease", OPERATOR_RELEASE, places[had].partition("/")[0])
    wait_for("it to follow", lambda: holder(kubernetes, namespace) == places[1 - had], SOON_S)
    kubernetes.delete("service", "fleet-bootstrap", namespace)
    wait_for(
        "it to work", lambda: kubernetes.exists("service", "fleet-bootstrap", namespace), SOON_S
    )
    pods = {
        live["metadata"]["name"]: live["metadata"]["uid"] for live in kubernetes.pods(namespace)
    }
    assert pods.items() <= before.items()
    assert namespace not in other.fetch("/readyz")
