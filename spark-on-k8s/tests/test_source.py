import json
import uuid

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

SOURCES = ("logfleet", "kafka")


@pytest.fixture
def topic(broker):
    """A new topic of three partitions."""
    name = f"t-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(10)
    return name


def produce(broker, topic, numbers, **more):
    """Record n goes to partition n % 3, with n ms as its timestamp plus a million."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in numbers:
        producer.produce(
            topic, key=f"k{n}", value=f"v{n}", partition=n % 3, timestamp=1_000_000 + n, **more
        )
    assert producer.flush(20) == 0


def reader(spark, broker, topic, source="logfleet", **options):
    return (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .options(**options)
    )


def rows(frame):
    return sorted(
        (r["partition"], r["offset"], bytes(r["key"]), bytes(r["value"])) for r in frame.collect()
    )


def expected(numbers):
    return sorted((n % 3, n // 3, f"k{n}".encode(), f"v{n}".encode()) for n in numbers)


@pytest.mark.parametrize("source", SOURCES)
def test_a_batch_reads_every_record_as_it_was_sent(spark, broker, topic, source):
    produce(broker, topic, range(300), headers=[("h", b"1"), ("h", None)])
    frame = reader(spark, broker, topic, source, includeHeaders="true").load()
    assert rows(frame) == expected(range(300))
    row = frame.where("partition = 1 AND offset = 2").collect()[0]
    assert row["topic"] == topic
    assert row["timestamp"].timestamp() == 1_000.007
    assert row["timestampType"] == 0
    assert [(h["key"], h["value"]) for h in row["headers"]] == [("h", b"1"), ("h", None)]


def test_both_sources_have_the_same_schema(spark, broker, topic):
    for headers in ("true", "false"):
        ours, theirs = (
            reader(spark, broker, topic, source, includeHeaders=headers).load().schema
            for source in SOURCES
        )
        assert [(f.name, f.dataType) for f in ours] == [(f.name, f.dataType) for f in theirs]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "options, numbers",
    [
        (
            {
                "startingOffsets": '{"TOPIC": {"0": 10, "1": -2, "2": 99}}',
                "endingOffsets": '{"TOPIC": {"0": 20, "1": 5, "2": -1}}',
            },
            [*range(30, 60, 3), *range(1, 15, 3), 299],
        ),
        ({"startingTimestamp": "1000150", "endingTimestamp": "1000200"}, range(150, 200)),
        ({"startingTimestamp": "1000290", "endingTimestamp": "9000000"}, range(290, 300)),
    ],
    ids=["offsets", "timestamps", "end-beyond-the-last"],
)
def test_bounds_mean_what_they_mean_in_sparks_source(
    spark, broker, topic, source, options, numbers
):
    produce(broker, topic, range(300))
    named = {key: value.replace("TOPIC", topic) for key, value in options.items()}
    assert rows(reader(spark, broker, topic, source, **named).load()) == expected(numbers)


@pytest.mark.parametrize("source", SOURCES)
def test_a_start_after_the_last_record_is_an_error_unless_latest_is_asked_for(
    spark, broker, topic, source
):
    produce(broker, topic, range(3))
    late = {"startingTimestamp": "9000000"}
    with pytest.raises(Exception, match="imestamp"):
        reader(spark, broker, topic, source, **late).load().collect()
    frame = reader(
        spark, broker, topic, source, **late, startingOffsetsByTimestampStrategy="latest"
    ).load()
    assert frame.collect() == []


def test_more_tasks_than_partitions_read_the_same(spark, broker, topic):
    produce(broker, topic, range(300))
    frame = reader(spark, broker, topic, minPartitions="8").load()
    assert frame.rdd.getNumPartitions() >= 8
    assert rows(frame) == expected(range(300))


def test_a_topic_that_is_not_there_is_named(spark, broker):
    with pytest.raises(Exception, match="topic nowhere does not exist"):
        reader(spark, broker, "nowhere").load().collect()


def stream(spark, broker, topic, out, checkpoint, source="logfleet", **options):
    """Run a query over what there is now; returns its progress by micro-batch."""
    query = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [p for p in query.recentProgress if p["numInputRows"]]


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_gives_each_record_once_over_restarts(spark, broker, topic, tmp_path, source):
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    produce(broker, topic, range(300))
    first = stream(spark, broker, topic, out, checkpoint, source, maxOffsetsPerTrigger="90")
    assert len(first) == 4
    assert all(p["numInputRows"] <= 90 for p in first)
    produce(broker, topic, range(300, 420))
    second = stream(spark, broker, topic, out, checkpoint, source)
    assert [p["numInputRows"] for p in second] == [120]
    assert stream(spark, broker, topic, out, checkpoint, source) == []
    assert rows(spark.read.parquet(str(out))) == expected(range(420))


def test_a_checkpoint_holds_offsets_in_the_form_of_sparks_source(spark, broker, topic, tmp_path):
    produce(broker, topic, range(9))
    stream(spark, broker, topic, tmp_path / "out", tmp_path / "checkpoint")
    last = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(last) == {topic: {"0": 3, "1": 3, "2": 3}}


def test_a_streams_offsets_are_committed_to_its_group(spark, broker, topic, tmp_path):
    produce(broker, topic, range(9))
    group = {"kafka.group.id": f"g-{topic}"}
    stream(spark, broker, topic, tmp_path / "out", tmp_path / "checkpoint", **group)
    # an engine commits a batch when it plans the next one, so a second run commits the first one's end
    produce(broker, topic, range(9, 12))
    stream(spark, broker, topic, tmp_path / "out", tmp_path / "checkpoint", **group)
    from confluent_kafka import TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group["kafka.group.id"]}
    )
    committed = consumer.committed([TopicPartition(topic, p) for p in range(3)], timeout=10)
    consumer.close()
    assert all(tp.offset >= 3 for tp in committed)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_become_records(spark, broker, topic, source):
    frame = spark.createDataFrame(
        [(f"k{n}", f"v{n}", n % 3) for n in range(300)], "key STRING, value STRING, partition INT"
    )
    (
        frame.write.format(source)
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", topic)
        .mode("append")
        .save()
    )
    got = rows(reader(spark, broker, topic).load())
    assert sorted((p, k, v) for p, _, k, v in got) == sorted(
        (n % 3, f"k{n}".encode(), f"v{n}".encode()) for n in range(300)
    )


def test_a_stream_writes_its_rows_to_a_topic(spark, broker, topic, tmp_path):
    produce(broker, topic, range(30))
    out = f"out-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(out, 1, 1)])[out].result(10)
    query = (
        spark.readStream.format("logfleet")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("logfleet")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", out)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = reader(spark, broker, out).load().collect()
    assert sorted(bytes(r["value"]) for r in written) == sorted(f"v{n}".encode() for n in range(30))


def test_a_frame_without_a_value_column_is_refused_by_name(spark, broker, topic):
    frame = spark.createDataFrame([("a",)], "text STRING")
    writer = frame.write.format("logfleet").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(Exception, match="column value: missing"):
        writer.option("topic", topic).mode("append").save()
