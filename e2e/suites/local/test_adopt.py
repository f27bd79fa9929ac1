"""`logfleet adopt`: our broker takes the place of an Apache Kafka 4.4.0 on its own directory, and Kafka takes it back."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from e2e.harness.command_line import PATIENCE_S, until
from e2e.harness.kafka import KafkaBroker, run_tool
from e2e.harness.processes import Broker

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(900)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "orders": (3, {"retention.ms": "-1", "segment.bytes": "1048576"}),
    "state": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "under_score.dot-dash": (2, {}),
}
GROUP = "readers"
CLEANED_TO = "cleaner-offset-checkpoint"
OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
KAFKA_CONFIG = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # so that topics are in a snapshot of the metadata, and others behind it
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "log.cleaner.backoff.ms": "100",
    # never while a test runs: what is flushed is not known to a start after a kill
    "log.flush.offset.checkpoint.interval.ms": "3600000",
}


def cli(*arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "logfleet", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, done
    return done


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]
    for future in admin.create_topics([*made, NewTopic("gone", 1, 1)]).values():
        future.result(PATIENCE_S)
    for codec in CODECS:
        produce(bootstrap, codec)
    admin.delete_topics(["gone"])["gone"].result(PATIENCE_S)
    commit(bootstrap, {("orders", 0): 7, ("orders", 2): 3, ("state", 0): 11})
    cli("quota", "set", "--client-id", "hasty", "producer_byte_rate=1048576", "-b", bootstrap)
    cli("config", "set", "cluster", "log.retention.ms=86400000", "-b", bootstrap)


def produce(bootstrap: str, codec: str) -> None:
    """12 records to each partition of every topic, with keys and headers, by a producer with an id."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec}
    )
    for name, (count, _) in TOPICS.items():
        for number in range(12 * count):
            producer.produce(
                name,
                key=f"k{number % 5}",
                value=f"{codec} {number} " * 30,
                partition=number % count,
                headers={"codec": codec},
            )
    assert producer.flush(PATIENCE_S) == 0


def commit(bootstrap: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(
        offsets=[TopicPartition(*key, offset, "as said") for key, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


def commit_in_transaction(bootstrap: str, offset: TopicPartition) -> None:
    """As an application does that reads and writes exactly once; here it writes nothing."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "sums"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    group = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([offset], group, PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    consumer.close()


def served(bootstrap: str) -> dict[str, Any]:
    """All that a client sees: ids, partitions, configs, records with their offsets and times, committed offsets, quotas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = sorted(admin.list_topics(timeout=PATIENCE_S).topics)
    described = admin.describe_topics(TopicCollection(names))
    topics = {}
    for name, future in described.items():
        found = future.result(PATIENCE_S)
        topics[name] = (str(found.topic_id), len(found.partitions))
    user = [name for name in names if name not in {OFFSETS, TRANSACTIONS}]
    keys = [(name, index) for name in user for index in range(topics[name][1])]
    return {
        "topics": topics,
        "configs": {name: configs(admin, name) for name in names},
        "records": {key: records(bootstrap, *key) for key in keys},
        "committed": committed(bootstrap, keys),
        "quotas": json.loads(cli("quota", "describe", "-b", bootstrap, "-o", "json").stdout),
    }


def configs(admin: AdminClient, name: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    entries = admin.describe_configs([resource])[resource].result(PATIENCE_S).values()
    return {each.name: each.value for each in entries if each.source == 1}


def records(bootstrap: str, topic: str, index: int) -> list[tuple[object, ...]]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})
    low, high = reader.get_watermark_offsets(TopicPartition(topic, index), timeout=PATIENCE_S)
    reader.assign([TopicPartition(topic, index, low)])
    found: list[tuple[object, ...]] = [(low, high)]
    while found[-1][0] != high - 1:
        message = reader.poll(PATIENCE_S)
        assert message is not None, (topic, index, len(found))
        assert message.error() is None, message.error()
        stamp = (message.timestamp(), message.key(), message.value(), message.headers())
        found.append((message.offset(), *stamp))
    reader.close()
    return found


def committed(bootstrap: str, keys: list[tuple[str, int]]) -> dict[tuple[str, int], object]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    rows = consumer.committed([TopicPartition(*key) for key in keys], timeout=PATIENCE_S)
    consumer.close()
    return {(row.topic, row.partition): (row.offset, row.metadata) for row in rows}


def files(data: str) -> dict[Path, bytes]:
    """All but the empty lock file, which Kafka takes away and whoever looks makes again."""
    found = (path for path in Path(data).rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in found}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "kafka", **KAFKA_CONFIG) as broker:
        yield broker


def test_what_kafka_left_is_served_by_our_broker(kafka: KafkaBroker, tmp_path: Path) -> None:
    """And back: what we wrote meanwhile is served by Kafka."""
    fill(kafka.bootstrap)
    commit_in_transaction(kafka.bootstrap, TopicPartition("orders", 2, 9))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for cut in admin.delete_records([TopicPartition("orders", 0, 5)]).values():
        cut.result(PATIENCE_S)
    kafka.stop()
    kafka.start()  # the leaders' epochs change
    theirs = served(kafka.bootstrap)
    assert theirs["committed"]["orders", 2][0] == 9
    data = kafka.config["log.dirs"]
    assert "stop it first" in cli("adopt", data, "--execute", code=1).stderr
    kafka.stop()

    for name in ("orders-0", "state-0", f"{OFFSETS}-0", "."):
        cli("dump", f"{data}/{name}")  # what Kafka writes is sound to us, its indexes too

    before = files(data)
    snapshots = (Path(data) / "__cluster_metadata-0").glob("*.checkpoint")
    assert any(not each.name.startswith("0" * 20) for each in snapshots)
    planned = json.loads(cli("adopt", data, "-o", "json").stdout)
    assert (planned["result"], planned["problems"]) == ("planned", [])
    assert {each["name"]: each["partitions"] for each in planned["topics"]} == {
        **{name: count for name, (count, _) in TOPICS.items()},
        OFFSETS: 4,
        TRANSACTIONS: 1,
    }
    assert files(data) == before, "a dry run changes nothing"
    for result in ("adopted", "unchanged"):
        done = cli("adopt", data, "--execute", "-o", "json")
        assert json.loads(done.stdout)["result"] == result

    ours = Broker(tmp_path / "ours", {"log.dirs": data})
    ours.start()
    assert served(ours.bootstrap) == theirs
    produce(ours.bootstrap, "zstd")
    commit(ours.bootstrap, {("orders", 1): 20})
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    told = run_tool(tool, ["--bootstrap-server", ours.bootstrap, "--describe", "--group", GROUP])
    assert "orders" in told
    grown = served(ours.bootstrap)
    ours.restart()
    assert served(ours.bootstrap) == grown
    ours.close()

    kafka.start()
    produce(kafka.bootstrap, "none")  # the ids of its producers are new
    again = served(kafka.bootstrap)
    for key, lines in grown["records"].items():
        low, high = lines[0]
        assert again["records"][key][0] == (low, high + 12)
        assert again["records"][key][1 : len(lines)] == lines[1:]
    assert {**again, "records": 0} == {**grown, "records": 0}


@pytest.mark.full
def test_a_kafka_that_was_killed_is_adopted_with_all_it_acknowledged(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    fill(kafka.bootstrap)
    theirs = served(kafka.bootstrap)
    kafka.kill()
    data = kafka.config["log.dirs"]
    assert "was not stopped in order" in cli("adopt", data, "--execute", "-o", "table").stdout
    ours = Broker(tmp_path / "ours", {"log.dirs": data})
    ours.start()
    assert served(ours.bootstrap) == theirs
    ours.close()


@pytest.mark.full
def test_a_kafka_killed_when_its_cleaner_had_left_a_gap_is_adopted_with_all_behind_it(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """Also if Kafka is started once more after the adoption, and killed again."""
    kafka.stop()
    kafka.start()  # its checkpoints are files without content until it is stopped
    leave_a_gap(kafka)
    data = Path(kafka.config["log.dirs"])
    kafka.kill()
    (data / CLEANED_TO).unlink()  # as if killed just before it was written
    cli("adopt", str(data), "--execute")
    kafka.start()
    theirs = records(kafka.bootstrap, "latest", 0)
    assert len(theirs) == 1 + 60 + 90 + 1
    kafka.kill()

    (data / "logfleet-metadata.db").unlink()
    cli("adopt", str(data), "--execute")
    ours = Broker(tmp_path / "ours", {"log.dirs": str(data)})
    ours.start()
    assert records(ours.bootstrap, "latest", 0) == theirs
    ours.close()


def leave_a_gap(kafka: KafkaBroker) -> None:
    """A compacted topic whose first segment has lost its end to the cleaner: its newest keys come again in the second one."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "1048576",
        "segment.ms": "60000",
    }
    admin.create_topics([NewTopic("latest", 1, 1, config=config)])["latest"].result(PATIENCE_S)
    # without an id, whose last batch would stay, if empty
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 10})
    begin_ms = round(time.time() * 1000) - 3 * 3_600_000
    checkpoint = Path(kafka.config["log.dirs"]) / CLEANED_TO
    for hour, keys in enumerate((range(90), range(60, 150), range(200, 201))):
        for key in keys:  # each round fills a segment, too large for two of them to become one
            stamp = begin_ms + hour * 3_600_000
            producer.produce("latest", key=f"k{key}", value=bytes(10_000), timestamp=stamp)
        assert producer.flush(PATIENCE_S) == 0
    until(lambda: checkpoint.exists() and "latest 0 180" in checkpoint.read_text().splitlines())
