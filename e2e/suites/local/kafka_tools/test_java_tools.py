"""Kafka's own console tools, which are Java clients: produce, consume, describe, in the ways people use them."""

import json

import pytest
from logfleet.testing import Broker

from e2e.harness.kafka import run_tool, try_tool

TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def broker(kafka_broker: Broker) -> Broker:
    return kafka_broker


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
@pytest.mark.full
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


def refusal(broker: Broker, name: str, *arguments: str) -> str:
    """What a tool says that fails."""
    main = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
    done = try_tool(main, ["--bootstrap-server", broker.bootstrap, *arguments])
    assert done.returncode != 0, done
    return done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_records_disks_leaders_and_replicas_are_administered(broker, tmp_path):
    """As they do with Apache Kafka, whose tools say the same words about a node of its own."""
    tool(broker, "TopicCommand", "--create", "--topic", "t", "--partitions", "1")
    tool(broker, "ConsoleProducer", "--topic", "t", stdin="a\nb\nc\n")
    plan = tmp_path / "delete.json"
    rows = [{"topic": "t", "partition": 0, "offset": 2}]
    plan.write_text(json.dumps({"partitions": rows, "version": 1}))
    deleted = tool(broker, "DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert "partition: t-0\tlow_watermark: 2" in deleted
    plan.write_text(json.dumps({"partitions": [{**rows[0], "offset": 9}], "version": 1}))
    deleted = tool(broker, "DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert "OffsetOutOfRangeException" in deleted
    described = tool(broker, "LogDirsCommand", "--describe", "--topic-list", "t").splitlines()
    (directory,) = json.loads(described[-1])["brokers"][0]["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(broker.data), None)
    size = sum(file.stat().st_size for file in (broker.data / "t-0").glob("*.log"))
    assert directory["partitions"][0]["size"] == size
    preferred = ("--election-type", "PREFERRED", "--topic", "t", "--partition", "0")
    said = tool(broker, "LeaderElectionCommand", *preferred)
    assert "Valid replica already elected for partitions t-0" in said


@pytest.mark.timeout(900)
@pytest.mark.full
def test_reassignments_are_verified_and_refused(broker, tmp_path):
    tool(broker, "TopicCommand", "--create", "--topic", "t", "--partitions", "1")
    reassign, plan = "reassign.ReassignPartitionsCommand", tmp_path / "plan.json"
    row = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    given = ("--reassignment-json-file", str(plan))
    assert "partition t-0 is completed" in tool(broker, reassign, "--verify", *given)
    assert "Successfully started" in tool(broker, reassign, "--execute", *given)
    assert tool(broker, reassign, "--list").strip() == "No partition reassignments found."
    plan.write_text(json.dumps({"version": 1, "partitions": [{**row, "replicas": [2]}]}))
    assert "Unknown broker id 2" in refusal(broker, reassign, "--execute", *given)


@pytest.mark.timeout(900)
@pytest.mark.full
def test_offsets_configurations_and_permissions_are_administered(broker):
    tool(broker, "TopicCommand", "--create", "--topic", "t", "--partitions", "1")
    tool(broker, "ConsoleProducer", "--topic", "t", stdin="a\nb\nc\n")
    groups, one = "consumer.group.ConsumerGroupCommand", ("--group", "g", "--topic", "t")

    def offset(*how: str) -> str:
        said = tool(broker, groups, "--reset-offsets", *one, *how)
        (row,) = [line.split() for line in said.splitlines() if line.startswith("g ")]
        return row[-1]

    assert offset("--to-earliest", "--execute") == "0"
    assert offset("--shift-by", "2", "--execute") == "2"
    assert offset("--to-latest", "--dry-run") == "3"
    deleted = tool(broker, groups, "--delete-offsets", *one)
    assert "Request succeeded for deleting offsets" in deleted
    missing = tool(broker, groups, "--delete-offsets", "--group", "nobody", "--topic", "t")
    assert "Error: The group id does not exist." in missing
    configs, group = "kafka.admin.ConfigCommand", ("--entity-type", "groups", "--entity-name", "g")
    key = "consumer.session.timeout.ms"
    tool(broker, configs, *group, "--alter", "--add-config", f"{key}=50000")
    described = tool(broker, configs, "--entity-type", "groups", "--describe")
    assert f"Dynamic configs for group g are:\n  {key}=50000" in described
    said = refusal(broker, "AclCommand", "--list")
    assert "No Authorizer is configured on the broker" in said
