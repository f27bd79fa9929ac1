"""Client programs, the same against both brokers: what kafka-python, confluent-kafka and Kafka's own tools make of the answers."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import Side
from e2e.harness.kafka import try_tool

CORPUS: Final = Corpus("clients")
PATIENCE_S: Final = 60.0
TOOL_S_MAX: Final = 300.0
"""A JVM starts in a second, or in half a minute on a machine that is busy."""
TOOLS: Final = "org.apache.kafka.tools"
GROUPS_TOOL: Final = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


def outcome_of(action: Callable[[], Any]) -> Any:
    """What it returns, or the name of what it raises: texts are the brokers' own."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001  whatever a client raises is what is compared
        return f"{type(error).__name__} {getattr(error, 'errno', '')}"


# --- kafka-python


@CORPUS.case
def kafka_python_administers(side: Side) -> None:
    from kafka.admin import (
        ConfigResource,
        ConfigResourceType,
        KafkaAdminClient,
        NewPartitions,
        NewTopic,
    )

    name, other = side.own_name("a"), side.own_name("b")
    admin = KafkaAdminClient(bootstrap_servers=side.bootstrap)
    try:
        for topics in ([name], [name], [other, "no name!"]):
            wanted = [NewTopic(each, 2, 1) for each in topics]
            side.note("create", outcome_of(lambda: type(admin.create_topics(wanted)).__name__))  # noqa: B023
            side.await_changes()
        side.note("list", sorted(each for each in admin.list_topics() if each in {name, other}))
        grown = {name: NewPartitions(3)}
        side.note("grow", outcome_of(lambda: type(admin.create_partitions(grown)).__name__))
        side.await_changes()
        side.get(r.metadata(name, other))
        for each in admin.describe_topics([name, other]):
            side.note("describe", each)
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "5000000"})
        side.note("alter", outcome_of(lambda: type(admin.alter_configs([resource])).__name__))
        side.await_changes()
        side.note("deleted", outcome_of(lambda: type(admin.delete_topics([name])).__name__))
        side.note("again", outcome_of(lambda: type(admin.delete_topics(["no-such"])).__name__))
    finally:
        admin.close()


@CORPUS.case
def kafka_python_reads_in_a_group(side: Side) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = side.topic(partitions=2)
    producer = KafkaProducer(bootstrap_servers=side.bootstrap, acks="all")
    for number in range(20):
        sent = producer.send(
            topic.name,
            b"v%d" % number,
            key=b"k",
            partition=number % 2,
            timestamp_ms=r.T0 + number,
            headers=[("h", b"%d" % number)],
        ).get(PATIENCE_S)
        side.note("sent", [sent.partition, sent.offset, sent.timestamp])
    producer.close()
    consumer = KafkaConsumer(
        topic.name,
        bootstrap_servers=side.bootstrap,
        group_id=f"{side.prefix}group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        read: list[Any] = []
        end = time.monotonic() + PATIENCE_S
        while len(read) < 20 and time.monotonic() < end:
            for batch in consumer.poll(500).values():
                read += [[x.partition, x.offset, x.timestamp, x.key, x.value] for x in batch]
        side.note("read", sorted(read))
        consumer.commit()
        partitions = [TopicPartition(topic.name, index) for index in range(2)]
        side.note("committed", [consumer.committed(each) for each in partitions])
        side.note("ends", sorted(consumer.end_offsets(partitions).values()))
        side.note("begins", sorted(consumer.beginning_offsets(partitions).values()))
        times = consumer.offsets_for_times(dict.fromkeys(partitions, r.T0 + 7))
        side.note("times", sorted([found.offset, found.timestamp] for found in times.values()))
    finally:
        consumer.close()


# --- confluent-kafka


@CORPUS.case
def confluent_kafka_administers(side: Side) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    name = side.own_name("a")

    def done(futures: dict[Any, Any]) -> list[str]:
        return [_code(future) for future in futures.values()]

    side.note("create", done(admin.create_topics([NewTopic(name, 2, 1)])))
    side.await_changes()
    side.note("again", done(admin.create_topics([NewTopic(name, 2, 1)])))
    side.note("replicas", done(admin.create_topics([NewTopic(side.own_name("b"), 2, 9)])))
    side.note("grow", done(admin.create_partitions([NewPartitions(name, 4)])))
    side.note("shrink", done(admin.create_partitions([NewPartitions(name, 1)])))
    side.await_changes()
    known = admin.list_topics(name, timeout=PATIENCE_S).topics[name]
    side.note(
        "partitions", {n: [p.leader, p.replicas, p.isrs] for n, p in known.partitions.items()}
    )
    (described,) = admin.describe_configs([ConfigResource("topic", name)]).values()
    configs = described.result(PATIENCE_S).values()
    side.note("configs", {each.name: [each.value, each.is_read_only] for each in configs})
    group = f"{side.prefix}group"
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 7)])
    side.note("offsets", done(admin.alter_consumer_group_offsets([offsets])))
    for asked in (group, f"{group}-none"):
        request = [ConsumerGroupTopicPartitions(asked)]
        (future,) = admin.list_consumer_group_offsets(request).values()
        found = future.result(PATIENCE_S).topic_partitions or []
        side.note("listed", [[each.topic, each.partition, each.offset] for each in found])
    side.note("group", done(admin.delete_consumer_groups([group, f"{group}-none"])))
    side.note("delete", done(admin.delete_topics([name, f"{side.prefix}none"])))


def _code(future: Any) -> str:
    """The name of the error that the future ends with."""
    from confluent_kafka import KafkaException

    try:
        future.result(PATIENCE_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return "done"


@CORPUS.case
def confluent_kafka_writes_once_and_reads(side: Side) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = side.topic(partitions=2)
    told: list[Any] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": side.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
            }
        )
        for number in range(10):
            producer.produce(
                topic.name,
                b"value " * 20,
                b"%d" % number,
                number % 2,
                timestamp=r.T0 + number,
                on_delivery=lambda error, m: told.append([error, m.partition(), m.offset()]),
            )
        assert producer.flush(PATIENCE_S) == 0
    side.note("told", sorted(told, key=str))
    consumer = Consumer(
        {
            "bootstrap.servers": side.bootstrap,
            "group.id": f"{side.prefix}group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic.name])
        read: list[Any] = []
        end = time.monotonic() + PATIENCE_S
        while len(read) < 50 and time.monotonic() < end:
            read += [
                [each.partition(), each.offset(), each.timestamp()[1], each.key()]
                for each in consumer.consume(50, 0.5)
            ]
        side.note("read", sorted(read))
        consumer.commit(asynchronous=False)
        partitions = [TopicPartition(topic.name, index) for index in range(2)]
        found = consumer.committed(partitions, PATIENCE_S)
        side.note("committed", [[each.partition, each.offset] for each in found])
        side.note("ends", [consumer.get_watermark_offsets(each, PATIENCE_S) for each in partitions])
    finally:
        consumer.close()


# --- Kafka's console tools


def tool(
    side: Side, name: str, *arguments: str, stdin: str | None = None, at: str = "--bootstrap-server"
) -> None:
    """Run a tool; what it prints is compared without order, and how it ends."""
    command = [at, side.bootstrap, *arguments]
    done = try_tool(name, command, stdin=stdin, timeout_seconds=TOOL_S_MAX)
    lines = sorted(side.own_text(line) for line in done.stdout.splitlines() if line.strip())
    side.note(f"{name.rpartition('.')[2]} {_shown(arguments)}", [done.returncode, *lines])


def _shown(arguments: Sequence[str]) -> str:
    return " ".join(each for each in arguments if each.startswith("--"))


@CORPUS.case
def tools_for_topics(side: Side) -> None:
    name = side.own_name("t")
    command = f"{TOOLS}.TopicCommand"
    tool(side, command, "--create", "--topic", name, "--partitions", "2")
    side.await_changes()
    side.get(r.metadata(name))
    tool(side, command, "--create", "--topic", name)
    tool(side, command, "--alter", "--topic", name, "--partitions", "3")
    side.await_changes()
    tool(side, command, "--describe", "--topic", name)
    tool(side, command, "--describe", "--topic", f"{name}-none")
    about = ("--entity-type", "topics", "--entity-name", name)
    configs = "kafka.admin.ConfigCommand"
    tool(side, configs, "--alter", *about, "--add-config", "retention.ms=5000000")
    side.await_changes()
    tool(side, configs, "--describe", *about)
    tool(side, configs, "--alter", *about, "--add-config", "retention.ms=x")
    tool(side, command, "--delete", "--topic", name)


@CORPUS.case
def tools_for_records_and_groups(side: Side) -> None:
    name = side.topic("t", 2).name
    group = f"{side.prefix}group"
    keyed = ("--reader-property", "parse.key=true")
    lines = "".join(f"k{number}\tv{number}\n" for number in range(20))
    tool(side, f"{TOOLS}.ConsoleProducer", "--topic", name, *keyed, stdin=lines)
    tool(side, f"{TOOLS}.GetOffsetShell", "--topic", name)
    read = ("--topic", name, "--group", group, "--from-beginning", "--max-messages", "20")
    shown = ("--formatter-property", "print.key=true", "--timeout-ms", "30000")
    tool(side, f"{TOOLS}.consumer.ConsoleConsumer", *read, *shown)
    tool(side, GROUPS_TOOL, "--describe", "--group", group)
    reset = ("--reset-offsets", "--group", group, "--topic", name, "--execute")
    tool(side, GROUPS_TOOL, *reset, "--shift-by", "-3")
    tool(side, GROUPS_TOOL, *reset, "--to-earliest")
    tool(side, GROUPS_TOOL, "--describe", "--group", group, "--state")
    tool(side, GROUPS_TOOL, "--delete", "--group", group)
    tool(side, GROUPS_TOOL, "--describe", "--group", group)
