"""A broker comes back with an older copy of its disk while the others are down: what was acknowledged since is still there in the end."""

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from logfleet.io.file_identity import file_identity

from e2e.harness.command_line import logfleet
from e2e.harness.processes import Broker, Fleet, Rig

CONFIG = {"default.replication.factor": "3", "min.insync.replicas": "2"}
TOPIC = "kept"
BEFORE, SINCE = 50, 200
WITHIN_S = 60.0


def produce(fleet: Fleet, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    errors: list[str] = []
    for number in range(first, first + count):
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=0,
            on_delivery=lambda error, _: errors.append(str(error)) if error else None,
        )
    assert producer.flush(WITHIN_S) == 0
    assert errors == []


def read_all(fleet: Fleet) -> list[int]:
    settings = {"bootstrap.servers": fleet.bootstrap, "group.id": "g"}
    consumer = Consumer(settings)
    try:
        partition = TopicPartition(TOPIC, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=WITHIN_S)
        consumer.assign([partition])
        found: list[int] = []
        while len(found) < end:
            messages = consumer.consume(end - len(found), timeout=WITHIN_S)
            assert messages, f"{len(found)} of {end} were read"
            for message in messages:
                value = message.value()
                assert value is not None, message.error()
                found.append(int(value))
    finally:
        consumer.close()
    return found


def in_sync(broker: Broker) -> list[int]:
    """The ISR of the partition as this broker knows it."""
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(TOPIC, timeout=20)
    return sorted(topics.topics[TOPIC].partitions[0].isrs)


def active(broker: Broker) -> set[int]:
    found = json.loads(logfleet(broker, "cluster", "-o", "json").stdout or b"{}")
    return {each["id"] for each in found.get("brokers", ()) if each["state"] == "active"}


def copy_of(broker: Broker, *, is_running: bool) -> Path:
    copy = broker.data.with_name("copy")
    if not is_running:
        broker.terminate()
    shutil.copytree(broker.data, copy, symlinks=True)
    if not is_running:
        broker.start()
    return copy


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
def test_a_copy_from_before_the_last_records_does_not_lead(rig: Rig, *, is_running: bool) -> None:
    """is_running: whether the copy is taken while the broker uses the disk, or after it was stopped in order."""
    fleet = rig.fleet(3, zones=("a", "b", "c"), config=CONFIG)
    first, second, third = fleet.brokers
    if file_identity(str(third.data / "meta.properties")) is None:
        pytest.skip("on this file system the killed brokers are not believed either")
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    new = NewTopic(TOPIC, replica_assignment=[[3, 1, 2]], num_partitions=1)
    admin.create_topics([new])[TOPIC].result(WITHIN_S)
    produce(fleet, 0, BEFORE)
    copy = copy_of(third, is_running=is_running)
    third.wait_until(lambda: in_sync(third) == [1, 2, 3], WITHIN_S)
    produce(fleet, BEFORE, SINCE)
    first.kill()
    second.kill()
    third.wait_until(lambda: in_sync(third) == [3], WITHIN_S)
    third.terminate()
    shutil.rmtree(third.data)
    copy.rename(third.data)
    third.launch()
    third.wait_until(lambda: active(third) == {3}, WITHIN_S)
    for broker in (first, second):
        broker.launch()
    third.wait_until(lambda: in_sync(third) == [1, 2, 3], WITHIN_S)
    assert read_all(fleet) == list(range(BEFORE + SINCE))
    assert (
        sum(each.metric("logfleet_unclean_leader_elections_total") for each in fleet.brokers) == 0
    )
