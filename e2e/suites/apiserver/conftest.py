"""A Kubernetes without nodes for what the API server decides; see e2e/harness/kube/control_plane.py."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.kube.control_plane import ControlPlane, Kubelets
from e2e.harness.kube.fleet import CHARTS, OPERATOR_NAMESPACE, OPERATOR_RELEASE
from e2e.harness.kube.kubernetes import RESTRICTED, Kubernetes
from e2e.harness.kube.stage import Stage
from e2e.harness.operator_program import Operator
from e2e.harness.processes import Broker
from e2e.lab.settings import settings_from


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = ControlPlane(
        settings_from(os.environ, Path.home()).bin, tmp_path_factory.mktemp("plane")
    )
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def kubernetes(plane: ControlPlane) -> Kubernetes:
    return plane.kubernetes


@pytest.fixture(scope="module")
def stage(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The operator as its chart grants it, pods without processes, and one broker for what is asked of brokers."""
    folder = tmp_path_factory.mktemp("operator")
    install = ("upgrade", "--install", OPERATOR_RELEASE, str(CHARTS / "operator"))
    # The CRDs may be there from another test's hand.
    adopt = ("--create-namespace", "--take-ownership")
    plane.kubernetes.helm(*install, "-n", OPERATOR_NAMESPACE, *adopt)
    kubelets = Kubelets(plane)
    broker = Broker(folder / "broker")
    token = plane.kubeconfig_of(OPERATOR_RELEASE, OPERATOR_NAMESPACE)
    operator = Operator(folder / "operator", token, broker, lease_namespace=OPERATOR_NAMESPACE)
    try:
        broker.start()
        kubelets.start()
        operator.start()
        yield Stage(plane, kubelets, operator, broker)
    finally:
        operator.close()
        kubelets.close()
        broker.close()


@pytest.fixture
def namespace(stage: Stage, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of restricted pods for one test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[-60:].strip("-")
    stage.kubernetes.create_namespace(name, RESTRICTED)
    yield name
    if not stage.operator.running:
        stage.operator.start()
    stage.kubernetes.delete("namespace", name, wait=False)
