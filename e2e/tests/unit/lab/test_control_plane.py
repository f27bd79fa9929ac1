from pathlib import Path

import pytest

from e2e.lab.control_plane import (
    apiserver_arguments,
    controller_manager_arguments,
    etcd_arguments,
    scheduler_arguments,
)
from e2e.lab.pki import ensure_pki
from e2e.lab.settings import Settings, Zone


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    made = Settings(root=folder, zones=(Zone("a", 0),), state=folder / "state")
    ensure_pki(made)
    return made


@pytest.mark.parametrize(
    "arguments", [apiserver_arguments, controller_manager_arguments, scheduler_arguments]
)
def test_every_file_that_is_named_exists(settings, arguments):
    files = [
        Path(value)
        for argument in arguments(settings)
        for value in [argument.partition("=")[2]]
        if value.startswith(str(settings.root))
    ]
    assert files
    assert [file for file in files if not file.exists()] == []


def test_the_api_server_asks_the_etcd_of_the_lab(settings):
    (servers,) = (a for a in apiserver_arguments(settings) if a.startswith("--etcd-servers="))
    assert f"--advertise-client-urls={servers.partition('=')[2]}" in etcd_arguments(settings)
