"""The metadata comes back from a snapshot that was taken before replicas moved: what was acknowledged leads, or is told to be lost, and never begins anew."""

import asyncio
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from logfleet.client import offsets
from logfleet.client.cluster import Client
from logfleet.client.reassignments import alter_reassignments, list_reassignments

from e2e.harness.command_line import logfleet
from e2e.harness.processes import Broker, Fleet, Rig

CONFIG = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
}
TOPIC = "moved"
COUNT = 20
WITHIN_S = 60.0


def run(broker: Broker, *arguments: str) -> str:
    done = logfleet(broker, *arguments)
    assert done.returncode == 0, done
    return done.stdout.decode()


def produce(fleet: Fleet) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    for number in range(COUNT):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(WITHIN_S) == 0


async def move(bootstrap: str, replicas: list[int]) -> None:
    client = Client(bootstrap)
    try:
        key = offsets.TopicPartition(TOPIC, 0)
        assert await alter_reassignments(client, {key: replicas}) == {}
        while await list_reassignments(client):  # noqa: ASYNC110  brokers tell it to who asks
            await asyncio.sleep(0.1)
    finally:
        client.close()


def active(broker: Broker) -> int:
    """How many brokers are, as this one sees it."""
    found = json.loads(logfleet(broker, "cluster", "-o", "json").stdout or b"{}")
    return sum(each["state"] == "active" for each in found.get("brokers", ()))


def lost(broker: Broker) -> list[str]:
    ended = logfleet(broker, "partitions", "lost", "-o", "json")
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)
    return [each["topic"] for each in found]


def is_gone(directory: Path) -> bool:
    return not directory.exists()


def restored_after(rig: Rig, before: list[int], after: list[int], earliest: int) -> Fleet:
    """A fleet whose only partition was moved from before to after since the snapshot; that broker starts first."""
    fleet = rig.fleet(4, config=CONFIG)
    first, etcd = fleet.brokers[0], fleet.etcd
    backup = rig.directory / "backup"
    backup.mkdir()
    properties = rig.directory / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in first.config.items()))
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[before])])[TOPIC].result(WITHIN_S)
    produce(fleet)
    path = run(first, "metadata", "snapshot", str(properties), "--directory", str(backup)).strip()
    asyncio.run(asyncio.wait_for(move(fleet.bootstrap, after), WITHIN_S))
    for left in set(before) - set(after):
        directory = Path(fleet.brokers[left - 1].data) / f"{TOPIC}-0"
        first.wait_until(partial(is_gone, directory), WITHIN_S)
    produce(fleet)
    for broker in fleet.brokers:
        broker.kill()
    etcd.kill()
    shutil.rmtree(etcd.directory / "data")
    etcd.launch()
    etcd.wait_ready()
    run(first, "metadata", "restore", str(properties), "--file", path, "--execute")
    early = fleet.brokers[earliest - 1]
    early.launch()
    early.wait_until(lambda: active(early) == 1, WITHIN_S)
    for broker in fleet.brokers:
        if broker is not early:
            broker.launch()
    first.wait_until(lambda: active(first) == 4, WITHIN_S)
    return fleet


@pytest.mark.timeout(300)
@pytest.mark.parametrize("earliest", [1, pytest.param(2, marks=pytest.mark.full)])
def test_who_still_has_the_log_leads(rig: Rig, earliest: int) -> None:
    fleet = restored_after(rig, [2, 1], [1, 3], earliest)
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "g"})
    ends = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    consumer.close()
    assert ends == (0, 2 * COUNT)
    assert lost(fleet.brokers[0]) == []


@pytest.mark.timeout(300)
@pytest.mark.full
def test_where_nobody_has_it_the_partition_is_told_to_be_lost(rig: Rig) -> None:
    fleet = restored_after(rig, [2, 1], [3, 4], 1)
    first = fleet.brokers[0]
    first.wait_until(lambda: lost(first) == [TOPIC], WITHIN_S)
    for number in (3, 4):
        data = Path(fleet.brokers[number - 1].data)
        (kept,) = data.glob(f"{TOPIC}-0.*-stray")
        assert sum(file.stat().st_size for file in kept.glob("*.log")) > 0
