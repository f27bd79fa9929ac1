"""Streams: checkpoints, limits, what appears and what is deleted while a query runs or between two runs.

Each case is put to Spark's own connector too, where it has the feature.
"""

import json
import time

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Named
from logfleet.client.offsets import TopicPartition
from logfleet_spark.cluster import CALL_TIMEOUT_MS
from logfleet_spark.listener import GroupCommits
from logfleet_spark.offsets import DataLossError, OffsetRange
from logfleet_spark.options import source_options
from logfleet_spark.source import BatchReader, Piece, StreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from e2e.harness.spark_topics import (
    SOURCES,
    T0,
    NumberedTopic,
    drained,
    expected,
    rows,
    started,
    wait_until,
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
    assert end == {topic.name: dict.fromkeys("012", begin)}
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


def failing_at_first(frame, folder):
    """A query over what there is whose first batch with rows fails."""

    def fail(batch, _number):
        assert batch.isEmpty(), "the first rows"

    query = (
        frame.writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="the first rows"):
        query.awaitTermination()


@pytest.mark.parametrize("source", SOURCES)
def test_what_expired_after_a_first_batch_failed_is_a_loss(spark, aged, tmp_path, source):
    """The start is in the checkpoint from the first moment on."""
    aged.produce(range(30))
    failing_at_first(aged.stream(spark, source), tmp_path)
    expire(aged)
    aged.produce(range(30, 60), t0=int(time.time() * 1000))
    with pytest.raises(Exception, match=LOST):
        drained(aged.stream(spark, source), tmp_path)


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


def test_the_checkpoint_has_the_form_of_sparks_source_and_the_group_its_offsets(
    spark, topic, tmp_path
):
    """An empty topic is a stream without rows; its end is committed to the group once a later batch is planned."""
    group = {"kafka.group.id": f"g-{topic.name}"}
    assert drained(topic.stream(spark, **group), tmp_path) == []
    topic.produce(range(9))
    assert drained(topic.stream(spark, **group), tmp_path) == [9]
    offsets = sorted(
        (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    assert json.loads(offsets[-1].read_text().splitlines()[-1]) == {
        topic.name: {"0": 3, "1": 3, "2": 3}
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
    assert reader.latestOffset(reader.initialOffset(), NORMALLY) == {
        topic.name: dict.fromkeys("012", 0)
    }
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


@pytest.mark.parametrize("source", SOURCES)
def test_a_topic_made_anew_is_a_loss_unless_that_is_accepted(spark, topic, tmp_path, source):
    topic.produce(range(30))
    drained(topic.stream(spark, source), tmp_path)
    topic.delete()
    topic.create()
    topic.produce(range(6))
    with pytest.raises(Exception, match=LOST):
        drained(topic.stream(spark, source), tmp_path)
    assert drained(topic.stream(spark, source, **{LOSS: "false"}), tmp_path) == []
    topic.produce(range(6, 12))
    drained(topic.stream(spark, source, **{LOSS: "false"}), tmp_path)
    new = sorted(value for _, _, _, value in written(spark, tmp_path))
    assert new == sorted(f"v{n}".encode() for n in [*range(30), *range(6, 12)])


def test_a_topic_made_anew_while_a_query_runs_is_noticed_though_it_is_longer(
    spark, topic, tmp_path
):
    """By its id; Spark's own source takes the new topic's records for those that follow the old one's."""
    topic.produce(range(3))
    query = started(topic.stream(spark), tmp_path, available_now=False)
    try:
        query.processAllAvailable()
        topic.delete()
        topic.create()
        topic.produce(range(30))
        with pytest.raises(Exception, match=r"does not exist|made anew"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert written(spark, tmp_path) == expected(range(3))


def made_anew(topic):
    """Longer than before, so that all offsets of before are there."""
    topic.delete()
    topic.create()
    topic.produce(range(30, 90))


def assert_refused(reader, pieces, topic):
    """Nothing is given of any piece."""
    assert pieces
    for piece in pieces:
        with pytest.raises(DataLossError, match=f"{topic.name} .*made anew"):
            next(reader.read(piece))


@pytest.mark.parametrize("asks", ["latest offsets", "partitions", "records"])
def test_a_topic_made_anew_amid_a_batch_is_noticed(topic, asks, monkeypatch):
    """Whatever of a micro-batch is asked for first of the new topic, none of its records is given."""
    topic.produce(range(6))
    options = topic.named({"startingOffsets": "earliest"})
    reader = StreamReader(source_options(options, streaming=True))
    start = reader.latestOffset(reader.initialOffset(), NORMALLY)
    if asks == "latest offsets":
        ask = reader.cluster.offsets
        monkeypatch.setattr(
            reader.cluster, "offsets", lambda at, **more: made_anew(topic) or ask(at, **more)
        )
    end = reader.latestOffset(start, NORMALLY)
    monkeypatch.undo()
    if asks == "partitions":
        made_anew(topic)
    pieces = reader.partitions(start, end)
    if asks == "records":
        made_anew(topic)
    reader.stop()
    assert_refused(reader, pieces, topic)


def test_a_topic_made_anew_amid_a_batch_query_is_noticed(topic):
    topic.produce(range(6))
    reader = BatchReader(source_options(topic.named({}), streaming=False))
    pieces = reader.partitions()
    made_anew(topic)
    assert_refused(reader, pieces, topic)


@pytest.mark.parametrize("source", SOURCES)
def test_a_deleted_topic_of_a_pattern_is_a_loss_unless_that_is_accepted(
    spark, topic, tmp_path, source
):
    other = NumberedTopic(topic.bootstrap, name=f"{topic.name}-other")
    for each in (topic, other):
        each.produce(range(6))
    pattern = {"subscribePattern": "TOPIC.*"}
    drained(topic.stream(spark, source, **pattern), tmp_path)
    other.delete()
    topic.produce(range(6, 9))
    with pytest.raises(Exception, match=LOST):
        drained(topic.stream(spark, source, **pattern), tmp_path)
    assert drained(topic.stream(spark, source, **pattern, **{LOSS: "false"}), tmp_path) == [3]


@pytest.fixture
def aged(expiring_broker):
    """A topic whose old records are deleted as soon as its `retention.ms` says so."""
    return NumberedTopic(expiring_broker.bootstrap, configs={"retention.ms": "-1"})


def expire(topic):
    """Let retention remove everything that is older than an hour."""
    topic.configure("retention.ms", "3600000")
    wait_until(lambda: all(low == high for low, high in map(topic.bounds, range(3))))


@pytest.mark.parametrize("source", SOURCES)
def test_records_that_retention_removed_unread_are_a_loss_unless_that_is_accepted(
    spark, aged, tmp_path, source
):
    now_ms = int(time.time() * 1000)
    aged.produce(range(30))
    drained(aged.stream(spark, source), tmp_path)
    aged.produce(range(30, 60))
    expire(aged)
    aged.produce(range(60, 90), t0=now_ms)
    with pytest.raises(Exception, match=LOST):
        drained(aged.stream(spark, source), tmp_path)
    drained(aged.stream(spark, source, **{LOSS: "false"}), tmp_path)
    assert written(spark, tmp_path) == expected([*range(30), *range(60, 90)])


@pytest.mark.parametrize("source", SOURCES)
def test_records_that_retention_removed_after_they_were_read_are_no_loss(
    spark, aged, tmp_path, source
):
    now_ms = int(time.time() * 1000)
    aged.produce(range(30))
    drained(aged.stream(spark, source), tmp_path)
    expire(aged)
    aged.produce(range(30, 60), t0=now_ms)
    drained(aged.stream(spark, source), tmp_path)
    assert written(spark, tmp_path) == expected(range(60))


@pytest.mark.parametrize("source", SOURCES)
def test_a_start_after_the_end_is_a_loss(spark, topic, tmp_path, source):
    topic.produce(range(9))
    beyond = '{"TOPIC": {"0": 5, "1": 0, "2": 0}}'
    with pytest.raises(Exception, match=LOST):
        drained(topic.stream(spark, source, startingOffsets=beyond), tmp_path)


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


def test_every_wrong_option_of_a_stream_is_refused_before_it_starts(spark, topic, tmp_path):
    for options, why in [
        ({"endingOffsets": "latest"}, "endingOffsets: only for batch reads"),
        ({"minOffsetsPerTrigger": "5"}, "minoffsetspertrigger: not supported"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit: not supported"),
    ]:
        with pytest.raises(Exception, match=why):
            drained(topic.stream(spark, **options), tmp_path)
