"""Three of the error paths with the Java client: Apache Kafka's own console tools."""

import pytest
from logfleet.testing import Broker

from e2e.harness.clients import JavaClient, Sent
from e2e.suites.local.testing.clients import Opened

SENT = [Sent(None, b"one", 0), Sent(None, b"two", 0)]


def values(kafka: Broker) -> list[bytes | None]:
    return [each.value for each in kafka.records("orders")]


def test_the_answer_to_an_append_is_lost(kafka_broker: Broker) -> None:
    kafka_broker.create_topic("orders")
    with kafka_broker.fault("Produce", topic="orders", lose_answer=True) as fault:
        JavaClient().write(kafka_broker.bootstrap, "orders", SENT, "none")
    assert fault.hits == 1
    assert values(kafka_broker) == [b"one", b"two"]


def test_the_leader_is_another_one_for_a_while(kafka_broker: Broker) -> None:
    kafka_broker.create_topic("orders")
    with kafka_broker.fault(
        "Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=3
    ) as fault:
        JavaClient().write(kafka_broker.bootstrap, "orders", SENT, "none")
    assert fault.hits == 3
    assert values(kafka_broker) == [b"one", b"two"]


@pytest.mark.parametrize("client", ["confluent-kafka"], indirect=True)
def test_fetches_fail_in_several_ways(kafka_broker: Broker, client: Opened) -> None:
    kafka_broker.create_topic("orders")
    producer = client.producer(kafka_broker.bootstrap)
    for each in SENT:  # a batch of its own
        producer.send("orders", each.value or b"")
        assert producer.flush() == 0
    with (
        kafka_broker.fault("Fetch", topic="orders", error="UNKNOWN_LEADER_EPOCH"),
        kafka_broker.fault("Fetch", topic="orders", drop=True),
        kafka_broker.fault("Fetch", topic="orders", tear=100),
    ):
        read = JavaClient().read(kafka_broker.bootstrap, "orders", 2)
    assert [each.value for each in read] == [b"one", b"two"]
