"""All of etcd is lost and comes back from a snapshot that was taken under load: what was acknowledged is there, what was made since is named."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.command_line import logfleet
from e2e.harness.processes import Broker, Fleet, Rig
from e2e.load.running import load

CONFIG = {"default.replication.factor": "3", "min.insync.replicas": "2"}
TOPIC = "kept"
LATER = "later"
PARTITIONS = 4
WITHIN_S = 90.0


def properties(broker: Broker, directory: Path) -> str:
    """As a broker's, to say where the store is."""
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in broker.config.items()))
    return str(path)


def run(broker: Broker, *arguments: str) -> str:
    done = logfleet(broker, *arguments)
    assert done.returncode == 0, done
    return done.stdout.decode()


def ends(fleet: Fleet, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "ends"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1]
            for each in range(partitions)
        ]
    finally:
        consumer.close()


def is_whole(admin: AdminClient) -> bool:
    topic = admin.list_topics(TOPIC, timeout=20).topics[TOPIC]
    return [len(each.isrs) for each in topic.partitions.values()] == [3] * PARTITIONS


def lose_etcd(fleet: Fleet) -> None:
    """All that it holds; an empty one is in its place."""
    fleet.etcd.kill()
    shutil.rmtree(fleet.etcd.directory / "data")
    fleet.etcd.launch()
    fleet.etcd.wait_ready()


def leaders(broker: Broker) -> set[int]:
    """Of all partitions of the topic, as this broker knows them."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(TOPIC, timeout=20)
    return {each.leader for each in found.topics[TOPIC].partitions.values()}


@pytest.mark.timeout(600)
def test_the_metadata_comes_back_from_a_snapshot_and_no_record_is_lost(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=("a", "b", "c"), config=CONFIG)
    first = fleet.brokers[0]
    backup = rig.directory / "backup"
    backup.mkdir()
    config = properties(first, rig.directory)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    with load(fleet.bootstrap, TOPIC) as clients:
        path = run(first, "metadata", "snapshot", config, "--directory", str(backup)).strip()
        assert Path(path).parent == backup
        admin.create_topics([NewTopic(LATER, 1, 3)])[LATER].result(60)
        first.wait_until(lambda: len(clients.acknowledged) > 600, WITHIN_S)
    producer = Producer({"bootstrap.servers": fleet.bootstrap})
    producer.produce(LATER, b"made after the snapshot")
    assert producer.flush(30) == 0
    del producer  # it would create its topic again
    before = ends(fleet, TOPIC, PARTITIONS)

    for broker in fleet.brokers:
        broker.kill()
    lose_etcd(fleet)
    with pytest.raises(Exception, match="knows no cluster"):
        first.start()
    planned = run(first, "metadata", "restore", config, "--file", path)
    assert f"2 topics, {PARTITIONS + 50} partitions" in planned, "__consumer_offsets is one"
    assert "keys were written" in run(
        first, "metadata", "restore", config, "--file", path, "--execute"
    )
    again = logfleet(first, "metadata", "restore", config, "--file", path, "--execute")
    assert b"into an empty one" in again.stderr
    for broker in fleet.brokers:
        broker.launch()
    for broker in fleet.brokers:
        broker.wait_ready()
    first.wait_until(lambda: is_whole(admin), WITHIN_S)
    assert ends(fleet, TOPIC, PARTITIONS) == before
    assert LATER not in admin.list_topics(timeout=20).topics
    strays = [path.name for path in first.data.glob("*-stray")]
    assert any(name.startswith(f"{LATER}-0.") for name in strays), strays
    with load(fleet.bootstrap, TOPIC) as clients:
        first.wait_until(lambda: len(clients.acknowledged) > 600, WITHIN_S)


@pytest.mark.timeout(600)
def test_a_broker_that_fell_behind_after_the_snapshot_does_not_lead(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=("a", "b", "c"), config=CONFIG)
    first, behind = fleet.brokers[0], fleet.brokers[2]
    config = properties(first, rig.directory)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    first.wait_until(lambda: is_whole(admin), WITHIN_S)
    path = run(first, "metadata", "snapshot", config, "--directory", str(rig.directory)).strip()
    behind.kill()
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    for number in range(40):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0
    before = ends(fleet, TOPIC, PARTITIONS)
    assert sum(before) == 40
    for broker in fleet.brokers[:2]:
        broker.kill()
    lose_etcd(fleet)
    run(first, "metadata", "restore", config, "--file", path, "--execute")

    behind.start()
    assert leaders(behind) == {-1}, "the others may have more"
    for broker in fleet.brokers[:2]:
        broker.launch()
    for broker in fleet.brokers[:2]:
        broker.wait_ready()
    first.wait_until(lambda: is_whole(admin), WITHIN_S)
    assert ends(fleet, TOPIC, PARTITIONS) == before


def test_a_single_broker_is_stopped_for_a_snapshot_and_that_is_said(rig: Rig) -> None:
    broker = rig.broker()
    run(broker, "topic", "create", "kept")
    config = properties(broker, rig.directory)
    taking = ("metadata", "snapshot", config, "--directory", str(rig.directory))
    done = logfleet(broker, *taking)
    assert done.returncode == 1
    assert done.stderr.decode().endswith(": stop the broker first\n")
    assert broker.terminate() == 0
    path = run(broker, *taking).strip()
    assert (
        "1 topics"
        in logfleet(broker, "metadata", "restore", config, "--file", path).stdout.decode()
    )
