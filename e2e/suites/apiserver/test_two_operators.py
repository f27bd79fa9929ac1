"""Two operators under their chart's rights on a real API server: one works, the other takes over when it dies or ends."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.kube.control_plane import ControlPlane, Kubelets
from e2e.harness.kube.fleet import CHARTS, CLUSTERS, OPERATOR_NAMESPACE, OPERATOR_RELEASE
from e2e.harness.kube.kubernetes import RESTRICTED, Kubernetes, Object, wait_for
from e2e.harness.kube.stage import SOON_S, small
from e2e.harness.operator_program import Operator
from e2e.harness.processes import Broker

TAKEOVER_S_MAX = 20.0
LEASE = "leases.coordination.k8s.io"


@pytest.fixture
def operators(plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """The first works, the second stands by."""
    install = ("upgrade", "--install", OPERATOR_RELEASE, str(CHARTS / "operator"))
    adopt = ("--create-namespace", "--take-ownership")
    plane.kubernetes.helm(*install, "-n", OPERATOR_NAMESPACE, *adopt)
    token = plane.kubeconfig_of(OPERATOR_RELEASE, OPERATOR_NAMESPACE)
    broker, kubelets = Broker(tmp_path / "broker"), Kubelets(plane)
    one, other = (
        Operator(tmp_path / name, token, broker, lease_namespace=OPERATOR_NAMESPACE)
        for name in ("one", "other")
    )
    try:
        broker.start()
        kubelets.start()
        one.start()
        other.launch()
        other.wait_until(lambda: other.fetch("/readyz") == "stands by\n")
        yield one, other
    finally:
        for program in (one, other, kubelets, broker):
            program.close()


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Iterator[str]:
    kubernetes.create_namespace("two-operators", RESTRICTED)
    yield "two-operators"
    kubernetes.delete("namespace", "two-operators")


def works(operator: Operator) -> bool:
    return operator.fetch("/readyz") == "ready\n"


def lease(kubernetes: Kubernetes) -> Object:
    spec: Object = kubernetes.get(LEASE, OPERATOR_RELEASE, OPERATOR_NAMESPACE)["spec"]
    return spec


def test_the_second_takes_over_within_its_time_and_goes_on_with_what_the_first_began(
    operators: tuple[Operator, Operator], kubernetes: Kubernetes, namespace: str
) -> None:
    one, other = operators
    before = lease(kubernetes)
    kubernetes.apply(small(), namespace=namespace)
    wait_for(
        "the first to begin",
        lambda: "status" in kubernetes.get(CLUSTERS, "fleet", namespace),
        SOON_S,
    )
    one.kill()
    killed = time.monotonic()
    other.wait_until(lambda: works(other), TAKEOVER_S_MAX)
    print(f"taken over {time.monotonic() - killed:.1f} s after SIGKILL")
    kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)
    after = lease(kubernetes)
    assert after["holderIdentity"] != before["holderIdentity"]
    assert after["leaseTransitions"] == before.get("leaseTransitions", 0) + 1
    assert [each["event"] for each in other.events()].count("lease_taken") == 1

    # One that ends in order gives it back, and nobody waits for its end.
    one.launch()
    one.wait_until(lambda: one.fetch("/readyz") == "stands by\n")
    assert other.terminate() == 0
    ended = time.monotonic()
    one.wait_until(lambda: works(one), TAKEOVER_S_MAX / 2)
    print(f"taken over {time.monotonic() - ended:.1f} s after SIGTERM")
