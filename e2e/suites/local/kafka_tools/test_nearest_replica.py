"""Kafka's own consumer reads from the replica in its rack (KIP-392), and from the leader when that is gone."""

import pytest

from e2e.harness.kafka import run_tool
from e2e.harness.processes import Fleet, Rig

RACKS = ("a", "b", "c")
COUNT = 500
VALUE = "v" * 200
CONFIG = {
    "default.replication.factor": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
TOOLS = "org.apache.kafka.tools"


def tool(fleet: Fleet, name: str, *arguments: str, stdin: str | None = None) -> str:
    said = ["--bootstrap-server", fleet.bootstrap, *arguments]
    return run_tool(f"{TOOLS}.{name}", said, stdin=stdin)


def read(fleet: Fleet, rack: str) -> None:
    """Everything, by a console consumer in that rack."""
    lines = tool(
        fleet,
        "consumer.ConsoleConsumer",
        *("--topic", "t", "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(COUNT), "--timeout-ms", "60000"),
        *("--command-property", f"client.rack={rack}"),
    ).splitlines()
    assert lines == [f"{VALUE}{number}" for number in range(COUNT)]


def sent(fleet: Fleet) -> list[float]:
    """Bytes that each broker has sent to consumers of the topic so far."""
    name = 'logfleet_topic_bytes_out_total{topic="t"'
    return [broker.metric(name) if broker.running else 0.0 for broker in fleet.brokers]


def sent_by(fleet: Fleet, rack: str) -> set[int]:
    """Which brokers have sent more than half of the records while a consumer in that rack read them all."""
    before = sent(fleet)
    read(fleet, rack)
    grown = zip(fleet.brokers, sent(fleet), before, strict=True)
    much = COUNT * len(VALUE) / 2
    return {int(broker.config["node.id"]) for broker, after, then in grown if after - then > much}


@pytest.mark.timeout(300)
@pytest.mark.full
def test_kafkas_consumer_reads_from_the_replica_in_its_rack(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=RACKS, config=CONFIG)
    tool(fleet, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2:3")
    values = "".join(f"{VALUE}{number}\n" for number in range(COUNT))
    acked = ("--command-property", "acks=all")
    tool(fleet, "ConsoleProducer", "--topic", "t", *acked, stdin=values)
    for node, rack in enumerate(RACKS, 1):
        assert sent_by(fleet, rack) == {node}, "the broker in its rack, leader or not"
    assert sent_by(fleet, "elsewhere") == {1}, "the leader serves who has no replica near"
    fleet.brokers[2].terminate()
    assert sent_by(fleet, "c") == {1}, "and who has none any more"
