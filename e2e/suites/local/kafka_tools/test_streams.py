"""Kafka Streams, whose programs ask more of a broker than plain clients do: topics of their own, changelogs, deleted records, transactions.

A topology counts words: it writes them to a repartition topic, counts in a store with a changelog and a standby, and purges what it
has read from the repartition topic by DeleteRecords. Groups are of the classic protocol, with Streams' own assignor.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

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
EXACTLY_ONCE = {
    "processing.guarantee": "exactly_once_v2",
    # each count is written, also one that is soon replaced
    "statestore.cache.max.bytes": "0",
    # an instance that is killed leaves a transaction open, which ends by its timeout
    "commit.interval.ms": "1000",
    "producer.transaction.timeout.ms": "3000",
    "consumer.session.timeout.ms": "3000",
}
QUICK_TIMEOUTS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    # an instance that was killed is missed soon
    "group.min.session.timeout.ms": "3000",
}
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)


NOTHING: Mapping[str, str] = MappingProxyType({})


class Words:
    """One instance of the program, in a JVM of its own."""

    def __init__(
        self, jvm: Jvm, bootstrap: str, directory: Path, given: Mapping[str, str] = NOTHING
    ) -> None:
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
            **given,
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


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.full)])
def test_each_word_is_counted_exactly_once_while_instances_are_killed(
    rig: Rig, tmp_path: Path, kills: int
) -> None:
    """Of each word, readers of committed records get 1, 2, 3 and so on, none of them twice.

    Each instance is killed while it has a transaction open on its output.
    """
    broker = rig.broker(QUICK_TIMEOUTS)
    create_topic(broker.bootstrap, "counts", PARTITIONS)
    create_topic(broker.bootstrap, "words", PARTITIONS)
    written: Counter[str] = Counter()
    for number in range(kills + 1):
        with Jvm("apps", tmp_path / f"{number}.log", QUIET) as jvm:
            instance = Words(jvm, broker.bootstrap, tmp_path / str(number), EXACTLY_ONCE)
            instance.start()
            if number == kills:
                write(broker, written, 1000)
                until(lambda: sum(map(len, committed(broker).values())) >= written.total())
                instance.close()
            else:
                kill_amid_a_transaction(broker, written, jvm)
    expected = {word: [*range(1, count + 1)] for word, count in written.items()}
    assert committed(broker) == expected


def kill_amid_a_transaction(broker: Broker, written: Counter[str], jvm: Jvm) -> None:
    """Write words until the instance is at work on them; end it when some counts are committed and some are not."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (committed(broker) and transaction_is_open(broker)):
        assert time.monotonic() < give_up_at, "the instance counts nothing"
        write(broker, written, 100)
    jvm.kill()
    assert transaction_is_open(broker), "it was committed before the instance ended"


def transaction_is_open(broker: Broker) -> bool:
    """Whether the topic of counts has records that are not committed yet."""
    stable = ends(broker.bootstrap, "counts", "read_committed")
    return stable != ends(broker.bootstrap, "counts")


def committed(broker: Broker) -> dict[str, list[int]]:
    """Return the counts of each word that a reader of committed records gets, in order."""
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "unused",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    found: dict[str, list[int]] = {}
    left = set(range(PARTITIONS))
    give_up_at = time.monotonic() + PATIENCE_S
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition("counts", each, OFFSET_BEGINNING) for each in left])
        while left:
            assert time.monotonic() < give_up_at, f"no end of {left}"
            for message in consumer.consume(1000, 0.1):
                if (error := message.error()) is not None:
                    assert error.name() == "_PARTITION_EOF", error
                    left.discard(message.partition())
                else:
                    word, count = message.key(), message.value()
                    assert word is not None
                    assert count is not None
                    found.setdefault(word.decode(), []).append(int.from_bytes(count, "big"))
    return found


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
