"""All disks of a topic are lost: its partitions are told, given up by a counted act, and clients and groups go on."""

import json
import shutil

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.command_line import logfleet
from e2e.harness.processes import Broker, Fleet, Rig

CONFIG = {"default.replication.factor": "3", "min.insync.replicas": "2"}
TOPIC = "lost"
PARTITIONS = 3
WITHIN_S = 90.0


def lost(broker: Broker) -> list[dict[str, object]]:
    ended = logfleet(broker, "partitions", "lost", "-o", "json")
    assert ended.stdout, ended.stderr
    found: list[dict[str, object]] = json.loads(ended.stdout)
    assert ended.returncode == (1 if found else 0), ended.stderr
    return found


def produce(fleet: Fleet, count: int) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "enable.idempotence": True})
    errors: list[str] = []
    for number in range(count):
        producer.produce(
            TOPIC,
            str(number).encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(str(error)) if error else None,
        )
    assert producer.flush(60) == 0
    assert errors == []


def consume(fleet: Fleet, count: int) -> list[str]:
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, **settings})
    consumer.subscribe([TOPIC])
    found: list[str] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count, timeout=60)
            assert messages, f"only {len(found)} of {count} came"
            for message in messages:
                value = message.value()
                assert value is not None, message.error()
                found.append(value.decode())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found, key=int)


@pytest.mark.timeout(600)
def test_partitions_whose_disks_are_all_gone_are_given_up_and_begin_anew(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=("a", "b", "c"), config=CONFIG)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    produce(fleet, 30)
    assert len(consume(fleet, 30)) == 30
    first = fleet.brokers[0]
    assert lost(first) == []
    kept = rig.directory / "kept"
    for broker in fleet.brokers:
        broker.kill()
    shutil.move(fleet.brokers[2].data, kept)
    for broker in fleet.brokers[:2]:
        shutil.rmtree(broker.data)
        broker.launch()
    first.wait_until(lambda: broker_count(fleet) == 2, WITHIN_S)
    assert lost(first) == [], "the third may have them"
    fleet.brokers[2].launch()
    first.wait_until(lambda: broker_count(fleet) == 3, WITHIN_S)
    first.wait_until(lambda: len(lost(first)) > PARTITIONS, WITHIN_S)
    count = len(lost(first))
    assert {each["topic"] for each in lost(first)} == {TOPIC, "__consumer_offsets"}

    wrong = logfleet(first, "partitions", "give-up", "--count", str(count - 1), "--execute")
    assert wrong.returncode == 1
    assert f"{count} partitions are lost, not {count - 1}" in wrong.stderr.decode()
    shown = logfleet(first, "partitions", "give-up", "--count", str(count))
    assert b"--execute does it" in shown.stderr
    assert len(lost(first)) == count, "nothing was done"
    done = logfleet(first, "partitions", "give-up", "--count", str(count), "--execute")
    assert f"{count} partitions were given up" in done.stderr.decode()
    assert lost(first) == []
    for broker in fleet.brokers:
        broker.wait_ready()
    produce(fleet, 60)
    assert consume(fleet, 60) == [str(number) for number in range(60)]

    # the old disk of one of them is found after all
    fleet.brokers[2].terminate()
    shutil.rmtree(fleet.brokers[2].data)
    shutil.move(kept, fleet.brokers[2].data)
    fleet.brokers[2].start()
    produce(fleet, 3)
    first.wait_until(lambda: in_sync(admin) == [3] * PARTITIONS, WITHIN_S)
    assert len(consume(fleet, 3)) == 3


def broker_count(fleet: Fleet) -> int:
    """As the first one tells: it is registered before it takes connections, so another one may count it while it refuses them."""
    first = AdminClient({"bootstrap.servers": fleet.brokers[0].bootstrap})
    return len(first.list_topics(timeout=20).brokers)


def in_sync(admin: AdminClient) -> list[int]:
    topic = admin.list_topics(TOPIC, timeout=20).topics[TOPIC]
    return [len(each.isrs) for each in topic.partitions.values()]
