"""Brokers are killed amid reads and writes of both sources, and our source's Python workers: a stream has each record once, a topic at least once."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import logfleet_spark
import pytest

from e2e.harness.spark_topics import (
    SOURCES,
    NumberedTopic,
    expected,
    rows,
    started,
    wait_until,
    written,
)

RECORDS = 12_000


@pytest.fixture
def killable(rig):
    return rig.broker({"log.retention.ms": "-1"})


@pytest.fixture
def topic(killable):
    topic = NumberedTopic(killable.bootstrap)
    topic.produce(range(RECORDS))
    return topic


def python_workers():
    """The processes that run tasks in Python for this test's Spark: forks of PySpark's daemon."""
    parents = {}
    daemons = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                pid = int(entry.name)
                parents[pid] = int(entry.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.daemon" in entry.joinpath("cmdline").read_bytes():
                    daemons.add(pid)
        except FileNotFoundError:
            continue  # it has ended meanwhile

    def is_ours(pid):
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return [pid for pid in daemons if parents[pid] in daemons and is_ours(pid)]


def held(gate):
    """Rows as they come, held up until the file is there; Spark keeps what reads them waiting meanwhile."""

    def pass_on(batches):
        for batch in batches:
            gate.with_name("reached").touch()
            while not gate.exists():
                time.sleep(0.01)
            yield batch

    return pass_on


@pytest.mark.parametrize("source", SOURCES)
def test_a_broker_is_killed_amid_a_read(spark, killable, topic, tmp_path, source):
    gate = tmp_path / "gate"
    frame = topic.batch(spark, source, minPartitions="12")
    slow = frame.mapInArrow(held(gate), frame.schema)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: rows(slow))
        wait_until(gate.with_name("reached").exists)
        killable.kill()
        gate.touch()
        killable.start()
        assert found.result() == expected(range(RECORDS))


@pytest.mark.parametrize("source", SOURCES)
def test_a_broker_is_killed_amid_a_write(spark, killable, topic, tmp_path, source):
    gate = tmp_path / "gate"
    out = NumberedTopic(killable.bootstrap)
    frame = topic.batch(spark, "kafka").select("key", "value", "partition")
    options = {"kafka.bootstrap.servers": killable.bootstrap, "topic": out.name}

    def write():
        logfleet_spark.register(spark)
        writer = frame.mapInArrow(held(gate), frame.schema).write.format(source).mode("append")
        writer.options(**options).save()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        wait_until(lambda: done.done() or gate.with_name("reached").exists())
        assert not done.done(), done.result()
        killable.kill()
        gate.touch()
        killable.start()
        done.result()
    got = rows(out.batch(spark))
    assert {(p, k, v) for p, _, k, v in got} == {
        (p, k, v) for p, _, k, v in expected(range(RECORDS))
    }


def test_python_workers_are_killed_amid_a_stream(spark, topic, tmp_path):
    """A master that repeats no task ends the query then; started again it goes on from its checkpoint."""
    gate = tmp_path / "gate"
    frame = topic.stream(spark, maxOffsetsPerTrigger="4000")
    query = started(frame.mapInArrow(held(gate), frame.schema), tmp_path)
    wait_until(gate.with_name("reached").exists)
    for pid in python_workers():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match=r"Python worker|STREAM_FAILED"):
        query.awaitTermination()
    gate.touch()
    started(frame.mapInArrow(held(gate), frame.schema), tmp_path).awaitTermination()
    assert written(spark, tmp_path) == expected(range(RECORDS))


def test_python_workers_are_killed_amid_a_streams_write(spark, topic, tmp_path):
    gate = tmp_path / "gate"
    out = NumberedTopic(topic.bootstrap)
    frame = topic.stream(spark, maxOffsetsPerTrigger="4000").select("key", "value", "partition")

    def run():
        return (
            frame.mapInArrow(held(gate), frame.schema)
            .writeStream.format("logfleet")
            .option("kafka.bootstrap.servers", topic.bootstrap)
            .option("topic", out.name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    query = run()
    wait_until(gate.with_name("reached").exists)
    for pid in python_workers():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match=r"Python worker|STREAM_FAILED"):
        query.awaitTermination()
    gate.touch()
    run().awaitTermination()
    got = rows(out.batch(spark))
    assert {(p, k, v) for p, _, k, v in got} == {
        (p, k, v) for p, _, k, v in expected(range(RECORDS))
    }
