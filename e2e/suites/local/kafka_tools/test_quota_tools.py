"""Quotas by the tools people use: Kafka's own, and ours."""

import json

import pytest

from e2e.harness.command_line import refused, said
from e2e.harness.kafka import run_tool
from e2e.harness.processes import Broker, Rig

P, R, X = "producer_byte_rate", "request_percentage", "connection_creation_rate"
CONFIGS = "kafka.admin.ConfigCommand"


def configs(broker: Broker, *arguments: str) -> str:
    return run_tool(CONFIGS, ["--bootstrap-server", broker.bootstrap, *arguments])


@pytest.mark.full
def test_kafkas_tool_sets_describes_and_removes_quotas(rig: Rig) -> None:
    """kafka-configs.sh with users, clients, both, ips, and the defaults of each."""
    broker = rig.broker()
    user = "u"
    rate = f"{P}=1024,consumer_byte_rate=2048"
    for entity in (
        ("--entity-type", "clients", "--entity-name", "app"),
        ("--entity-type", "users", "--entity-default"),
        tuple(
            f"--entity-type users --entity-name {user} --entity-type clients --entity-default".split()
        ),
    ):
        configs(broker, *entity, "--alter", "--add-config", rate)
        shown = configs(broker, *entity, "--describe")
        assert "producer_byte_rate=1024.0" in shown, shown
        assert "consumer_byte_rate=2048.0" in shown, shown
        configs(broker, *entity, "--alter", "--delete-config", "consumer_byte_rate")
        assert "consumer_byte_rate" not in configs(broker, *entity, "--describe")
    every = configs(broker, "--entity-type", "users", "--describe")
    assert "user-principal 'u'" not in every  # its quota is of user and client
    assert "Quota configs for the default user-principal are" in every, every
    ip = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    configs(broker, *ip, "--alter", "--add-config", f"{X}=7")
    assert f"{X}=7.0" in configs(broker, *ip, "--describe")
    rows = [line.split() for line in said(broker, "quota", "describe", "-o", "table").splitlines()]
    assert rows == [
        ["ENTITY", "QUOTA", "LIMIT"],
        ["client-id=<default>,user=u", P, "1024"],
        ["client-id=app", P, "1024"],
        ["ip=127.0.0.9", X, "7"],
        ["user=<default>", P, "1024"],
    ]


def test_quotas_are_set_described_and_deleted_on_the_command_line(rig: Rig) -> None:
    broker = rig.broker()
    both = ("--user", "u", "--client-id-default")
    assert said(broker, "quota", "set", "--client-id", "app", f"{P}=5e6", f"{R}=2.5") == (
        "quota/client-id=app set\n"
    )
    said(broker, "quota", "set", *both, f"{P}=7")
    assert json.loads(said(broker, "quota", "describe", "--client-id", "app", "-o", "json")) == [
        {"entity": {"client-id": "app"}, "limits": {P: 5e6, R: 2.5}}
    ]
    assert said(broker, "quota", "delete", "--yes", "--client-id", "app", R, X) == (
        "quota/client-id=app deleted\n"
    )
    assert (
        said(broker, "quota", "delete", "--yes", *both)
        == "quota/client-id=<default>,user=u deleted\n"
    )
    assert (
        said(broker, "quota", "delete", "--yes", *both)
        == "quota/client-id=<default>,user=u unchanged\n"
    )
    assert said(broker, "quota", "describe", "-o", "table").split("\n")[1:] == [
        "client-id=app  producer_byte_rate  5000000",
        "",
    ]
    problem = refused(broker, "quota", "set", "--user", "u", f"{P}=0")
    assert "Quota producer_byte_rate must be greater than 0" in problem
    broker.restart()
    assert "client-id=app" in said(broker, "quota", "describe", "-o", "table")
