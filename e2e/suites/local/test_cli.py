"""The command line as a person runs it, on a real broker; other clients say whether what it says is true."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from e2e.harness.processes import Broker, Rig

PATIENCE_S = 60.0
TOPIC_YAML = Path(__file__).resolve().parents[3] / "crds" / "examples" / "topic.yaml"


def logfleet(
    broker: Broker, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """The program, with the broker's address from the environment."""
    return subprocess.run(
        [sys.executable, "-m", "logfleet", *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        env={**os.environ, "LOGFLEET_BOOTSTRAP_SERVER": broker.bootstrap},
        check=False,
    )


def said(broker: Broker, *arguments: str, stdin: bytes = b"") -> str:
    """What it says on stdout; it must succeed and say nothing else."""
    done = logfleet(broker, *arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout.decode()


def refused(broker: Broker, *arguments: str, stdin: bytes = b"", code: int = 1) -> str:
    """The one line of its failure."""
    done = logfleet(broker, *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (code, b""), done
    (line,) = done.stderr.decode().splitlines()
    return line


def partitions_of(broker: Broker, topic: str) -> int:
    """As librdkafka sees it; 0: no such topic."""
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)
    return len(metadata.topics[topic].partitions) if topic in metadata.topics else 0


def config_of(broker: Broker, topic: str) -> dict[str, str]:
    """Keys set on the topic itself, as librdkafka sees them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (described,) = admin.describe_configs([resource]).values()
    entries = described.result(PATIENCE_S).values()
    return {each.name: each.value for each in entries if each.source == 1}


@pytest.fixture
def broker(rig: Rig) -> Broker:
    return rig.broker()


TOPIC = """
apiVersion: logfleet.dev/v1beta1
kind: Topic
metadata: {name: %s}
spec: {clusterRef: {name: fleet}, partitions: %d, config: {%s}}
---
"""


def test_apply_makes_topics_as_written_and_changes_nothing_twice(
    broker: Broker, tmp_path: Path
) -> None:
    assert said(broker, "apply", "-f", str(TOPIC_YAML)) == "topic/flights created\n"
    assert said(broker, "apply", "-f", str(TOPIC_YAML)) == "topic/flights unchanged\n"
    assert partitions_of(broker, "flights") == 6

    folder = tmp_path / "topics"
    folder.mkdir()
    (folder / "a.yaml").write_text(TOPIC % ("a", 1, "") + TOPIC % ("b", 2, "retention.ms: 1000"))
    grown = TOPIC % ("flights", 8, "cleanup.policy: compact, retention.ms: 9")
    assert said(broker, "apply", "-f", str(folder), "-f", "-", stdin=grown.encode()).split(
        "\n"
    ) == [
        "topic/a created",
        "topic/b created",
        "topic/flights configured",
        "",
    ]
    assert [partitions_of(broker, name) for name in ("a", "b", "flights")] == [1, 2, 8]
    assert config_of(broker, "b") == {"retention.ms": "1000"}
    assert config_of(broker, "flights") == {"cleanup.policy": "compact", "retention.ms": "9"}

    (folder / "a.yaml").write_text(TOPIC % ("b", 2, ""))
    (outcome,) = json.loads(said(broker, "apply", "-f", str(folder), "-o", "json"))
    assert (outcome["name"], outcome["result"]) == ("b", "configured")
    assert config_of(broker, "b") == {}


def test_apply_refuses_what_cannot_be_done_and_does_nothing_of_it(broker: Broker) -> None:
    def apply(text: str) -> str:
        return refused(broker, "apply", "-f", "-", stdin=text.encode())

    said(broker, "apply", "-f", str(TOPIC_YAML))
    fewer = apply(TOPIC % ("flights", 2, "retention.ms: 1"))
    assert "spec.partitions: the topic has 6 and partitions only grow; write 6 or more" in fewer
    assert config_of(broker, "flights") == {}
    assert "retention.mss" in apply(TOPIC % ("flights", 7, "retention.mss: 1"))
    assert partitions_of(broker, "flights") == 6
    assert "spec.partitions" in apply(TOPIC % ("x", 1, "") + TOPIC % ("y", 0, ""))
    assert partitions_of(broker, "x") == 0
    assert "line 1" in apply("a: [")
    assert "--help" in refused(broker, "apply", "-f", "no-such-file", code=2)

    done = logfleet(broker, "apply", "-f", "-", "--dry-run", stdin=(TOPIC % ("x", 1, "")).encode())
    assert done.stdout == b"topic/x created (dry run)\n"
    assert partitions_of(broker, "x") == 0


def test_apply_changes_the_dynamic_configuration_of_a_running_cluster(broker: Broker) -> None:
    document = """
apiVersion: logfleet.dev/v1beta1
kind: Cluster
metadata: {name: fleet}
spec:
  pools: [{name: main, replicas: 2, storage: {size: 1Gi}}]
  metadata: {managed: {replicas: 1}}
  config: {message.max.bytes: 2000000, num.partitions: 9}
"""
    done = logfleet(broker, "apply", "-f", "-", stdin=document.encode())
    assert (done.returncode, done.stdout) == (0, b"cluster/fleet configured\n")
    brokers, partitions = done.stderr.decode().splitlines()
    assert brokers == "Warning: cluster/fleet: spec.pools ask for 2 brokers, 1 run"
    assert "spec.config.num.partitions is 9, brokers run with 1" in partitions
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (described,) = admin.describe_configs([ConfigResource("BROKER", "1")]).values()
    assert described.result(PATIENCE_S)["message.max.bytes"].value == "2000000"
    again = logfleet(broker, "apply", "-f", "-", stdin=document.encode())
    assert again.stdout == b"cluster/fleet unchanged\n"


def test_a_broker_that_is_not_there_is_told_in_one_line(broker: Broker) -> None:
    broker.kill()
    line = refused(broker, "apply", "-f", str(TOPIC_YAML))
    assert line.startswith(f"Error: cannot connect to {broker.bootstrap}: Connection refused; ")
    assert "--bootstrap-server" in line
