"""Streams: checkpoints, limits, and what appears or is deleted during a query or between two.

Each case is put to Spark's own connector too, where it has the feature.
"""

import time

import pytest
from logfleet.client.offsets import TopicPartition
from logfleet_spark.cluster import CALL_TIMEOUT_MS
from logfleet_spark.offsets import OffsetRange
from logfleet_spark.options import source_options
from logfleet_spark.planning import Piece
from logfleet_spark.stream_reader import StreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from e2e.harness.spark_topics import (
    SOURCES,
    T0,
    NumberedTopic,
    drained,
    expected,
    failing_at_first,
    rows,
    started,
    written,
)

LOSS = "failOnDataLoss"
OUTAGE_S = 3.0
LOST = r"(?i)set(ting)?.*failOnDataLoss"


@pytest.fixture
def topic(broker):
    """A new topic of three partitions."""
    return NumberedTopic(broker.bootstrap)


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_gives_each_record_once_over_restarts(spark, topic, tmp_path, source):
    topic.produce(range(300))
    limited = topic.stream(spark, source, maxOffsetsPerTrigger="150")
    first = drained(limited, tmp_path)
    assert len(first) == 2
    assert all(count <= 150 for count in first)
    # as after a crash between the sink's commit and the engine's: the last batch is made again
    commits = tmp_path / "checkpoint" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    topic.produce(range(300, 420))
    drained(topic.stream(spark, source), tmp_path)
    assert drained(topic.stream(spark, source), tmp_path) == []
    assert written(spark, tmp_path) == expected(range(420))


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_from_latest_gives_what_follows_its_first_batch_also_if_that_is_made_again(
    spark, topic, tmp_path, source
):
    topic.produce(range(30))
    latest = topic.stream(spark, source, startingOffsets="latest")
    assert drained(latest, tmp_path) == []
    # as after a crash before the sink's commit and the engine's
    for commits in (tmp_path / "out" / "_spark_metadata", tmp_path / "checkpoint" / "commits"):
        (commits / "0").unlink()
        (commits / ".0.crc").unlink()
    topic.produce(range(30, 90))
    assert drained(latest, tmp_path) == [60]
    assert written(spark, tmp_path) == expected(range(30, 90))


def ranges(pieces):
    return [r for piece in pieces if isinstance(piece, Piece) for r in piece.ranges]


NORMALLY, ONCE = ReadMaxRows(2**63 - 1), ReadAllAvailable()
"""What the engine lets a batch have: of our default, and of a trigger that runs once."""

FIRST_START = {
    "earliest": {"startingOffsets": "earliest"},
    "latest": {"startingOffsets": "latest"},
    "latest-by-partition": {"startingOffsets": '{"TOPIC": {"0": 1, "1": -1, "2": -1}}'},
    "by-time": {
        "startingTimestamp": str(T0 + 5_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
}


@pytest.mark.parametrize("start", FIRST_START.values(), ids=FIRST_START)
def test_batch_0_ends_at_the_start_whenever_it_is_planned(topic, start):
    """Whatever is written after its end was taken, and by whichever process it is planned."""
    topic.produce(range(3))
    options = source_options(topic.named(start), streaming=True)
    reader = StreamReader(options)
    end = reader.latestOffset(reader.initialOffset(), NORMALLY)
    begin = 0 if start == FIRST_START["earliest"] else 1
    assert end[topic.name] == dict.fromkeys("012", begin)
    topic.produce(range(3, 6))
    topic.produce(range(6, 9), t0=T0 + 5_000)
    again = StreamReader(options)
    for one in (reader, again):
        assert one.partitions(one.initialOffset(), end) == []
    following = again.partitions(end, again.latestOffset(end, NORMALLY))
    assert [(r.start, r.end) for r in ranges(following)] == [(begin, 3)] * 3
    reader.stop()
    again.stop()


def test_a_trigger_that_runs_once_has_all_in_batch_0(topic):
    topic.produce(range(6))
    options = source_options(topic.named({"startingOffsets": "earliest"}), streaming=True)
    reader = StreamReader(options)
    end = reader.latestOffset(reader.initialOffset(), ONCE)
    again = StreamReader(options)
    for one in (reader, again):
        planned = one.partitions(one.initialOffset(), end)
        assert [(r.start, r.end) for r in ranges(planned)] == [(0, 2)] * 3
        one.stop()


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_partitions_that_appear_before_batch_0_is_made_again_are_read_after_it(topic, start):
    topic.produce(range(3))
    options = source_options(topic.named({"startingOffsets": start}), streaming=True)
    reader = StreamReader(options)
    end = reader.latestOffset(reader.initialOffset(), NORMALLY)
    topic.grow(4)
    topic.produce([3], spread=4)
    assert reader.partitions(reader.initialOffset(), end) == []
    following = ranges(reader.partitions(end, reader.latestOffset(end, NORMALLY)))
    assert OffsetRange(TopicPartition(topic.name, 3), 0, 1) in following
    assert len(following) == (4 if start == "earliest" else 1)
    reader.stop()


def test_topics_that_appear_where_there_were_none_are_read_whole(topic):
    options = {"subscribePattern": f"^{topic.name}-later$", "startingOffsets": "latest"}
    reader = StreamReader(source_options(topic.named(options), streaming=True))
    end = reader.latestOffset(reader.initialOffset(), NORMALLY)
    assert end == {}
    assert reader.partitions(reader.initialOffset(), end) == []
    NumberedTopic(topic.bootstrap, name=f"{topic.name}-later").produce(range(6))
    following = ranges(reader.partitions({}, reader.latestOffset({}, NORMALLY)))
    assert [(r.start, r.end) for r in following] == [(0, 2)] * 3
    reader.stop()


def test_a_micro_batch_waits_for_its_least_or_its_longest_delay(topic, monkeypatch):
    """The first one does not: nobody knows how long ago the last one was.

    Spark's source does the same.
    """
    topic.produce(range(6))
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    reader = StreamReader(source_options(topic.named(given), streaming=True))
    start = reader.latestOffset(reader.initialOffset(), NORMALLY)
    end = reader.latestOffset(start, NORMALLY)
    assert end[topic.name] == dict.fromkeys("012", 2)
    topic.produce(range(6, 9))
    assert reader.latestOffset(end, NORMALLY) == end
    assert reader.latestOffset(end, ONCE)[topic.name] == dict.fromkeys("012", 3)
    topic.produce(range(9, 12))
    enough = reader.latestOffset(end, NORMALLY)
    assert enough[topic.name] == dict.fromkeys("012", 4)
    topic.produce([12])
    assert reader.latestOffset(enough, NORMALLY) == enough
    later_s = time.monotonic() + 3600
    monkeypatch.setattr("logfleet_spark.stream_reader.time.monotonic", lambda: later_s)
    assert reader.latestOffset(enough, NORMALLY)[topic.name]["0"] == 5
    reader.stop()


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_over_what_is_there_reads_all_though_it_is_less_than_a_micro_batch_wants(
    spark, topic, tmp_path, source
):
    topic.produce(range(9))
    least = topic.stream(spark, source, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    assert drained(least, tmp_path) == [9]


@pytest.mark.parametrize("source", SOURCES)
def test_a_query_whose_topic_grew_after_a_first_batch_failed_starts_again(
    spark, topic, tmp_path, source
):
    """Also where its start names each partition that there was."""
    topic.produce(range(9))
    frame = topic.stream(spark, source, startingOffsets='{"TOPIC": {"0": 1, "1": 1, "2": 1}}')
    failing_at_first(frame, tmp_path)
    topic.grow(4)
    topic.produce([3], spread=4)
    found = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(rows(batch)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(found) == sorted([*expected(range(3, 9)), (3, 0, b"k3", b"v3")])


@pytest.mark.parametrize("source", SOURCES)
def test_a_query_over_what_is_there_ends_at_the_end_it_saw_first(spark, topic, tmp_path, source):
    """The topic grows with every micro-batch."""
    topic.produce(range(300))
    batches = []

    def grow(frame, batch_id):
        batches.append(frame.count())
        first = 300 + 60 * (len(batches) - 1)
        topic.produce(range(first, first + 60))

    query = (
        topic.stream(spark, source, maxOffsetsPerTrigger="150")
        .writeStream.foreachBatch(grow)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert list(filter(None, batches)) == [150, 150]
    # Spark's own has no batch without rows before them
    end = 100 + 20 * len(batches)
    assert [topic.bounds(p)[1] for p in range(3)] == [end] * 3


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_outlives_an_outage_of_its_brokers(spark, rig, tmp_path, source):
    """Of seconds here: how long it may last is CALL_TIMEOUT_MS."""
    assert CALL_TIMEOUT_MS > 3 * 60_000
    broker = rig.broker({"log.retention.ms": "-1"})
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(30))
    query = started(topic.stream(spark, source), tmp_path, available_now=False)
    try:
        query.processAllAvailable()
        broker.kill()
        asked = len(query.recentProgress)
        time.sleep(OUTAGE_S)  # it is what is tried, not waited for
        broker.start()
        topic.produce(range(30, 60))
        query.processAllAvailable()
        assert len(query.recentProgress) >= asked
    finally:
        query.stop()
    assert written(spark, tmp_path) == expected(range(60))


@pytest.mark.parametrize("source", SOURCES)
def test_topics_and_partitions_that_appear_while_a_query_runs_are_read_whole(
    spark, topic, tmp_path, source
):
    topic.produce(range(30))
    pattern = {"subscribePattern": "TOPIC.*"}
    query = started(topic.stream(spark, source, **pattern), tmp_path, available_now=False)
    try:
        query.processAllAvailable()
        assert written(spark, tmp_path) == expected(range(30))
        topic.grow(5)
        topic.produce([3, 4, 8, 9], spread=5)  # 3 and 4 are the new partitions
        other = NumberedTopic(topic.bootstrap, name=f"{topic.name}-other")
        other.produce(range(6))
        query.processAllAvailable()
    finally:
        query.stop()
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert rows(frame.where(f"topic = '{other.name}'")) == expected(range(6))
    later = frame.where(f"topic = '{topic.name}' AND partition > 2")
    assert sorted((p, bytes(v)) for p, _, _, v in rows(later)) == [
        (3, b"v3"),
        (3, b"v8"),
        (4, b"v4"),
        (4, b"v9"),
    ]


@pytest.mark.parametrize("sink", SOURCES)
def test_a_stream_writes_its_rows_to_topics(spark, topic, tmp_path, sink):
    """Key, headers and partition as in a batch; the topic column names the topic."""
    topic.produce(range(30), headers=[("h", b"1")])
    out = NumberedTopic(topic.bootstrap)
    query = (
        topic.stream(spark, includeHeaders="true")
        .selectExpr(
            "key", "value", "headers", f"'{out.name}' AS topic", "2 - partition AS partition"
        )
        .writeStream.format(sink)
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    frame = out.batch(spark, includeHeaders="true")
    assert sorted((p, v) for p, _, _, v in rows(frame)) == sorted(
        (2 - n % 3, f"v{n}".encode()) for n in range(30)
    )
    assert frame.where("headers[0].key = 'h' AND headers[0].value = X'31'").count() == 30


def test_a_wrong_option_of_a_stream_is_refused_by_load(spark, topic):
    for options, why in [
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit: not supported"),
    ]:
        with pytest.raises(Exception, match=why):
            topic.stream(spark, **options)


def test_what_only_a_batch_takes_is_refused_at_the_start_of_a_stream(spark, topic, tmp_path):
    frame = topic.stream(spark, endingOffsets="latest")
    with pytest.raises(Exception, match="endingOffsets: only for batch reads"):
        drained(frame, tmp_path)


def test_a_schema_of_the_users_is_refused(spark, topic, tmp_path):
    """Spark's own source refuses it too; a Python source hears of it when the plan is made."""
    options = topic.named({})
    with pytest.raises(Exception, match="schema: a topic's columns are key BINARY, "):
        spark.read.format("logfleet").schema("value STRING").options(**options).load().count()
    frame = spark.readStream.format("logfleet").schema("value STRING").options(**options).load()
    with pytest.raises(Exception, match="schema: a topic's columns are key BINARY, "):
        drained(frame, tmp_path)
    theirs = spark.read.format("kafka").schema("value STRING").options(**options)
    with pytest.raises(Exception, match="USER_SPECIFIED_AND_ACTUAL_SCHEMA_MISMATCH"):
        theirs.load()


def test_a_batch_that_is_held_back_does_not_ask_the_cluster_all_the_time(topic, monkeypatch):
    """The engine asks for it every 10 ms.

    That a topic ends lower than before holds nothing back.
    """
    pauses: list[float] = []
    monkeypatch.setattr("logfleet_spark.stream_reader.time.sleep", pauses.append)
    more = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    reader = StreamReader(source_options(topic.named({**more, LOSS: "false"}), streaming=True))
    topic.produce(range(3))
    begin = reader.latestOffset(reader.initialOffset(), NORMALLY)
    at = reader.latestOffset(begin, NORMALLY)
    assert at[topic.name] == dict.fromkeys("012", 1)
    topic.produce(range(3, 6))
    pauses.clear()
    assert reader.latestOffset(at, NORMALLY) == at
    assert reader.latestOffset(at, NORMALLY) == at
    assert pauses[-1] > 0
    beyond = {topic.name: {"0": 100, "1": 1, "2": 1}}
    topic.produce([7, 10, 13, 16])
    found = reader.latestOffset(beyond, NORMALLY)
    reader.stop()
    assert found[topic.name]["1"] == 6
