"""The command lines of the broker's image and of compose.yaml, as processes: no Docker is needed."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from logfleet.node.tools.etcd_binary import etcd_binaries

from e2e.harness.containers import DATA, PROPERTIES, composed, image_command
from e2e.harness.processes import Rig
from e2e.harness.program import Program

COMMANDS = Path(sys.executable).parent
BARE = {"PATH": f"{COMMANDS}:/usr/bin:/bin", "HOME": os.environ["HOME"]}
pytestmark = pytest.mark.timeout(180)


def logfleet(rig: Rig, name: str, *arguments: str) -> str:
    program = rig.program(name, [str(COMMANDS / "logfleet"), *arguments], BARE)
    program.launch()
    assert program.wait() == 0, program.said()
    return program.said()


def container(
    rig: Rig, name: str, environment: Mapping[str, str], changes: Mapping[str, str]
) -> Program:
    """A broker as its container starts it; what a container has of its own is changed.

    changes: texts of the configuration, such as a port, with what stands for them here.
    """
    directory = rig.directory / name
    directory.mkdir(parents=True, exist_ok=True)
    changes = {DATA: str(directory / "data"), **changes}

    def here(text: str) -> str:
        for there, replaced in changes.items():
            text = text.replace(there, replaced)
        return text

    properties = directory / PROPERTIES.name
    properties.write_text(here(PROPERTIES.read_text()))
    command = [
        str(properties) if word.endswith(PROPERTIES.name) else word for word in image_command()
    ]
    variables = {key: here(text) for key, text in environment.items()}
    program = rig.program(name, command, {**BARE, **variables})
    program.launch()
    return program


def test_the_image_alone_is_one_broker(rig: Rig) -> None:
    ports = rig.program("ports", []).ports
    port, admin = ports.reserve(), ports.reserve()
    broker = container(rig, "one", {}, {":9092": f":{port}", ":9644": f":{admin}"})
    broker.wait_until(lambda: "broker_started" in broker.said())
    at = ("-b", f"localhost:{port}")
    logfleet(rig, "create", "topic", "create", "t", *at)
    (found,) = json.loads(logfleet(rig, "cluster", "cluster", "-o", "json", *at))["brokers"]
    assert (found["host"], found["port"]) == ("localhost", port)
    assert broker.terminate() == 0
    assert (rig.directory / "one" / "data" / "t-0").is_dir()


def test_an_address_for_other_machines_is_given_in_the_environment(rig: Rig) -> None:
    ports = rig.program("ports", []).ports
    port, admin = ports.reserve(), ports.reserve()
    changes = {":9092": f":{port}", ":9644": f":{admin}"}
    address = {"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}"}
    broker = container(rig, "one", address, changes)
    broker.wait_until(lambda: "broker_started" in broker.said())
    (found,) = json.loads(logfleet(rig, "c", "cluster", "-o", "json", "-b", f"localhost:{port}"))[
        "brokers"
    ]
    assert found["host"] == "127.0.0.1"


def test_compose_is_a_fleet_in_three_zones(rig: Rig) -> None:
    services = composed()
    ports = rig.program("ports", []).ports
    etcd_port, peer_port = ports.reserve(), ports.reserve()
    command = [
        word.replace("/var/lib/etcd", str(rig.directory / "etcd-data"))
        .replace("0.0.0.0:2379", f"127.0.0.1:{etcd_port}")
        .replace("etcd:2379", f"127.0.0.1:{etcd_port}")
        for word in services["etcd"].command[1:]
    ]
    peer = f"http://127.0.0.1:{peer_port}"
    command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
    command += [f"--initial-cluster=default={peer}"]
    etcd = rig.program("etcd", [str(etcd_binaries()[0].path), *command], BARE)
    etcd.launch()
    etcd.wait_until(lambda: "ready to serve client requests" in etcd.said())
    at = {}
    for name, service in services.items():
        if name == "etcd":
            continue
        inner, outer, admin = (ports.reserve() for _ in range(3))
        at[name] = outer
        (published,) = service.ports
        changes = {
            "etcd:2379": f"127.0.0.1:{etcd_port}",
            f"{name}:19092": f"127.0.0.1:{inner}",
            ":19092": f":{inner}",
            f"localhost:{published.removesuffix(':9092')}": f"localhost:{outer}",
            "0.0.0.0:9092": f"0.0.0.0:{outer}",
            "0.0.0.0:9644": f"127.0.0.1:{admin}",
        }
        container(rig, name, service.environment, changes)
    bootstrap = ("-b", ",".join(f"localhost:{port}" for port in at.values()))
    logfleet(rig, "wait", "cluster", "--wait", "--brokers", "3", *bootstrap)
    logfleet(rig, "create", "topic", "create", "t", *bootstrap)
    found = json.loads(logfleet(rig, "cluster", "cluster", "-o", "json", *bootstrap))["brokers"]
    assert [(each["zone"], each["port"], each["replicas"]) for each in found] == [
        (zone, at[f"broker-{index}"], 1) for index, zone in ((1, "a"), (2, "b"), (3, "c"))
    ]
