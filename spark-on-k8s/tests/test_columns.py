"""The option `includeColumns`: a row has only these, in the order of Spark's connector."""

import pytest

from e2e.harness.spark_topics import NumberedTopic, drained


@pytest.fixture(scope="module")
def topic(broker):
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(30), headers=[("h", b"1")])
    return topic


@pytest.mark.parametrize(
    "named, columns",
    [
        ("timestamp,value", ["value", "timestamp"]),
        ("value", ["value"]),
        ("headers,offset,KEY", ["key", "offset", "headers"]),
        ("timestampType, partition,topic", ["topic", "partition", "timestampType"]),
    ],
)
def test_a_batch_has_the_columns_that_are_named(spark, topic, named, columns):
    found = topic.batch(spark, includeColumns=named)
    wanted = topic.batch(spark, "kafka", includeHeaders="true").select(columns)
    assert found.schema == wanted.schema
    assert sorted(map(str, found.collect())) == sorted(map(str, wanted.collect()))


def test_a_stream_has_the_columns_that_are_named(spark, topic, tmp_path):
    stream = topic.stream(spark, includeColumns="offset,value")
    assert drained(stream, tmp_path) == [30]
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.columns == ["value", "offset"]
    wanted = topic.batch(spark, "kafka").select("value", "offset")
    assert sorted(map(str, written.collect())) == sorted(map(str, wanted.collect()))


def test_a_wrong_name_is_refused_by_load(spark, topic):
    for load in (topic.batch, topic.stream):
        with pytest.raises(
            Exception, match="includeColumns: there is no column valeu; name some of"
        ):
            load(spark, includeColumns="valeu")
