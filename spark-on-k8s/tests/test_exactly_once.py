"""Batches are written exactly once: one transaction each, which carries the batch's version."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from logfleet.client.errors import AbortRequired, KafkaError
from logfleet.client.offsets import OffsetSpec, TopicPartition
from logfleet_spark.client_options import OptionError, client_options
from logfleet_spark.cluster import Cluster
from logfleet_spark.exactly_once import (
    OvertakenError,
    VersionedBatch,
    VersionError,
    app_id_of_checkpoint,
)
from logfleet_spark.offsets import OffsetRange
from logfleet_spark.options import batch_sink_options, sink_options, stream_sink_options
from logfleet_spark.sink import BatchWriter, Rows, StreamWriter

from e2e.harness.spark_topics import NumberedTopic

COMMITTED = client_options({"kafka.isolation.level": "read_committed"}, "batch read")
ID = "logfleet.txn.app.id"
VERSION = "logfleet.txn.version"


@pytest.fixture
def topic(broker):
    return NumberedTopic(broker.bootstrap)


@pytest.fixture
def cluster(broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


def some(*values: str, partition: int = 0) -> list[pa.RecordBatch]:
    where = pa.array([partition] * len(values), pa.int32())
    return [pa.record_batch([pa.array(values), where], names=["value", "partition"])]


def held(topic: NumberedTopic) -> list[str]:
    """The values that a reader of committed records finds, sorted."""
    with Cluster(topic.bootstrap, COMMITTED) as cluster:
        tps = [TopicPartition(topic.name, index) for index in range(3)]
        ends = cluster.offsets(dict.fromkeys(tps, OffsetSpec.LATEST))
        ranges = [OffsetRange(tp, 0, end) for tp, end in ends.items()]
        return sorted(
            bytes(value).decode()
            for batch in cluster.read(ranges, columns=("value",))
            for value in batch.column("value").to_pylist()
        )


def test_a_batch_that_is_written_is_not_written_again(topic, cluster):
    versions = (0, 1, 1, 5, 5)
    for version, is_new in zip(versions, (True, True, False, True, False), strict=True):
        rows = some(f"{version}a", f"{version}b")
        batch = VersionedBatch(topic.name, version, 2)
        assert cluster.write_once(rows, topic.name, batch) is is_new
    assert held(topic) == ["0a", "0b", "1a", "1b", "5a", "5b"]


def test_batches_of_several_topics_have_one_version(topic, cluster):
    other = NumberedTopic(topic.bootstrap)

    def named(*names: str) -> list[pa.RecordBatch]:
        return [pa.record_batch([pa.array(names), pa.array(names)], names=["value", "topic"])]

    app = f"{topic.name}-app"
    for version, names in enumerate([(topic.name, other.name), (other.name,)]):
        for is_new in (True, False):
            batch = VersionedBatch(app, version, len(names))
            assert cluster.write_once(named(*names), None, batch) is is_new
    assert (held(topic), held(other)) == ([topic.name], [other.name] * 2)


def test_a_version_below_the_written_one_is_refused_by_name(topic, cluster):
    cluster.write_once(some("a"), topic.name, VersionedBatch(topic.name, 7, 1))
    with pytest.raises(VersionError, match=f"batch 3 of {topic.name}: batch 7 is written already"):
        cluster.write_once(some("b"), topic.name, VersionedBatch(topic.name, 3, 1))
    with pytest.raises(VersionError, match="written already, with 1 rows, and now has 2"):
        cluster.write_once(some("a", "b"), topic.name, VersionedBatch(topic.name, 7, 2))
    assert held(topic) == ["a"]


def test_of_a_batch_that_fails_nothing_is_seen_and_it_may_be_written_again(topic, cluster):
    batch = VersionedBatch(topic.name, 0, 3)
    too_large = "x" * 2**21
    with pytest.raises((KafkaError, AbortRequired), match="exceeds the maximum"):
        cluster.write_once([*some("a"), *some(too_large), *some("b")], topic.name, batch)
    assert held(topic) == []
    assert cluster.write_once(some("a", "b", "c"), topic.name, batch)
    assert held(topic) == ["a", "b", "c"]


def test_an_older_writer_commits_nothing_once_a_newer_one_has_begun(topic, cluster):
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from some("old")
        with Cluster(topic.bootstrap) as newer:
            assert newer.write_once(some("new"), topic.name, VersionedBatch(topic.name, 0, 1))
        yield from some("older")

    with pytest.raises(OvertakenError, match="another driver that writes under this id"):
        cluster.write_once(overtaken(), topic.name, VersionedBatch(topic.name, 0, 2))
    assert held(topic) == ["new"]


@pytest.mark.parametrize("once", [True, False])
def test_batches_that_a_topic_finds_too_large_are_halved(broker, cluster, once):
    topic = NumberedTopic(broker.bootstrap, configs={"max.message.bytes": "2000"})
    values = [f"{n:0100}" for n in range(100)]
    if once:
        cluster.write_once(some(*values), topic.name, VersionedBatch(topic.name, 0, 100))
    else:
        cluster.write(some(*values), topic.name)
    assert held(topic) == values


def sink(topic: NumberedTopic, **more: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": topic.bootstrap, "topic": topic.name}
    return given | {"exactlyOnce": "true"} | more


def test_tasks_only_return_their_rows_and_the_driver_writes_them(topic):
    columns = {"value": "string", "partition": "int"}
    writer = StreamWriter(stream_sink_options(sink(topic, **{ID: topic.name})), columns)
    first = writer.write(iter(some("a") + some("b", "c", partition=2)))
    failed, nothing = writer.write(iter(some("a"))), writer.write(iter([]))
    assert held(topic) == []
    writer.abort([failed, None], 0)
    for _ in range(2):  # Spark may commit a batch twice
        writer.commit([first, nothing], 0)
    assert isinstance(nothing, Rows)
    assert nothing.count == 0
    assert held(topic) == ["a", "b", "c"]
    options = batch_sink_options(sink(topic, **{ID: topic.name, VERSION: "1"}))
    BatchWriter(options, columns).commit([first])
    assert held(topic) == ["a", "a", "b", "b", "c", "c"]


def test_a_stream_writes_under_the_id_of_its_query(tmp_path: Path):
    tmp_path.joinpath("metadata").write_text(json.dumps({"id": "q"}))
    assert app_id_of_checkpoint(str(tmp_path)) == "logfleet-spark-q"
    assert app_id_of_checkpoint(f"file:{tmp_path}") == "logfleet-spark-q"
    for place in (None, "s3a://bucket/checkpoint", str(tmp_path / "other")):
        with pytest.raises(OptionError, match=rf"^{ID}: missing, .*{place}"):
            app_id_of_checkpoint(place)


@pytest.mark.parametrize(
    "parse, options, why",
    [
        (sink_options, {ID: "a"}, "only with exactlyOnce=true"),
        (sink_options, {VERSION: "1"}, "only with exactlyOnce=true"),
        (sink_options, {"kafka.transaction.timeout.ms": "1"}, "only with exactlyOnce=true"),
        (batch_sink_options, {"exactlyOnce": "true", ID: "a"}, "a batch needs"),
        (batch_sink_options, {"exactlyOnce": "true", VERSION: "1"}, "a batch needs"),
        (batch_sink_options, {"exactlyOnce": "true", VERSION: "-1"}, "'-1' is not a batch's"),
        (stream_sink_options, {"exactlyOnce": "true", VERSION: "1"}, "leave it out"),
    ],
)
def test_options_that_do_not_fit_are_refused(parse, options, why):
    with pytest.raises(OptionError, match=why):
        parse({"kafka.bootstrap.servers": "h:1", **options})


def test_a_stream_whose_driver_ends_before_its_checkpoint_writes_its_rows_once(
    spark, topic, tmp_path
):
    out = NumberedTopic(topic.bootstrap)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = (
            topic.stream(spark)
            .selectExpr("key", "value")
            .writeStream.format("logfleet")
            .options(**sink(out))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    topic.produce(range(30))
    run()
    for name in ("1", ".1.crc"):  # as if the driver had ended before it was written
        (checkpoint / "commits" / name).unlink()
    topic.produce(range(30, 40))
    run()
    assert held(out) == sorted(f"v{n}" for n in range(40))
