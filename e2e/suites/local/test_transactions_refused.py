"""Below the feature level of transactions producers with a transactional id are told at once, in words; they do not wait for ever."""

import time

import pytest
from confluent_kafka import KafkaException, Producer

from e2e.harness.kafka import try_tool
from e2e.harness.processes import Broker, Rig

SENTENCE = "This version does not serve transactions."


@pytest.fixture
def broker(rig: Rig) -> Broker:
    return rig.broker({"logfleet.feature.level.max": "2"})


def test_librdkafka_gives_up_at_once_and_says_why(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    started = time.monotonic()
    with pytest.raises(KafkaException, match=SENTENCE) as raised:
        producer.init_transactions(10)
    assert raised.value.args[0].fatal()
    assert time.monotonic() - started < 2


@pytest.mark.timeout(300)
def test_the_java_client_gives_up_at_once_and_says_why(broker: Broker) -> None:
    """ProducerPerformance fails in initTransactions, long before its max.block.ms of a minute."""
    done = try_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        [
            *("--bootstrap-server", broker.bootstrap, "--topic", "t", "--transactional-id", "t"),
            *("--num-records", "1", "--record-size", "1", "--throughput", "-1"),
        ],
    )
    assert done.returncode != 0
    assert f"due to unexpected error: {SENTENCE}" in done.stdout + done.stderr
