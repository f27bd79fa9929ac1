"""Offsets of streams in the checkpoint and in a consumer group, which lag is watched by."""

import json

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Named
from logfleet.client.offsets import TopicPartition
from logfleet_spark.listener import GroupCommits
from logfleet_spark.offsets import from_json
from logfleet_spark.options import source_options
from logfleet_spark.stream_reader import StreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows

from e2e.harness.spark_topics import SOURCES, NumberedTopic, drained, wait_until

NORMALLY = ReadMaxRows(2**63 - 1)


@pytest.fixture
def topic(broker):
    """A new topic of three partitions."""
    return NumberedTopic(broker.bootstrap)


def test_the_checkpoint_has_the_form_of_sparks_source_and_the_group_its_offsets(
    spark, topic, tmp_path
):
    """An empty topic is a stream without rows.

    Its end is committed to the group once a later batch is planned.
    """
    group = {"kafka.group.id": f"g-{topic.name}"}
    assert drained(topic.stream(spark, **group), tmp_path) == []
    topic.produce(range(9))
    assert drained(topic.stream(spark, **group), tmp_path) == [9]
    offsets = sorted(
        (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    assert from_json(json.loads(offsets[-1].read_text().splitlines()[-1])) == {
        TopicPartition(topic.name, p): 3 for p in range(3)
    }
    # an engine commits a batch when it plans the next one, so another run commits this one's end
    topic.produce(range(9, 18))
    drained(topic.stream(spark, **group), tmp_path)
    assert all(
        offset >= 3 for offset in committed_offsets(topic, group["kafka.group.id"], range(3))
    )


def committed_offsets(topic, group, partitions):
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": group})
    found = consumer.committed([Named(topic.name, p) for p in partitions], timeout=10)
    consumer.close()
    return [tp.offset for tp in found]


def test_a_commit_to_the_group_leaves_out_partitions_that_are_gone(topic, caplog):
    """Of a topic that was deleted, and of one that was made anew with fewer."""
    deleted, fewer = NumberedTopic(topic.bootstrap), NumberedTopic(topic.bootstrap)
    group = f"g-{topic.name}"
    options = topic.named({"subscribePattern": "TOPIC", "kafka.group.id": group})
    reader = StreamReader(source_options(options, streaming=True))
    deleted.delete()
    fewer.delete()
    fewer.create(2)
    reader.commit({t.name: {"0": 1, "1": 1, "2": 1} for t in (topic, deleted, fewer)})
    assert committed_offsets(topic, group, range(3)) == [1, 1, 1]
    assert committed_offsets(fewer, group, range(2)) == [1, 1]
    (warning,) = caplog.messages
    assert warning.startswith(f"group {group}: ")
    for gone in [f"{deleted.name}-{p}" for p in range(3)] + [f"{fewer.name}-2"]:
        assert gone in warning
    reader.commit({deleted.name: {"0": 1}})
    assert len(caplog.messages) == 1, "what is missing still is not warned of again"
    reader.stop()


def test_a_group_with_a_member_gets_no_commits_and_stops_no_data(topic, caplog):
    """Spark's own source never commits."""
    topic.produce(range(3))
    group = f"g-{topic.name}"
    member = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": group})
    member.subscribe([topic.name])
    wait_until(lambda: member.poll(0.1) is not None or bool(member.assignment()))
    options = topic.named({"kafka.group.id": group, "startingOffsets": "earliest"})
    reader = StreamReader(source_options(options, streaming=True))
    reader.commit({topic.name: {"0": 1, "1": 1, "2": 1}})
    (warning,) = caplog.messages
    assert warning.startswith(f"group {group}: offsets are not committed: ")
    end = reader.latestOffset(reader.initialOffset(), NORMALLY)
    assert end[topic.name] == dict.fromkeys("012", 0)
    reader.stop()
    member.close()


@pytest.mark.parametrize("source", SOURCES)
def test_the_last_batch_is_committed_by_a_listener_whatever_the_source(
    spark, topic, tmp_path, source
):
    group = f"g-{topic.name}"
    listener = GroupCommits(topic.bootstrap, group, query=topic.name)
    spark.streams.addListener(listener)
    try:
        topic.produce(range(9))
        query = (
            topic.stream(spark, source)
            .writeStream.format("noop")
            .queryName(topic.name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        wait_until(lambda: committed_offsets(topic, group, range(3)) == [3, 3, 3])
    finally:
        spark.streams.removeListener(listener)
