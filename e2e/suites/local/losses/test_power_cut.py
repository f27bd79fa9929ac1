"""All brokers lose power, and each disk lacks another part of what was acknowledged: the longest log leads, and no record that it has is cut."""

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from logfleet.log.names import CLEAN_SHUTDOWN, RECOVERY_POINTS, RUNNING

from e2e.harness.processes import Broker, Fleet, Rig

CONFIG = {"default.replication.factor": "3", "min.insync.replicas": "2"}
TOPIC = "cut"
PARTITIONS = 3
COUNT = 40
WITHIN_S = 90.0


def produce(fleet: Fleet) -> None:
    """Each record is a batch of its own."""
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "linger.ms": 0})
    for number in range(COUNT):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
        assert producer.flush(WITHIN_S) == 0


def records(fleet: Fleet, partition: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "g"})
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)[1]
        found: list[int] = []
        while len(found) < end:
            messages = consumer.consume(end - len(found), timeout=30)
            assert messages, f"only {len(found)} of {end} came"
            values = [message.value() for message in messages]
            found += [int(value) for value in values if value is not None]
    finally:
        consumer.close()
    return found


def lose_power(broker: Broker, kept: dict[int, float]) -> None:
    """Its machine boots anew. kept: by partition, the share of its log that had reached the disk."""
    for name in (RUNNING, CLEAN_SHUTDOWN, RECOVERY_POINTS):
        Path(broker.data / name).unlink(missing_ok=True)
    for partition, share in kept.items():
        (segment,) = Path(broker.data / f"{TOPIC}-{partition}").glob("*.log")
        os.truncate(segment, int(share * segment.stat().st_size))


def states(fleet: Fleet) -> dict[int, tuple[int, int]]:
    """Leader and size of the ISR of each partition, as the first broker knows them."""
    admin = AdminClient({"bootstrap.servers": fleet.brokers[0].bootstrap})
    found = admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions
    return {index: (each.leader, len(each.isrs)) for index, each in found.items()}


def brokers_seen(fleet: Fleet) -> int:
    admin = AdminClient({"bootstrap.servers": fleet.brokers[0].bootstrap})
    return len(admin.list_topics(timeout=20).brokers)


@pytest.mark.timeout(600)
def test_after_a_power_cut_of_all_the_longest_log_leads_and_nothing_of_it_is_cut(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=("a", "b", "c"), config=CONFIG)
    first = fleet.brokers[0]
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    produce(fleet)
    replicas = {
        index: each.replicas
        for index, each in admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions.items()
    }
    leaders = {index: leader for index, (leader, _) in states(fleet).items()}
    for broker in fleet.brokers:
        broker.kill()
    kept: dict[int, dict[int, float]] = {1: {}, 2: {}, 3: {}}
    longest = {}
    for index, leader in leaders.items():
        short, longest[index] = [each for each in replicas[index] if each != leader]
        kept[leader][index], kept[short][index] = 0.25, 0.7
    for number, broker in enumerate(fleet.brokers, 1):
        lose_power(broker, kept[number])

    for broker in fleet.brokers[:2]:
        broker.launch()
    first.wait_until(lambda: first.get("/metrics")[0] == 200, WITHIN_S)
    first.wait_until(lambda: brokers_seen(fleet) == 2, WITHIN_S)
    assert {leader for leader, _ in states(fleet).values()} == {-1}, "the third may have more"
    fleet.brokers[2].launch()
    for broker in fleet.brokers:
        broker.wait_ready()
    first.wait_until(lambda: all(count == 3 for _, count in states(fleet).values()), WITHIN_S)
    assert {index: leader for index, (leader, _) in states(fleet).items()} == longest
    for index in range(PARTITIONS):
        assert records(fleet, index) == list(range(COUNT))
