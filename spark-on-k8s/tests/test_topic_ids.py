"""Absence is not deletion, and another topic of the same name is another topic.

Each case is put to Spark's own connector too. What is not visible for once keeps its offset in the
checkpoint; the ids of topics are there beside the offsets (KIP-516).
"""

import json
import logging

import pytest
from logfleet_spark.offsets import DataLossError
from logfleet_spark.options import source_options
from logfleet_spark.stream_reader import StreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows

from e2e.harness.spark_topics import SOURCES, NumberedTopic, drained, expected, written

NORMALLY = ReadMaxRows(2**63 - 1)
ACCEPTED = {"failOnDataLoss": "false"}
OTHER = {"logfleet": "kafka", "kafka": "logfleet"}


@pytest.fixture
def topic(broker):
    """A new topic of three partitions."""
    return NumberedTopic(broker.bootstrap)


@pytest.fixture(scope="module")
def elsewhere(rig):
    """A cluster without any topic."""
    return rig.broker({})


def recreate(topic, numbers):
    topic.delete()
    topic.create()
    topic.produce(numbers)


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_sees_no_topic_repeats_no_row(spark, topic, elsewhere, tmp_path, source):
    """SPARK-41375; one run against an address where there are none."""
    options = {"subscribePattern": "^TOPIC$", **ACCEPTED}
    away = {"kafka.bootstrap.servers": elsewhere.bootstrap}
    topic.produce(range(40))
    drained(topic.stream(spark, source, **options), tmp_path)
    assert drained(topic.stream(spark, source, **{**options, **away}), tmp_path) == []
    assert drained(topic.stream(spark, source, **options), tmp_path) == []
    topic.produce(range(40, 50))
    drained(topic.stream(spark, source, **options), tmp_path)
    assert written(spark, tmp_path) == expected(range(50))


@pytest.mark.parametrize("source, repeated", [("logfleet", []), ("kafka", [6])])
def test_a_run_that_sees_some_topics_repeats_no_row(spark, topic, tmp_path, source, repeated):
    """Spark's connector takes what it did not see for once for new."""
    other = NumberedTopic(topic.bootstrap, name=f"{topic.name}-other")
    for each in (topic, other):
        each.produce(range(6))
    both, one = ({"subscribePattern": p, **ACCEPTED} for p in ("^TOPIC", "^TOPIC$"))
    drained(topic.stream(spark, source, **both), tmp_path)
    topic.produce(range(6, 9))
    assert drained(topic.stream(spark, source, **one), tmp_path) == [3]
    assert drained(topic.stream(spark, source, **both), tmp_path) == repeated


def test_a_topic_created_again_between_two_runs_is_another_topic(spark, topic, tmp_path):
    """Longer than before, so that its offsets say nothing.

    Spark's connector reads on without a word.
    """
    topic.produce(range(30))
    drained(topic.stream(spark), tmp_path)
    recreate(topic, range(100, 180))
    with pytest.raises(Exception, match=rf"topic {topic.name} \(deleted and created again"):
        drained(topic.stream(spark), tmp_path)
    drained(topic.stream(spark, maxOffsetsPerTrigger="30", **ACCEPTED), tmp_path)
    values = sorted(value for *_, value in written(spark, tmp_path))
    assert values == sorted(f"v{n}".encode() for n in [*range(30), *range(100, 180)])
    # from now on it is the one that is known
    assert drained(topic.stream(spark), tmp_path) == []


@pytest.mark.parametrize("first", SOURCES)
def test_each_source_reads_on_from_a_checkpoint_of_the_other(spark, topic, tmp_path, first):
    topic.produce(range(30))
    drained(topic.stream(spark, first), tmp_path)
    topic.produce(range(30, 60))
    assert sum(drained(topic.stream(spark, OTHER[first]), tmp_path)) == 30
    topic.produce(range(60, 90))
    assert sum(drained(topic.stream(spark, first), tmp_path)) == 30
    assert written(spark, tmp_path) == expected(range(90))


def test_the_checkpoint_names_the_topics_id_in_an_entry_without_partitions(spark, topic, tmp_path):
    topic.produce(range(6))
    drained(topic.stream(spark), tmp_path)
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    offsets = json.loads(newest.read_text().splitlines()[-1])
    assert offsets.pop(topic.name) == {"0": 2, "1": 2, "2": 2}
    ((name, partitions),) = offsets.items()
    assert (name.partition("@")[0], partitions) == (topic.name, {})
    assert len(name.partition("@")[2]) == 22


def stream_reader(topic, **options):
    given = topic.named({"startingOffsets": "earliest", **options})
    return StreamReader(source_options(given, streaming=True))


def read_of(reader, start, end):
    return sum(
        batch.num_rows for piece in reader.partitions(start, end) for batch in reader.read(piece)
    )


def test_a_batch_made_again_reads_no_record_of_a_topic_created_since(topic):
    """After a kill, by a process that knows nothing but the checkpoint.

    The next batch has the topic whole.
    """
    topic.produce(range(6))
    reader = stream_reader(topic)
    start = reader.latestOffset(reader.initialOffset(), NORMALLY)
    end = reader.latestOffset(start, NORMALLY)
    reader.stop()
    recreate(topic, range(30, 90))
    again = stream_reader(topic)
    with pytest.raises(DataLossError, match=f"topic {topic.name} .*created again"):
        again.partitions(start, end)
    again.stop()
    accepting = stream_reader(topic, **ACCEPTED)
    assert read_of(accepting, start, end) == 0
    assert read_of(accepting, end, accepting.latestOffset(end, NORMALLY)) == 60
    accepting.stop()


def test_a_topic_created_again_amid_a_batch_is_read_once_where_loss_is_accepted(topic):
    topic.produce(range(6))
    reader = stream_reader(topic, **ACCEPTED)
    start = reader.latestOffset(reader.initialOffset(), NORMALLY)
    end = reader.latestOffset(start, NORMALLY)
    pieces = reader.partitions(start, end)
    recreate(topic, range(30, 90))
    assert [batch for piece in pieces for batch in reader.read(piece)] == []
    assert read_of(reader, end, reader.latestOffset(end, NORMALLY)) == 60
    reader.stop()


def test_brokers_without_topic_ids_are_taken_without_a_check(topic, monkeypatch):
    topic.produce(range(6))
    reader = stream_reader(topic)
    start = reader.latestOffset(reader.initialOffset(), NORMALLY)
    found = reader.cluster.find([topic.name])
    bare = [type(t)(t.name, bytes(16), t.internal, t.partitions) for t in found]
    monkeypatch.setattr(reader.cluster, "find", lambda _: bare)
    end = reader.latestOffset(start, NORMALLY)
    assert end[topic.name] == {"0": 2, "1": 2, "2": 2}
    bare_start = {topic.name: start[topic.name]}
    assert list(reader.latestOffset(bare_start, NORMALLY)) == [topic.name]
    reader.stop()


def test_what_is_not_visible_is_warned_of_once(topic, monkeypatch, caplog):
    """An idle stream asks ten times a second."""
    topic.produce(range(6))
    reader = stream_reader(topic, subscribePattern="^TOPIC$", **ACCEPTED)
    start = reader.latestOffset(reader.initialOffset(), NORMALLY)
    ask = reader.cluster.topics
    monkeypatch.setattr(reader.cluster, "topics", list)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert reader.latestOffset(start, NORMALLY) == start
        assert len(caplog.messages) == 1
        assert f"{topic.name}-0" in caplog.messages[0]
        monkeypatch.setattr(reader.cluster, "topics", ask)
        end = reader.latestOffset(start, NORMALLY)
        assert end[topic.name] == {"0": 2, "1": 2, "2": 2}
        monkeypatch.setattr(reader.cluster, "topics", list)
        assert reader.latestOffset(end, NORMALLY) == end
    assert len(caplog.messages) == 2
    reader.stop()
