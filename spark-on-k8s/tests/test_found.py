"""Spark finds the format without being told of it: in any thread, in new sessions, and over Spark Connect."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import logfleet_spark

from e2e.harness.spark_topics import NumberedTopic, expected, rows

CONNECT = """
import sys
from pyspark.sql import SparkSession

bootstrap, topic = sys.argv[1:]
builder = SparkSession.builder.config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
spark = builder.remote("local[1]").getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
frame = spark.read.format("logfleet").options(**options).load()
print(type(frame).__module__, len(frame.collect()))
spark.stop()
"""


def test_threads_and_new_sessions_find_it(spark, broker):
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(30))
    with ThreadPoolExecutor(2) as pool:
        sessions = [spark, spark.newSession()]
        found = list(pool.map(lambda session: rows(topic.batch(session)), sessions))
    assert found == [expected(range(30))] * 2


def test_a_session_that_has_found_it_may_be_told_of_it_again(spark, broker):
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(3))
    logfleet_spark.register(spark)
    assert rows(topic.batch(spark)) == expected(range(3))


def test_streams_that_start_at_once_add_nothing_to_the_variables_that_they_share(spark, broker):
    """Spark puts them into a map without a lock; two that were added at once made it unreadable."""
    topic = NumberedTopic(broker.bootstrap)
    logfleet_spark.register(spark)
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    shared = manager.lookupDataSource("logfleet").dataSourceCls().envVars()
    before = set(shared)
    topic.stream(spark).writeStream.format("noop").trigger(
        availableNow=True
    ).start().awaitTermination()
    assert shared["SPARK_BUFFER_SIZE"] != ""
    assert set(shared) == before


def test_a_thread_writes_once_it_is_told_of_it(spark, broker):
    """Spark looks in the active session of the thread alone, and a new thread has none."""
    topic = NumberedTopic(broker.bootstrap)
    to = {"kafka.bootstrap.servers": topic.bootstrap, "topic": topic.name}
    frame = spark.sql("SELECT 'v' AS value")
    writer = frame.write.format("logfleet").options(**to)

    def write():
        logfleet_spark.register(spark)
        writer.mode("append").save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert [bytes(row["value"]) for row in topic.batch(spark).collect()] == [b"v"]


def test_it_is_found_over_spark_connect(broker):
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(30))
    ran = subprocess.run(
        [sys.executable, "-c", CONNECT, broker.bootstrap, topic.name],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.split() == ["pyspark.sql.connect.dataframe", "30"]
