from pathlib import Path

import pytest
from click.testing import CliRunner
from logfleet.cli.broker import read_config, ready_line
from logfleet.cli.main import cli
from logfleet.node.broker import Broker

from broker_image.tests.unit.node.broker_rig import config


def test_nothing_given_is_a_broker_for_a_laptop() -> None:
    config = read_config(None, ())
    assert config.node_id == 1
    assert [(each.host, each.port) for each in config.listeners] == [("127.0.0.1", 9092)]
    assert config.log_dirs == ("logfleet-data",)
    assert config.logfleet_metadata_store == "sqlite"


def test_overrides_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=3\nnum.partitions=5\n")
    config = read_config(path, ("num.partitions=7", "broker.rack = zone-a"))
    assert (config.node_id, config.num_partitions, config.broker_rack) == (3, 7, "zone-a")


def test_keys_of_the_environment_stand_between_the_file_and_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("# Größe\nnode.id=3\nnum.partitions=5\n".encode("latin-1"))
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "6")
    monkeypatch.setenv("KAFKA_BROKER_RACK", "r")
    config = read_config(path, ("broker.rack=s",), "KAFKA_")
    assert (config.node_id, config.num_partitions, config.broker_rack) == (3, 6, "s")
    assert read_config(path, ()).num_partitions == 5


COMPOSE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT_HOST://:9092,CONTROLLER://localhost:9091,PLAINTEXT://:19092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9091",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
    "KAFKA_HEAP_OPTS": "-Xmx512M",
}


def test_the_variables_of_a_compose_file_for_kafka_make_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in COMPOSE.items():
        monkeypatch.setenv(name, value)
    config = read_config(None, (), "KAFKA_")
    assert [(each.name, each.port) for each in config.listeners] == [
        ("PLAINTEXT_HOST", 9092),
        ("PLAINTEXT", 19092),
    ]
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.unknown == ()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--override", "num.partitions"], "KEY=VALUE is expected"),
        (["--override", "num.partitions=many"], "num.partitions"),
        (["--override", "listeners=SSL://x:1"], "SSL"),
        (["--override", "super.users=User:a"], "super.users asks for protection that this"),
        (["no-such-file"], "does not exist"),
    ],
)
def test_a_bad_key_is_one_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["broker", *arguments])
    assert result.exit_code in {1, 2}
    assert words in result.output.strip().splitlines()[-1]


@pytest.mark.asyncio
@pytest.mark.parametrize("admin", ["127.0.0.1:0", ""])
async def test_the_ready_line_has_what_its_reader_needs_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admin: str
) -> None:
    async with Broker(config(tmp_path, **{"logfleet.admin.listener": admin})) as broker:
        (listener,) = broker.opened.listeners.all
        url = broker.opened.observation.address
        observed = f"admin {url}  " if admin else ""
        monkeypatch.chdir(tmp_path)
        ready = f"ready: 127.0.0.1:{listener.port}"
        assert ready_line(broker) == f"{ready}  data ./data  {observed}Ctrl-C stops"
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert ready_line(broker) == f"{ready}  data {tmp_path}/data  {observed}Ctrl-C stops"
