"""Batch reads and writes. Each choice of options is put to Spark's own connector too, on the same topic."""

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from logfleet.client.errors import KafkaError
from logfleet.client.offsets import TopicPartition
from logfleet_spark.cluster import FIRST_BYTES, STALLED_POLLS_MAX, Cluster
from logfleet_spark.offsets import OffsetRange

from e2e.harness.spark_topics import (
    SOURCES,
    T0,
    WITHIN_S,
    NumberedTopic,
    expected,
    rows,
    wait_until,
)


@pytest.fixture
def topic(broker):
    """A new topic of three partitions."""
    return NumberedTopic(broker.bootstrap)


@pytest.fixture(scope="module")
def full(broker):
    """300 records; no test changes it."""
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(300))
    return topic


@pytest.mark.parametrize("source", SOURCES)
def test_a_batch_reads_every_record_as_it_was_sent(spark, topic, source):
    topic.produce(range(300), headers=[("h", b"1"), ("h", None)])
    frame = topic.batch(spark, source, includeHeaders="true")
    assert rows(frame) == expected(range(300))
    row = frame.where("partition = 1 AND offset = 2").collect()[0]
    assert row["topic"] == topic.name
    assert row["timestamp"].timestamp() == (T0 + 7) / 1000
    assert row["timestampType"] == 0
    assert [(h["key"], h["value"]) for h in row["headers"]] == [("h", b"1"), ("h", None)]


@pytest.mark.parametrize("headers", ["true", "false"])
def test_both_sources_have_the_same_schema(spark, topic, headers):
    ours, theirs = (topic.batch(spark, source, includeHeaders=headers).schema for source in SOURCES)
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
        (
            {
                "startingOffsetsByTimestamp": '{"TOPIC": {"0": 1000150, "1": 0, "2": 1000299}}',
                "endingOffsetsByTimestamp": '{"TOPIC": {"0": 1000160, "1": 1000005, "2": 9999999}}',
            },
            [150, 153, 156, 159, 1, 4, 299],
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"TOPIC": {"0": 9999999, "1": 1000298, "2": 9999999}}',
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [298],
        ),
        ({"startingTimestamp": "9000000", "startingOffsetsByTimestampStrategy": "latest"}, []),
        (
            {
                "startingTimestamp": "1000298",
                "startingOffsetsByTimestamp": '{"TOPIC": {"0": 0, "1": 0, "2": 0}}',
                "startingOffsets": "earliest",
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [298, 299],
        ),
        ({"assign": '{"TOPIC": [0, 2]}'}, [n for n in range(300) if n % 3 != 1]),
        ({"assign": '{"TOPIC": [1]}', "startingOffsets": '{"TOPIC": {"1": 98}}'}, [295, 298]),
        ({"subscribePattern": "^TOPIC$|never"}, range(300)),
        ({"subscribePattern": " PART "}, range(300)),
        ({"subscribe": " TOPIC , TOPIC "}, range(300)),
        ({"minPartitions": "8"}, range(300)),
        ({"failOnDataLoss": "false"}, range(300)),
    ],
    ids=[
        "offsets",
        "timestamps",
        "end-beyond-the-last",
        "timestamps-by-partition",
        "latest-if-unmatched",
        "nothing-that-young",
        "one-timestamp-wins",
        "assigned",
        "assigned-from",
        "pattern",
        "pattern-of-a-part",
        "named-twice",
        "min-partitions",
        "accept-loss",
    ],
)
def test_options_mean_what_they_mean_in_sparks_source(spark, full, source, options, numbers):
    assert rows(full.batch(spark, source, **options)) == expected(numbers)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "options, why",
    [
        ({"startingTimestamp": "9000000"}, "imestamp"),
        ({"startingOffsetsByTimestamp": '{"TOPIC": {"0": 0, "1": 0}}'}, "(?s)pecif|named"),
        ({"startingOffsets": '{"TOPIC": {"0": 0, "1": 0}}'}, "(?s)pecif|named"),
        ({"startingOffsets": "latest"}, "latest"),
        ({"endingOffsets": "earliest"}, "(?i)ending"),
        ({"subscribe": "nowhere"}, "nowhere|UnknownTopicOrPartition"),
        ({"startingOffsets": '{"TOPIC": {"0": 500, "1": 0, "2": 0}}'}, "(?i)start"),
        (
            {
                "startingOffsets": '{"TOPIC": {"0": 9, "1": 0, "2": 0}}',
                "endingOffsets": '{"TOPIC": {"0": 5, "1": 1, "2": 1}}',
            },
            "(?i)start",
        ),
    ],
    ids=[
        "start-too-young",
        "not-all-timestamps",
        "not-all-offsets",
        "start-latest",
        "end-earliest",
        "no-such-topic",
        "start-after-the-last",
        "start-after-the-end",
    ],
)
def test_what_sparks_source_refuses_is_refused(spark, full, source, options, why):
    with pytest.raises(Exception, match=why):
        full.batch(spark, source, **options).collect()


@pytest.mark.parametrize(
    "options, why",
    [
        ({"assign": '{"TOPIC": [0, 7]}'}, r"assign: partition t-\S+-7 does not exist"),
        ({"subscribe": "nowhere"}, "topic nowhere does not exist"),
        # Spark's source waits two minutes for it
        ({"endingOffsets": '{"TOPIC": {"0": 101, "1": 1, "2": 1}}'}, "wanted, ends at 100 now"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger: only for streams"),
        ({"startingOfsets": "earliest"}, "startingofsets: no such option"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism: not supported"),
    ],
)
def test_what_sparks_source_passes_over_is_refused_here(spark, full, options, why):
    with pytest.raises(Exception, match=why):
        full.batch(spark, **options).collect()


def test_an_end_beyond_the_last_record_is_the_end_if_loss_is_accepted(spark, full):
    beyond = '{"TOPIC": {"0": 101, "1": 1, "2": 0}}'
    frame = full.batch(spark, endingOffsets=beyond, failOnDataLoss="false")
    assert rows(frame) == expected([*range(0, 300, 3), 1])


def test_client_options_reach_the_broker(spark, full):
    """A limit of one byte makes every fetch as small as can be, and the result the same."""
    small = {"kafka.max.partition.fetch.bytes": "1", "kafka.fetch.max.bytes": "1"}
    assert rows(full.batch(spark, **small, **{"kafka.client.id": "tests"})) == expected(range(300))


def test_small_ranges_share_a_task_unless_more_are_asked_for(spark, full):
    assert full.batch(spark, minPartitions="8").rdd.getNumPartitions() >= 8
    assert full.batch(spark, minPartitions="1").rdd.getNumPartitions() == 3
    assert full.batch(spark).rdd.getNumPartitions() == 1


@pytest.mark.parametrize("source", SOURCES)
def test_an_empty_topic_has_columns_and_no_rows(spark, topic, source):
    frame = topic.batch(spark, source)
    assert frame.columns[:2] == ["key", "value"]
    assert frame.collect() == []


def test_a_task_fetches_little_before_its_first_rows(topic):
    """Who looks at a few rows (`limit(1)`, `isEmpty`) ends the task then; each next answer is larger."""
    producer = Producer({"bootstrap.servers": topic.bootstrap, "batch.size": 16_384})
    for _ in range(3_000):
        producer.produce(topic.name, bytes(1_000), partition=0)
    assert producer.flush(30) == 0
    with Cluster(topic.bootstrap) as cluster:
        whole = OffsetRange(TopicPartition(topic.name, 0), 0, 3_000)
        counts = [batch.num_rows for batch in cluster.read([whole])]
    assert sum(counts) == 3_000
    assert 0 < counts[0] * 1_000 <= FIRST_BYTES
    assert counts[0] < counts[1] < counts[2]


def test_records_that_come_after_as_many_empty_polls_as_are_borne_are_taken(full, monkeypatch):
    """Each time: those that were dropped and asked for anew would come as late again."""
    poll = Cluster._poll
    empty = 0

    def late(cluster, fetcher):
        nonlocal empty
        if empty < STALLED_POLLS_MAX:
            empty += 1
            return []
        if fetched := poll(cluster, fetcher):
            empty = 0
        return fetched

    monkeypatch.setattr(Cluster, "_poll", late)
    wanted = OffsetRange(TopicPartition(full.name, 0), 0, 100)
    with Cluster(full.bootstrap) as cluster:
        (records,) = cluster.read([wanted])
    assert records.column("offset").to_pylist() == list(range(100))


HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def write(frame, to, source="logfleet", **options):
    basic = {"kafka.bootstrap.servers": to.bootstrap}
    frame.write.format(source).options(**basic, **options).mode("append").save()


def content(cell):
    return None if cell is None else bytes(cell)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_become_records(spark, topic, source):
    """The topic column names the topic, the partition column the partition; a null partition means the key's."""
    data: list[tuple[object, ...]] = [
        (topic.name, f"k{n}", f"v{n}", n % 3, [("h", b"1"), ("i", None)]) for n in range(6)
    ]
    data += [(topic.name, None, None, 1, None), (topic.name, "same", "a", None, None)]
    columns = f"topic STRING, key STRING, value STRING, partition INT, {HEADERS}"
    write(spark.createDataFrame(data, columns), topic, source)
    got = {
        (r["partition"], content(r["key"]), content(r["value"]), r["headers"] and len(r["headers"]))
        for r in topic.batch(spark, includeHeaders="true").collect()
    }
    want = {(n % 3, f"k{n}".encode(), f"v{n}".encode(), 2) for n in range(6)} | {
        (1, None, None, None)
    }
    (by_key,) = got - want
    assert got - {by_key} == want
    assert by_key == (KEY_SAME_OF_THREE, b"same", b"a", None)


@pytest.mark.parametrize("source", SOURCES)
def test_strings_that_are_no_utf_8_are_written_as_they_are(spark, topic, source):
    frame = spark.sql("SELECT CAST(X'6BFF' AS STRING) AS key, CAST(X'C328' AS STRING) AS value")
    write(frame, topic, source, topic=topic.name)
    (row,) = topic.batch(spark).collect()
    assert (bytes(row["key"]), bytes(row["value"])) == (b"k\xff", b"\xc3\x28")


def some_rows(values, partition=0):
    """An Arrow batch as Spark hands it to a sink."""
    where = pa.array([partition] * len(values), pa.int32())
    keys = pa.array([b"k"] * len(values))
    return pa.record_batch([keys, pa.array(values), where], names=["key", "value", "partition"])


KEY_SAME_OF_THREE = 2
"""Where Kafka's default partitioner puts the key `same` among three partitions."""


def test_what_came_is_written_while_the_next_rows_are_waited_for(topic):
    """Rows may take minutes to come; connections and time limits need the loop meanwhile."""
    burst = 10_000  # rows of an Arrow batch of Spark's

    def slow_rows():
        yield some_rows([b"v"] * burst)
        wait_until(lambda: topic.bounds(0) == (0, burst))
        yield some_rows([b"v"] * burst)

    with Cluster(topic.bootstrap) as cluster:
        assert cluster.write(slow_rows(), topic.name) == 2 * burst
    assert topic.bounds(0) == (0, 2 * burst)


def test_a_write_ends_with_the_first_record_that_cannot_be_written(topic):
    """Not with the last row, which may be hours away."""
    give_up_s = time.monotonic() + WITHIN_S

    def endless_rows():
        yield some_rows([bytes(2 * 1024 * 1024)])
        while time.monotonic() < give_up_s:
            yield some_rows([b"v"], partition=1)
        raise AssertionError(f"rows are still taken after {WITHIN_S} s")

    with (
        Cluster(topic.bootstrap) as cluster,
        pytest.raises(KafkaError, match="exceeds the maximum"),
    ):
        cluster.write(endless_rows(), topic.name)


def test_a_write_to_a_topic_that_no_broker_makes_ends_soon(rig, monkeypatch):
    """Not after as long as brokers are waited for, which is minutes."""
    monkeypatch.setattr("logfleet.client.producer.NEW_TOPIC_MS", 0)
    broker = rig.broker({"auto.create.topics.enable": "false"})
    began_s = time.monotonic()
    with (
        Cluster(broker.bootstrap) as cluster,
        pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        cluster.write([some_rows([b"v"])], "nowhere")
    assert time.monotonic() - began_s < WITHIN_S


def test_a_write_waits_for_brokers_longer_than_for_a_topic_that_nobody_knows(rig, monkeypatch):
    monkeypatch.setattr("logfleet.client.producer.NEW_TOPIC_MS", 0)
    broker = rig.broker({"log.retention.ms": "-1"})
    topic = NumberedTopic(broker.bootstrap)
    broker.kill()

    def write_one():
        with Cluster(broker.bootstrap) as cluster:
            return cluster.write([some_rows([b"v"])], topic.name)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write_one)
        broker.start()
        assert written.result() == 1
    assert topic.bounds(0) == (0, 1)


@pytest.mark.parametrize("source", SOURCES)
def test_the_option_topic_wins_over_the_column(spark, topic, source):
    frame = spark.createDataFrame([("elsewhere", b"v")], "topic STRING, value BINARY")
    write(frame, topic, source, topic=topic.name)
    assert [bytes(r["value"]) for r in topic.batch(spark).collect()] == [b"v"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_topic_is_copied_as_it_is_read(spark, topic, source):
    """Columns that are no part of a record are left alone; each record goes to the partition of its number."""
    topic.produce(range(30), headers=[("h", b"1")])
    copy = NumberedTopic(topic.bootstrap)
    write(topic.batch(spark, source, includeHeaders="true"), topic, source, topic=copy.name)
    assert rows(copy.batch(spark)) == expected(range(30))


@pytest.mark.parametrize("source", SOURCES)
def test_a_write_makes_its_topic_where_brokers_allow_it(spark, broker, topic, source):
    assert broker.config.get("auto.create.topics.enable", "true") == "true"
    name = f"{topic.name}-made"
    frame = spark.createDataFrame([("v",)], "value STRING")
    write(frame, topic, source, topic=name)
    assert topic.batch(spark, subscribe=name).count() == 1


def test_tasks_have_as_many_records_as_they_may(spark, topic):
    """In streams Spark's own source does so too; it cuts no batch."""
    topic.produce(range(90))
    frame = topic.batch(spark, maxRecordsPerPartition="10")
    assert frame.rdd.getNumPartitions() == 9
    assert frame.count() == 90


def test_records_are_compressed_on_demand(spark, topic):
    frame = spark.createDataFrame([("x" * 1000,)] * 20, "value STRING")
    write(frame, topic, topic=topic.name, **{"kafka.compression.type": "zstd"})
    assert topic.batch(spark).where("length(value) = 1000").count() == 20


@pytest.mark.parametrize(
    "columns, options, why",
    [
        ("text STRING", {"topic": "TOPIC"}, "column value: missing"),
        ("value INT", {"topic": "TOPIC"}, "column value: int; cast it to string or binary"),
        ("value STRING, partition LONG", {"topic": "TOPIC"}, "column partition: bigint"),
        ("value STRING", {}, "column topic: missing"),
        ("value STRING", {"topic": "TOPIC", "kafka.ack": "1"}, "kafka.ack: not supported"),
        ("value STRING", {"topic": "TOPIC", "subscribe": "t"}, "subscribe: no such option"),
        ("value STRING, partition INT", {"topic": "TOPIC"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("value STRING, topic STRING", {}, "column topic: null"),
    ],
)
def test_what_cannot_become_records_is_refused_by_name(spark, topic, columns, options, why):
    values = {"STRING": None, "INT": 7, "LONG": 7}
    row = tuple(values[column.split()[1]] for column in columns.split(", "))
    frame = spark.createDataFrame([row], columns)
    with pytest.raises(Exception, match=why):
        write(frame, topic, **{k: v.replace("TOPIC", topic.name) for k, v in options.items()})


def test_a_topic_cannot_be_overwritten(spark, topic):
    frame = spark.createDataFrame([("v",)], "value STRING")
    writer = frame.write.format("logfleet").options(**topic.named({}))
    with pytest.raises(Exception, match="mode overwrite: a topic can only be appended to"):
        writer.mode("overwrite").save()
