"""Records that are gone before a stream has read them: an error, unless that is accepted.

Each case is put to Spark's own connector too, where it can tell.
"""

import time

import pytest
from logfleet_spark.batch_reader import BatchReader
from logfleet_spark.offsets import DataLossError
from logfleet_spark.options import source_options
from logfleet_spark.stream_reader import StreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows

from e2e.harness.spark_topics import (
    SOURCES,
    NumberedTopic,
    drained,
    expected,
    failing_at_first,
    started,
    wait_until,
    written,
)

LOSS = "failOnDataLoss"
LOST = r"(?i)set(ting)?.*failOnDataLoss"
NORMALLY = ReadMaxRows(2**63 - 1)


@pytest.fixture
def topic(broker):
    """A new topic of three partitions."""
    return NumberedTopic(broker.bootstrap)


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
def test_a_shorter_topic_of_the_same_name_is_a_loss_unless_that_is_accepted(
    spark, topic, tmp_path, source
):
    """Then ours reads all of it; Spark's connector what follows its present end."""
    topic.produce(range(30))
    drained(topic.stream(spark, source), tmp_path)
    topic.delete()
    topic.create()
    topic.produce(range(6))
    with pytest.raises(Exception, match=LOST):
        drained(topic.stream(spark, source), tmp_path)
    whole = [6] if source == "logfleet" else []
    assert drained(topic.stream(spark, source, **{LOSS: "false"}), tmp_path) == whole
    topic.produce(range(6, 12))
    assert drained(topic.stream(spark, source, **{LOSS: "false"}), tmp_path) == [6]


def test_a_topic_recreated_while_a_query_runs_is_noticed_though_it_is_longer(
    spark, topic, tmp_path
):
    """By its id.

    Spark's own source takes the new topic's records for those that follow the old one's.
    """
    topic.produce(range(3))
    query = started(topic.stream(spark), tmp_path, available_now=False)
    try:
        query.processAllAvailable()
        topic.delete()
        topic.create()
        topic.produce(range(30))
        with pytest.raises(Exception, match=r"does not exist|created again"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert written(spark, tmp_path) == expected(range(3))


def recreate(topic):
    """Longer than before, so that all offsets of before are there."""
    topic.delete()
    topic.create()
    topic.produce(range(30, 90))


def assert_refused(reader, pieces, topic):
    """Nothing is given of any piece."""
    assert pieces
    for piece in pieces:
        with pytest.raises(DataLossError, match=f"{topic.name} .*created again"):
            next(reader.read(piece))


@pytest.mark.parametrize("asks", ["latest offsets", "partitions", "records"])
def test_a_topic_recreated_amid_a_batch_is_noticed(topic, asks, monkeypatch):
    """Whatever is requested first of the new topic, none of its records is given."""
    topic.produce(range(6))
    options = topic.named({"startingOffsets": "earliest"})
    reader = StreamReader(source_options(options, streaming=True))
    start = reader.latestOffset(reader.initialOffset(), NORMALLY)
    if asks == "latest offsets":
        ask = reader.cluster.offsets
        monkeypatch.setattr(
            reader.cluster, "offsets", lambda at, **more: recreate(topic) or ask(at, **more)
        )
    end = reader.latestOffset(start, NORMALLY)
    monkeypatch.undo()
    if asks == "partitions":
        recreate(topic)
    if asks == "records":
        pieces = reader.partitions(start, end)
        recreate(topic)
        assert_refused(reader, pieces, topic)
    else:
        with pytest.raises(DataLossError, match=f"{topic.name} .*created again"):
            reader.partitions(start, end)
    reader.stop()


def test_a_topic_recreated_amid_a_batch_query_is_noticed(topic):
    topic.produce(range(6))
    reader = BatchReader(source_options(topic.named({}), streaming=False))
    pieces = reader.partitions()
    recreate(topic)
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
