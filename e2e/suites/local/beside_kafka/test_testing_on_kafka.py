"""Tests with the fixtures of `logfleet.testing` run on Apache Kafka as they stand."""

import sys
from pathlib import Path

import pytest

from e2e.compare.brokers import Pair
from e2e.harness.processes import Rig

WITHIN_S = 100.0
TESTS = """
import logfleet.testing
import pytest
from confluent_kafka import Producer

filled = logfleet.testing.broker(topics={"filled-for-a-test": 2})


def test_on_both(kafka_broker, filled):
    kafka_broker.create_topic("made-by-a-test", 2, config={"retention.ms": "3600000"})
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for value in (b"one", b"two"):
        producer.produce("made-by-a-test", value, key=b"k", partition=1, headers={"h": b"v"})
    assert producer.flush(10) == 0
    records = kafka_broker.records("made-by-a-test", count=2)
    assert [(each.partition, each.offset, each.key, each.value) for each in records] == [
        (1, 0, b"k", b"one"), (1, 1, b"k", b"two")
    ]
    assert records[0].headers == (("h", b"v"),)
    assert kafka_broker.end("made-by-a-test", 1) == 2
    assert filled.end("filled-for-a-test", 1) == 0
    assert kafka_broker.leader_id("made-by-a-test", 1) == 1


@pytest.mark.parametrize("time", ["first", "second"])
def test_topics_are_gone_after_each_test(kafka_broker, time):
    kafka_broker.create_topic("made-by-a-test")


def test_on_ours(kafka_broker):
    kafka_broker.kill()
"""

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(300)]


@pytest.mark.parametrize("product", ["kafka", "ours"])
def test_the_same_tests_pass_on_apache_kafka(
    beside: Pair, rig: Rig, tmp_path: Path, product: str
) -> None:
    bootstrap = f"127.0.0.1:{getattr(beside, product).port}"
    (tmp_path / "test_both.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--kafka-bootstrap", bootstrap]
    program = rig.program("pytest", [*command, str(tmp_path)])
    program.launch()
    assert program.wait(WITHIN_S) == 0, program.tail()
    assert "3 passed, 1 skipped" in program.tail()
    assert f"kill needs a broker of its own, not --kafka-bootstrap {bootstrap}" in program.tail()
