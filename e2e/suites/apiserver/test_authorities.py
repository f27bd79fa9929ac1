"""The operator under the Python of its image and API servers with certificates as distributions of Kubernetes make them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.image_python import ensure_image_python
from e2e.harness.kube.control_plane import ADDRESSES, HOST, ControlPlane
from e2e.harness.kube.fleet import CHARTS, CLUSTERS, OPERATOR_NAMESPACE, OPERATOR_RELEASE
from e2e.harness.kube.kubernetes import RESTRICTED, Kubernetes, wait_for
from e2e.harness.kube.stage import small
from e2e.harness.operator_program import Operator
from e2e.harness.processes import Broker
from e2e.lab.commands import run
from e2e.lab.pki import EKS, MICROK8S, Style
from e2e.lab.settings import settings_from

# Less than the operator takes to check everything again (RESYNC_S): only a watch is so fast.
WATCHED_S_MAX = 30.0
REFUSED_S_MAX = 60.0
# The same address as an IPv6 socket reaches it; no certificate has it.
WRONG_HOST = "::ffff:127.0.0.1"

Make = Callable[[str, Style], Operator]


@pytest.fixture
def make(plane: ControlPlane, tmp_path: Path) -> Iterator[Make]:
    """An operator that reaches the API server at a host and trusts one authority; no broker answers it."""
    install = ("upgrade", "--install", OPERATOR_RELEASE, str(CHARTS / "operator"))
    adopt = ("--create-namespace", "--take-ownership")
    plane.kubernetes.helm(*install, "-n", OPERATOR_NAMESPACE, *adopt)
    broker = Broker(tmp_path / "broker")
    made: list[Operator] = []

    def operator(host: str, trusts: Style) -> Operator:
        token = plane.kubeconfig_of(OPERATOR_RELEASE, OPERATOR_NAMESPACE, host=host, trusts=trusts)
        made.append(Operator(tmp_path / "operator", token, broker))
        return made[-1]

    try:
        yield operator
    finally:
        for each in made:
            each.close()
        broker.close()


@pytest.fixture
def namespace(kubernetes: Kubernetes, style: Style) -> Iterator[str]:
    name = f"authority-of-{style.name}"
    kubernetes.create_namespace(name, RESTRICTED)
    yield name
    kubernetes.delete("namespace", name, wait=False)


def test_the_images_python_verifies_strictly_by_default() -> None:
    """Without that, the tests below show nothing."""
    python = ensure_image_python(settings_from(os.environ, Path.home()))
    code = "import ssl; print(ssl.VERIFY_X509_STRICT in ssl.create_default_context().verify_flags)"
    assert run(python, "-c", code) == "True\n"


@pytest.mark.parametrize(
    "host, style", ADDRESSES.items(), ids=lambda each: getattr(each, "name", each)
)
def test_it_works_and_watches(
    make: Make, kubernetes: Kubernetes, namespace: str, host: str, style: Style
) -> None:
    operator = make(host, style)
    operator.start()
    kubernetes.apply(small(), namespace=namespace)
    wait_for(
        "the operator to begin with a new Cluster",
        lambda: "status" in kubernetes.get(CLUSTERS, "fleet", namespace),
        WATCHED_S_MAX,
    )


@pytest.mark.parametrize(
    "host, trusts, why",
    [
        pytest.param(WRONG_HOST, EKS, f"not valid for '{WRONG_HOST}'", id="another-host"),
        pytest.param(HOST, MICROK8S, "unable to get local issuer", id="another-authority"),
    ],
)
def test_it_refuses(make: Make, host: str, trusts: Style, why: str) -> None:
    operator = make(host, trusts)
    operator.launch()

    def refusals() -> list[str]:
        lines = operator.said().splitlines()
        return [line for line in lines if "CERTIFICATE_VERIFY_FAILED" in line]

    operator.wait_until(lambda: bool(refusals()), REFUSED_S_MAX)
    assert why in refusals()[0]
    assert operator.fetch("/readyz") == ""
