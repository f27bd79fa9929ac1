"""Kafka's own console tools, which are Java clients: produce, consume, describe, in the ways people use them."""

import pytest

from e2e.harness.kafka import run_tool
from e2e.harness.processes import Broker, Rig

TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def broker(rig: Rig) -> Broker:
    return rig.broker()


def tool(broker: Broker, name: str, *arguments: str, stdin: str | None = None) -> str:
    main = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
    return run_tool(main, ["--bootstrap-server", broker.bootstrap, *arguments], stdin=stdin)


def consume(broker: Broker, topic: str, count: int, *arguments: str) -> list[str]:
    show = [f"--formatter-property=print.{what}=true" for what in ("key", "headers", "timestamp")]
    return tool(
        broker,
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--max-messages", str(count)),
        *("--timeout-ms", "30000", *show, *arguments),
    ).splitlines()


@pytest.mark.timeout(300)
def test_console_tools_move_records_with_every_codec(broker):
    """Keys, headers and timestamps arrive as sent, whatever compresses them."""
    tool(broker, "TopicCommand", "--create", "--topic", "codecs", "--partitions", "1")
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        lines = [f"h:{codec}\tkey-{codec}-{n}\tvalue {codec} {n}" for n in range(20)]
        sent += lines
        tool(
            broker,
            "ConsoleProducer",
            *("--topic", "codecs", "--compression-codec", codec),
            *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
            stdin="\n".join(lines) + "\n",
        )
    got = [line.split("\t") for line in consume(broker, "codecs", len(sent))]
    assert ["\t".join(fields[1:]) for fields in got] == sent
    assert all(fields[0].startswith("CreateTime:1") for fields in got)


@pytest.mark.timeout(300)
def test_a_group_goes_on_where_it_was_and_its_lag_is_told(broker):
    tool(broker, "TopicCommand", "--create", "--topic", "grouped", "--partitions", "2")
    lines = "".join(f"{n}\n" for n in range(30))
    tool(broker, "ConsoleProducer", "--topic", "grouped", stdin=lines)
    first = consume(broker, "grouped", 10, "--group", "g")
    second = consume(broker, "grouped", 20, "--group", "g")
    values = sorted(int(line.rsplit("\t", 1)[1]) for line in first + second)
    assert values == list(range(30))
    tool(broker, "ConsoleProducer", "--topic", "grouped", stdin="30\n31\n")
    described = tool(
        broker, "consumer.group.ConsumerGroupCommand", "--describe", "--group", "g"
    ).splitlines()
    rows = [
        dict(zip(described_header(described), line.split(), strict=False))
        for line in body(described)
    ]
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 30
    assert sum(int(row["LAG"]) for row in rows) == 2
    assert "g" in tool(broker, "consumer.group.ConsumerGroupCommand", "--list").split()


def described_header(lines: list[str]) -> list[str]:
    return next(line.split() for line in lines if line.startswith("GROUP"))


def body(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("g ")]


@pytest.mark.timeout(300)
def test_topics_are_created_described_grown_configured_and_deleted(broker):
    tool(broker, "TopicCommand", "--create", "--topic", "t", "--config", "retention.ms=1234567")
    tool(broker, "TopicCommand", "--alter", "--topic", "t", "--partitions", "3")
    described = tool(broker, "TopicCommand", "--describe", "--topic", "t")
    assert "PartitionCount: 3" in described
    assert "retention.ms=1234567" in described
    assert described.count("Leader: 1") == 3
    entity = ("--entity-type", "topics", "--entity-name", "t")
    configs = "kafka.admin.ConfigCommand"
    tool(broker, configs, *entity, "--alter", "--add-config", "cleanup.policy=[compact,delete]")
    tool(broker, configs, *entity, "--alter", "--delete-config", "retention.ms")
    shown = tool(broker, configs, *entity, "--describe")
    assert "cleanup.policy=compact,delete" in shown
    assert "retention.ms" not in shown
    tool(broker, "TopicCommand", "--delete", "--topic", "t")
    assert "t" not in tool(broker, "TopicCommand", "--list").split()


@pytest.mark.timeout(300)
def test_offsets_and_versions_are_told_as_kafka_tells_them(broker):
    tool(broker, "TopicCommand", "--create", "--topic", "o", "--partitions", "1")
    tool(broker, "ConsoleProducer", "--topic", "o", stdin="a\nb\nc\n")
    assert tool(broker, "GetOffsetShell", "--topic", "o").split() == ["o:0:3"]
    assert tool(broker, "GetOffsetShell", "--topic", "o", "--time", "earliest").split() == ["o:0:0"]
    segment = broker.data / "o-0" / "00000000000000000000.log"
    dumped = run_tool(f"{TOOLS}.DumpLogSegments", ["--files", str(segment), "--print-data-log"])
    assert [
        line.rsplit("payload: ", 1)[1] for line in dumped.splitlines() if "payload:" in line
    ] == [
        "a",
        "b",
        "c",
    ]
    assert "isvalid: false" not in dumped
