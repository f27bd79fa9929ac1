"""Compacted topics on a running broker: exactly the latest values, as clients and Kafka's own tools see them, whatever is killed."""

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from e2e.harness.kafka import dump_log
from e2e.harness.processes import Broker, Rig

TOPIC = "latest"
KEYS = 100
VALUE_BYTES = 1000
SEGMENT_BYTES = 1 << 20
CONFIG = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "100"}
PATIENCE_S = 60.0

State = dict[bytes, bytes | None]


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def create(broker: Broker, name: str = TOPIC, **config: str) -> None:
    given = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=given)])[name].result(timeout=PATIENCE_S)


def alter(broker: Broker, resource: ConfigResource) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(timeout=PATIENCE_S)


class Writer:
    """Writes records with few keys, deletes some, and knows what every key's last acknowledged value is."""

    def __init__(self, broker: Broker, codec: str = "none", seed: int = 1) -> None:
        self.state: State = {}
        self.sent = 0
        self._dice = random.Random(seed)
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "batch.num.messages": 200,
                "linger.ms": 5,
            }
        )

    def write(self, count: int) -> None:
        """All of it acknowledged on return."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for _ in range(count):
            key = b"key %04d" % self._dice.randrange(KEYS)
            value = None if self._dice.random() < 0.05 else self._dice.randbytes(VALUE_BYTES)
            self.state[key] = value
            self._producer.produce(TOPIC, value, key, on_delivery=delivered)
            self.sent += 1
            self._producer.poll(0)
            if self.sent % 2000 == 0:
                assert self._producer.flush(PATIENCE_S) == 0
        assert self._producer.flush(PATIENCE_S) == 0
        assert failed == []

    @property
    def values(self) -> State:
        return {key: value for key, value in self.state.items() if value is not None}


def read(broker: Broker) -> tuple[State, int]:
    """What confluent-kafka and kafka-python make of the whole topic, which is the same; and how many records the latter read."""
    found, _ = _folded(_read_confluent(broker))
    again, count = _folded(_read_kafka_python(broker))
    assert found == again
    return found, count


def _folded(records: Iterator[tuple[bytes, bytes | None]]) -> tuple[State, int]:
    state: State = {}
    count = 0
    for key, value in records:
        state[key] = value
        count += 1
    return {key: value for key, value in state.items() if value is not None}, count


def _read_confluent(broker: Broker) -> Iterator[tuple[bytes, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "enable.auto.commit": False}
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=PATIENCE_S)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    deadline = time.monotonic() + PATIENCE_S
    offset = -1
    while consumer.position([TopicPartition(TOPIC, 0)])[0].offset < end:
        assert time.monotonic() < deadline, "the end of the topic was not reached"
        for message in consumer.consume(1000, timeout=0.1):
            assert message.error() is None
            key, next_offset = message.key(), message.offset()
            assert key is not None
            assert next_offset is not None
            assert next_offset > offset
            offset = next_offset
            yield key, message.value()
    consumer.close()


def _read_kafka_python(broker: Broker) -> Iterator[tuple[bytes, bytes | None]]:
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position(partition) < end:
        assert time.monotonic() < deadline, "the end of the topic was not reached"
        for records in consumer.poll(timeout_ms=100, max_records=5000).values():
            yield from ((record.key, record.value) for record in records)
    consumer.close()


def files(broker: Broker, suffix: str, partition: str = f"{TOPIC}-0") -> list[Path]:
    return sorted((broker.data / partition).glob(f"*{suffix}"))


def size(broker: Broker, partition: str = f"{TOPIC}-0") -> int:
    """Bytes."""
    return sum(found.st_size for found in looked_at(files(broker, ".log", partition)))


def looked_at(paths: list[Path]) -> Iterator[os.stat_result]:
    """Of files that the cleaner may delete after they were listed: of those that are still there."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path.stat()


def until_clean(broker: Broker) -> None:
    """Everything but the active segment and perhaps the one before is compacted."""
    wait_for(
        lambda: (
            broker.metric("logfleet_log_cleaner_cleanings_total")
            and size(broker) < 3 * SEGMENT_BYTES
        ),
        "the topic is compacted",
    )


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_compacted_topic_under_load_keeps_exactly_the_latest_values(rig: Rig, codec: str) -> None:
    broker = rig.broker(CONFIG)
    create(broker)
    writer = Writer(broker, codec)
    for _ in range(2):
        writer.write(4000)
        wait_for(lambda: size(broker) < 3 * SEGMENT_BYTES, "compaction keeps up")
        writer.write(200)
        assert read(broker)[0] == writer.values
    until_clean(broker)
    found, count = read(broker)
    assert found == writer.values
    assert count < writer.sent / 2
    assert broker.metric("logfleet_log_cleaner_failures_total") == 0
    for again in (broker.restart, broker.kill):
        again()
        if not broker.running:
            broker.start()
        assert read(broker)[0] == writer.values
    writer.write(10)
    assert read(broker)[0] == writer.values


def test_kafkas_dump_tool_reads_compacted_segments(rig: Rig) -> None:
    broker = rig.broker(CONFIG)
    create(broker)
    writer = Writer(broker, "lz4")
    writer.write(4000)
    until_clean(broker)
    broker.terminate()
    output = dump_log(files(broker, ".log"), "--print-data-log", "--deep-iteration")
    batches = re.findall(r"^baseOffset: .*$", output, re.MULTILINE)
    assert all("isvalid: true" in batch for batch in batches)
    assert any("deleteHorizonMs: OptionalLong[" in batch for batch in batches)
    keys = re.findall(r"^\| offset: (\d+) .* key: (key \d+) ", output, re.MULTILINE)
    offsets = [int(offset) for offset, _ in keys]
    assert offsets == sorted(set(offsets))
    assert {key.encode() for _, key in keys} == writer.state.keys()
    for suffix in (".index", ".timeindex"):
        indexes = files(broker, suffix)
        assert any(index.stat().st_size for index in indexes)
        dump_log(indexes, "--verify-index-only")
        dump_log(indexes)


def test_a_kill_in_the_middle_of_compaction_loses_nothing(rig: Rig) -> None:
    # so slow that the rounds over what is written below outlast the writes by seconds
    broker = rig.broker({**CONFIG, "log.cleaner.io.max.bytes.per.second": "1000000"})
    create(broker)
    writer = Writer(broker)
    for _ in range(2):
        writer.write(3000)
        wait_for(lambda: files(broker, ".log.cleaned"), "a segment is being written")
        broker.kill()
        killed_ns = time.time_ns()
        broker.start()
        begun = looked_at([*files(broker, ".cleaned"), *files(broker, ".swap")])
        # a finished file has the time of modification of what it was made from
        assert all(file.st_ctime_ns > killed_ns for file in begun), "left from before the kill"
        assert read(broker)[0] == writer.values
    fast = ConfigEntry(
        "log.cleaner.io.max.bytes.per.second",
        "1e12",
        incremental_operation=AlterConfigOpType.SET,
    )
    alter(broker, ConfigResource(ResourceType.BROKER, "1", incremental_configs=[fast]))
    until_clean(broker)
    assert read(broker)[0] == writer.values


def test_a_topic_that_becomes_compacted_is_compacted(rig: Rig) -> None:
    broker = rig.broker(CONFIG)
    create(broker, cleanup_policy="delete")
    writer = Writer(broker)
    writer.write(3000)
    before = size(broker)
    compact = ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
    )
    alter(broker, ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[compact]))
    until_clean(broker)
    assert size(broker) < before
    assert read(broker)[0] == writer.values


def test_the_offsets_topic_does_not_grow_for_ever(rig: Rig) -> None:
    offsets = {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "1048576"}
    broker = rig.broker({**CONFIG, **offsets})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 100, 1)])[TOPIC].result(timeout=PATIENCE_S)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    written = 0
    for number in range(1, 400):
        wanted = [TopicPartition(TOPIC, index, number) for index in range(100)]
        consumer.commit(offsets=wanted, asynchronous=False)
        written = number
    partition = "__consumer_offsets-0"
    wait_for(lambda: size(broker, partition) < 2.5 * SEGMENT_BYTES, "the offsets are compacted")
    for again in (broker.restart, broker.kill):
        again()
        if not broker.running:
            broker.start()
        wanted = [TopicPartition(TOPIC, index) for index in range(100)]
        found = consumer.committed(wanted, timeout=PATIENCE_S)
        assert [each.offset for each in found] == [written] * 100
    consumer.close()
