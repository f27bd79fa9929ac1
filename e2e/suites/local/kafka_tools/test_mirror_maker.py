"""MirrorMaker 2 moves topics and groups from Apache Kafka to Logfleet: Kafka Connect with its own topics, and how many will come to us.

Its source is an AdminClient and a consumer of Kafka's, its target an AdminClient, a producer and Connect's three compacted topics of ours.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from e2e.harness.clients import ConfluentClient, Sent, by_key
from e2e.harness.command_line import config_of, partitions_of
from e2e.harness.kafka import QUICK, KafkaBroker, classpath, java
from e2e.harness.processes import Rig
from e2e.harness.program import Program
from e2e.harness.topics import create_topic, held

PARTITIONS, RECORDS = 3, 3000
AGE_MS = 3_600_000
PATIENCE_S = 60.0
OF_CONNECT = ("configs", "offsets", "status")
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "kafka") as broker:
        yield broker


def mirror(rig: Rig, source: str, target: str) -> Program:
    """MirrorMaker in its dedicated mode, looking for news once a second."""
    config = {
        "clusters": "old, new",
        "old.bootstrap.servers": source,
        "new.bootstrap.servers": target,
        "old->new.enabled": "true",
        "old->new.topics": "orders",
        "old->new.groups": "clerks",
        "old->new.sync.group.offsets.enabled": "true",
        "old->new.sync.group.offsets.interval.seconds": "1",
        "old->new.emit.checkpoints.interval.seconds": "1",
        "old->new.offset.lag.max": "0",
        "offset.flush.interval.ms": "1000",
        "new->old.enabled": "false",
        "replication.factor": "1",
        **{f"{what}.topic.replication.factor": "1" for what in ("checkpoints", "heartbeats")},
        "offset-syncs.topic.replication.factor": "1",
        **{f"{what}.storage.replication.factor": "1" for what in ("offset", "status", "config")},
    }
    directory = rig.directory / "mirror"
    directory.mkdir()
    (directory / "mm2.properties").write_text(
        "".join(f"{key} = {value}\n" for key, value in config.items())
    )
    flags = [*QUICK, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    flags.append(f"-Djava.io.tmpdir={directory}")  # where its lz4 unpacks itself
    command = [java(), *flags, "-cp", classpath("apps"), MAIN, "mm2.properties"]
    return rig.own(Program("mirror", command, directory))


def work(bootstrap: str, count: int) -> None:
    """A member of the group clerks reads so many records, commits what it has done, and leaves."""
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": "clerks", **settings})
    member.subscribe(["orders"])
    give_up_s = time.monotonic() + PATIENCE_S
    done = 0
    while done < count:
        assert time.monotonic() < give_up_s, f"read {done} of {count} records"
        for message in member.consume(count - done, timeout=1):
            assert message.error() is None, message.error()
            done += 1
    member.commit(asynchronous=False)
    member.close()


def committed(bootstrap: str, topic: str) -> dict[int, int]:
    """The group's offsets by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "clerks"})
    asked = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    found = consumer.committed(asked, timeout=PATIENCE_S)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset != OFFSET_INVALID}


@pytest.mark.timeout(400)
@pytest.mark.full
def test_topics_records_and_groups_come_over(rig: Rig, kafka: KafkaBroker) -> None:
    """Keys, headers, times, order and config of a topic, and where its group goes on: nothing is skipped by those who move after it."""
    broker = rig.broker()
    create_topic(kafka.bootstrap, "orders", PARTITIONS, {"retention.ms": "987654321"})
    start_ms = int(time.time() * 1000) - AGE_MS  # younger than its retention
    sent = [
        Sent(f"{n % 50}".encode(), f"order {n}".encode(), start_ms + n, (("n", b"%d" % n),))
        for n in range(RECORDS)
    ]
    client = ConfluentClient()
    client.write(kafka.bootstrap, "orders", sent, "lz4")
    work(kafka.bootstrap, RECORDS)
    done = committed(kafka.bootstrap, "orders")
    program = mirror(rig, kafka.bootstrap, broker.bootstrap)
    program.launch()
    program.wait_until(lambda: partitions_of(broker, "old.orders") == PARTITIONS)
    assert by_key(client.read(broker.bootstrap, "old.orders", RECORDS)) == by_key(sent)
    assert config_of(broker, "old.orders")["retention.ms"] == "987654321"
    # MirrorMaker translates by what it noted last (OffsetSyncStore): a group that is far behind when it begins does not come over.
    program.wait_until(lambda: committed(broker.bootstrap, "old.orders").keys() == done.keys())
    moved = committed(broker.bootstrap, "old.orders")
    assert all(0 < moved[index] <= offset for index, offset in done.items())
    for what in OF_CONNECT:
        assert config_of(broker, f"mm2-{what}.old.internal")["cleanup.policy"] == "compact"
    later = [Sent(b"late", b"%d" % n, start_ms + RECORDS + n) for n in range(100)]
    client.write(kafka.bootstrap, "orders", later, "none")
    program.wait_until(lambda: held(broker.bootstrap, "old.orders") == RECORDS + len(later))
    # Begun anew it goes on where it was, by the offsets that Connect keeps in a topic of ours.
    program.terminate()
    broker.restart()
    client.write(kafka.bootstrap, "orders", later, "none")
    program.launch()
    everything = [*sent, *later, *later]
    program.wait_until(lambda: held(broker.bootstrap, "old.orders") >= len(everything))
    assert by_key(client.read(broker.bootstrap, "old.orders", len(everything))) == by_key(
        everything
    )
    assert held(broker.bootstrap, "old.orders") == len(everything)
