"""Kafka Streams, whose programs ask more of a broker than plain clients do: topics of their own, changelogs, deleted records.

A topology counts words: it writes them to a repartition topic, counts in a store with a changelog and a standby, and purges what it
has read from the repartition topic by DeleteRecords. Groups are of the classic protocol, with Streams' own assignor.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from e2e.harness.clients import ConfluentClient
from e2e.harness.command_line import config_of, until
from e2e.harness.jvm import Jvm
from e2e.harness.processes import Broker, Rig
from e2e.harness.topics import create_topic, ends, held

APPLICATION = "count-words"
STORE = "words-seen"
REPARTITION = f"{APPLICATION}-by-word-repartition"
CHANGELOG = f"{APPLICATION}-{STORE}-changelog"
PARTITIONS = 3
PATIENCE_S = 60.0
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)


class Words:
    """One instance of the program, in a JVM of its own."""

    def __init__(self, jvm: Jvm, bootstrap: str, directory: Path) -> None:
        kafka = jvm.classes.org.apache.kafka
        serdes, streams = kafka.common.serialization.Serdes, kafka.streams
        text = serdes.String()
        builder = streams.StreamsBuilder()
        words = builder.stream("words", getattr(streams.kstream.Consumed, "with")(text, text))
        spread = getattr(streams.kstream.Repartitioned, "as")("by-word")
        store = streams.state.Stores.inMemoryKeyValueStore(STORE)
        counts = words.repartition(spread.withNumberOfPartitions(PARTITIONS)).groupByKey()
        counts = counts.count(getattr(streams.kstream.Materialized, "as")(store))
        produced = getattr(streams.kstream.Produced, "with")(text, serdes.Long())
        counts.toStream().to("counts", produced)
        default = "org.apache.kafka.common.serialization.Serdes$StringSerde"
        config = {
            "application.id": APPLICATION,
            "bootstrap.servers": bootstrap,
            "state.dir": str(directory),
            "default.key.serde": default,
            "default.value.serde": default,
            "num.standby.replicas": "1",
            "commit.interval.ms": "200",
            "repartition.purge.interval.ms": "500",
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "500",
            "consumer.auto.offset.reset": "earliest",
        }
        self._program: Any = streams.KafkaStreams(builder.build(), jvm.properties(config))

    def start(self) -> None:
        self._program.start()

    def state(self) -> str:
        """KafkaStreams.State."""
        return str(self._program.state().toString())

    def close(self) -> None:
        """In order: what it has done is committed."""
        self._program.close()


@pytest.fixture
def instances(rig: Rig, tmp_path: Path) -> Iterator[tuple[Broker, Words, Words]]:
    broker = rig.broker()
    with contextlib.ExitStack() as stack:
        made = []
        for name in ("first", "second"):
            jvm = stack.enter_context(Jvm("apps", tmp_path / f"{name}.log", QUIET))
            made.append(Words(jvm, broker.bootstrap, tmp_path / name))
        yield broker, made[0], made[1]


@pytest.mark.timeout(400)
def test_counts_are_exact_while_instances_come_and_go(
    instances: tuple[Broker, Words, Words],
) -> None:
    """What an instance has counted, the other knows when it takes over: from its standby, or from the changelog."""
    broker, first, second = instances
    create_topic(broker.bootstrap, "counts", PARTITIONS)
    create_topic(broker.bootstrap, "words", PARTITIONS)
    written: Counter[str] = Counter()
    write(broker, written, 3000)
    first.start()
    until(lambda: counted(broker) == written)
    second.start()
    until(lambda: {first.state(), second.state()} == {"RUNNING"})
    write(broker, written, 3000)
    until(lambda: counted(broker) == written)
    first.close()
    assert first.state() == "NOT_RUNNING"
    write(broker, written, 3000)
    until(lambda: counted(broker) == written)
    # Of the repartition topic nothing is kept that was read, and the changelog is one: each has what Streams asked for.
    until(lambda: purged(broker))
    assert config_of(broker, CHANGELOG)["cleanup.policy"] == "compact"
    assert config_of(broker, REPARTITION)["retention.ms"] == "-1"
    broker.restart()
    write(broker, written, 300)
    until(lambda: counted(broker) == written)
    second.close()
    assert second.state() == "NOT_RUNNING"


def write(broker: Broker, written: Counter[str], count: int) -> None:
    """`count` words more, which `written` counts."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        word = f"word-{number * number % 97}"
        producer.produce("words", key=word, value=str(number))
        written[word] += 1
    assert producer.flush(PATIENCE_S) == 0, "not everything was acknowledged in time"


def counted(broker: Broker) -> Counter[str]:
    """What the program has said last of each word."""
    found: Counter[str] = Counter()
    said = held(broker.bootstrap, "counts")
    for record in ConfluentClient().read(broker.bootstrap, "counts", said):
        assert record.key is not None
        assert record.value is not None
        found[record.key.decode()] = int.from_bytes(record.value, "big")
    return found


def purged(broker: Broker) -> bool:
    """Whether every partition of the repartition topic had records, and has none."""
    return all(low == high > 0 for low, high in ends(broker.bootstrap, REPARTITION))
