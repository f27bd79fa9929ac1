"""A Kubernetes without nodes for what the API server decides; see e2e/harness/kube/control_plane.py."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.kube.control_plane import ControlPlane
from e2e.harness.kube.kubernetes import Kubernetes
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
