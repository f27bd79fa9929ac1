"""`logfleet apply` and `logfleet topic` on a real broker; librdkafka says what became of the topics."""

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from logfleet.testing import Broker

from e2e.harness.clients import CLIENTS, Sent
from e2e.harness.command_line import (
    PATIENCE_S,
    config_of,
    logfleet,
    partitions_of,
    refused,
    said,
    started,
)

TOPIC_YAML = Path(__file__).resolve().parents[4] / "crds" / "examples" / "topic.yaml"


@pytest.fixture
def broker(kafka_broker: Broker) -> Broker:
    return kafka_broker


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


def test_the_folder_that_kubectl_takes_is_taken_here_too(broker: Broker) -> None:
    done = logfleet(broker, "apply", "-f", str(TOPIC_YAML.parent))
    assert done.returncode == 0, done.stderr
    results = [line.split()[0] for line in done.stdout.decode().splitlines()]
    assert results == ["cluster/fleet", "topic/flights"]
    assert b"(Rebalance/even-out): skipped, the operator carries it out" in done.stderr
    assert partitions_of(broker, "flights") == 6


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
  config: {message.max.bytes: 2000000, num.partitions: 9, leader.replication.throttled.rate: 5000000}
"""
    done = logfleet(broker, "apply", "-f", "-", stdin=document.encode())
    assert (done.returncode, done.stdout) == (0, b"cluster/fleet configured\n")
    brokers, partitions = done.stderr.decode().splitlines()
    assert brokers == "Warning: cluster/fleet: spec.pools ask for 2 brokers, 1 run"
    assert "spec.config.num.partitions is 9, brokers run with 1" in partitions
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (described,) = admin.describe_configs([ConfigResource("BROKER", "1")]).values()
    config = described.result(PATIENCE_S)
    assert config["message.max.bytes"].value == "2000000"
    assert config["leader.replication.throttled.rate"].value == "5000000"  # shown while it is set
    again = logfleet(broker, "apply", "-f", "-", stdin=document.encode())
    assert again.stdout == b"cluster/fleet unchanged\n"


def test_a_broker_that_is_not_there_is_told_in_one_line(broker: Broker) -> None:
    broker.kill()
    line = refused(broker, "apply", "-f", str(TOPIC_YAML))
    assert line.startswith(f"Error: cannot connect to {broker.bootstrap}: Connection refused; ")
    assert "name another with -b, -c or LOGFLEET_BOOTSTRAP_SERVER" in line


def test_a_command_that_waits_for_a_broker_says_so(broker: Broker) -> None:
    """Where it had been answered before; one that never was ends at once."""
    assert said(broker, "topic", "create", "t") == "topic/t created\n"
    assert logfleet(broker, "produce", "t", stdin=b"first\n").returncode == 0
    with started(broker, "consume", "t", "--from-beginning") as consumer:
        assert b"first" in consumer.stdout.readline()
        broker.kill()
        line = consumer.stderr.readline().decode()
    assert line.startswith(f"Warning: no broker has answered at {broker.bootstrap} for ")


def test_topics_are_created_altered_described_and_deleted(broker: Broker) -> None:
    created = said(broker, "topic", "create", "a", "b", "-p", "3", "-c", "retention.ms=5")
    assert created == "topic/a created\ntopic/b created\n"
    assert (partitions_of(broker, "b"), config_of(broker, "b")) == (3, {"retention.ms": "5"})

    alter = ("topic", "alter", "b", "-p", "5", "-c", "segment.ms=7", "-d", "retention.ms")
    assert said(broker, *alter) == "topic/b configured\n"
    assert said(broker, *alter) == "topic/b unchanged\n"
    assert (partitions_of(broker, "b"), config_of(broker, "b")) == (5, {"segment.ms": "7"})

    listed = json.loads(said(broker, "topic", "list", "-o", "json"))
    assert [(each["name"], each["partitions"]) for each in listed] == [("a", 3), ("b", 5)]
    table = said(broker, "topic", "list", "-o", "table").splitlines()
    assert [line.split()[:3] for line in table] == [
        ["NAME", "PARTITIONS", "REPLICAS"],
        ["a", "3", "1"],
        ["b", "5", "1"],
    ]
    CLIENTS["confluent-kafka"].write(broker.bootstrap, "b", [Sent(b"k", b"v", 1)] * 4, "none")
    (described,) = json.loads(said(broker, "topic", "describe", "b", "-o", "json"))
    assert described["config"] == {"segment.ms": "7"}
    assert sum(each["end"] - each["begin"] for each in described["partitions"]) == 4
    assert {each["leader"] for each in described["partitions"]} == {1}
    text = said(broker, "topic", "describe", "-o", "table")
    assert "Topic:   a\n" in text
    assert "Config:  segment.ms=7\n" in text

    assert said(broker, "topic", "delete", "--yes", "a") == "topic/a deleted\n"
    assert partitions_of(broker, "a") == 0
    assert said(broker, "topic", "delete", "--yes", "a", "--if-exists") == "topic/a unchanged\n"
    assert said(broker, "topic", "create", "b", "--if-not-exists") == "topic/b unchanged\n"


TOPIC_REFUSALS = [
    (["describe", "nope"], "topic/nope: there is no such topic"),
    (
        ["delete", "--yes", "nope"],
        "topic/nope: This server does not host this topic-partition; `logfleet topic list`",
    ),
    (["alter", "nope", "-p", "2"], "topic/nope: there is no such topic"),
    (["create", "t"], "topic/t: Topic 't' already exists; `logfleet topic alter` changes it"),
    (["create", "n", "-p", "20000"], "topic/n: Excessively large number of partitions"),
    (["create", "no name"], "topic/no name: Topic name is invalid"),
    (["create", "n", "-r", "3"], "topic/n: Unable to replicate the partition 3 time(s)"),
    (["create", "n", "-c", "no.such=1"], "no.such"),
    (["alter", "t", "-p", "1"], "1 would not be an increase"),
    (["alter", "t", "-p", "3", "-c", "retention.ms=soon"], "retention.ms"),
    (["alter", "t", "-d", "no.such"], "--delete-config no.such: no such key"),
]


def test_what_a_broker_refuses_about_topics_is_one_line(one_topic: Broker) -> None:
    for arguments, words in TOPIC_REFUSALS:
        line = refused(one_topic, "topic", *arguments)
        assert line.startswith("Error: ")
        assert words in line
    assert (partitions_of(one_topic, "t"), partitions_of(one_topic, "n")) == (2, 0)


def test_one_refusal_of_several_is_told_and_the_others_are_done(one_topic: Broker) -> None:
    done = logfleet(one_topic, "topic", "delete", "--yes", "nope", "t", "-o", "json")
    assert done.returncode == 1
    assert [row["result"] for row in json.loads(done.stdout)] == ["failed", "deleted"]
    assert partitions_of(one_topic, "t") == 0
