"""The image's own command and compose.yaml agree with the broker's configuration and with each other."""

import os

import pytest
import yaml
from logfleet.config.broker import broker_config
from logfleet.config.keys import BROKER_KEYS
from logfleet.config.server_properties.environment import keys_in
from logfleet.config.server_properties.text import read_properties

from e2e.harness.containers import DATA, PROPERTIES, composed, image_command
from e2e.harness.images import ROOT, image_name
from e2e.lab.images import ETCD_IMAGE

BROKERS = [each for name, each in composed().items() if name.startswith("broker-")]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_image_starts_a_broker_that_the_environment_may_change():
    assert image_command() == [
        *("logfleet", "broker", f"/etc/logfleet/{PROPERTIES.name}", "--env-prefix", "KAFKA_"),
    ]
    assert f"COPY {PROPERTIES.relative_to(ROOT)} /etc/logfleet/\n" in DOCKERFILE


def test_its_configuration_is_for_clients_of_the_machine_and_keeps_data_in_the_volume():
    keys = read_properties(PROPERTIES.read_bytes())
    assert keys.keys() <= BROKER_KEYS.keys()
    config = broker_config(keys)
    assert config.log_dirs == (DATA,)
    assert keys["advertised.listeners"] == "PLAINTEXT://localhost:9092"
    assert keys["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert f"VOLUME {DATA}\n" in DOCKERFILE
    assert f"install -d -o 10001 -g 10001 {DATA}\n" in DOCKERFILE  # the user that it runs as
    assert "EXPOSE 9092 9644\n" in DOCKERFILE


@pytest.mark.parametrize("broker", BROKERS, ids=lambda each: each.name)
def test_a_broker_of_compose_has_a_configuration_that_is_taken(broker):
    keys = keys_in(broker.environment, "KAFKA_")
    assert keys.keys() <= BROKER_KEYS.keys()
    config = broker_config({**read_properties(PROPERTIES.read_bytes()), **keys})
    assert broker.name == f"broker-{config.node_id}"
    assert broker.image == image_name("broker")
    assert broker.volumes == (f"{broker.name}:{DATA}",)
    (port,) = broker.ports
    assert keys["advertised.listeners"] == (
        f"FLEET://{broker.name}:19092,LOCAL://localhost:{port.removesuffix(':9092')}"
    )


def test_three_zones_and_no_two_brokers_with_one_port_or_volume():
    assert [each.environment["KAFKA_BROKER_RACK"] for each in BROKERS] == ["a", "b", "c"]
    assert len({each.ports for each in BROKERS}) == 3
    etcd = composed()["etcd"]
    volumes = {volume.partition(":")[0] for each in (*BROKERS, etcd) for volume in each.volumes}
    declared = yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"]
    assert volumes == set(declared)
    assert len(volumes) == 4
    assert etcd.image == ETCD_IMAGE


def test_values_of_the_environment_are_texts():
    """YAML's numbers and booleans are written differently by each version of Compose."""
    for each in BROKERS:
        assert {type(value) for value in each.environment.values()} == {str}
        assert os.linesep not in "".join(each.environment.values())
