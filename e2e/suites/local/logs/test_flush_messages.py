"""Topics that want records on disk before they are acknowledged or seen (flush.messages), on a disk that takes its time."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from e2e.harness.processes import Broker, Rig
from e2e.harness.program import Program
from e2e.harness.topics import PATIENCE_S, create_topic

PROGRAM = """
import os, sys, time
hold, sync = sys.argv.pop(1), os.fsync

def fsync(fd):
    while os.path.exists(hold):
        time.sleep(0.005)
    sync(fd)

os.fsync = fsync
from logfleet.__main__ import main
main()
"""


class HoldingDisk(Broker):
    """No sync is done while the file `hold` is there."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.hold = directory / "hold"

    def launch(self) -> None:
        self.command = [sys.executable, "-c", PROGRAM, str(self.hold), "broker"]
        for key, value in self.config.items():
            self.command += ["--override", f"{key}={value}"]
        Program.launch(self)


@pytest.fixture
def broker(rig: Rig) -> HoldingDisk:
    made = rig.own(HoldingDisk(rig.directory / "broker"))
    made.start()
    create_topic(made.bootstrap, "t", 1, {"flush.messages": "1"})
    return made


@pytest.fixture
def consumer(broker: HoldingDisk) -> Iterator[Consumer]:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "unused",
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    yield consumer
    consumer.close()


def read(consumer: Consumer) -> bytes | int:
    """The next record's value, or the offset at which there is no more for now."""
    message: Message | None = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    if error is None:
        value = message.value()
        assert value is not None
        return value
    assert error.name() == "_PARTITION_EOF", error
    offset = message.offset()
    assert offset is not None
    return offset


def test_what_is_not_on_disk_is_neither_acknowledged_nor_seen_nor_deleted(
    broker: HoldingDisk, consumer: Consumer
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    acknowledged: list[bytes | None] = []

    def produce(value: bytes) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None
            acknowledged.append(message.value())

        producer.produce("t", value, on_delivery=delivered)

    produce(b"durable")
    assert producer.flush(PATIENCE_S) == 0
    broker.hold.touch()
    produce(b"held")
    producer.poll(0)
    end = 'logfleet_partition_log_end_offset{topic="t"'
    broker.wait_until(lambda: broker.metric(end) == 2)
    assert [read(consumer), read(consumer)] == [b"durable", 1]
    too_far = admin.delete_records([TopicPartition("t", 0, 2)])[TopicPartition("t", 0)]
    refused = too_far.exception(PATIENCE_S)
    assert refused is not None
    assert refused.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    producer.poll(0)
    assert acknowledged == [b"durable"]
    broker.hold.unlink()
    assert producer.flush(PATIENCE_S) == 0
    assert acknowledged == [b"durable", b"held"]
    assert [read(consumer), read(consumer)] == [b"held", 2]
