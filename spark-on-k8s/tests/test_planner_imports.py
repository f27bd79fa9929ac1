"""What a query's planner imports: each query starts a Python process for it, whose imports are most of what a small query costs."""

import json
import subprocess
import sys

from e2e.harness.spark_topics import NumberedTopic

PLANNER = """
import json, pickle, sys
import pyspark.sql.streaming.python_streaming_source_runner
from pyspark.sql.streaming.datasource import ReadMaxRows
before = set(sys.modules)
from logfleet_spark.source import LogfleetSource
from pyspark.sql.types import *
types = {"BINARY": BinaryType, "STRING": StringType, "INT": IntegerType, "BIGINT": LongType, "TIMESTAMP": TimestampType}
source = LogfleetSource(json.loads(sys.argv[1]))
columns = [column.split() for column in source.schema().split(", ")]
schema = StructType([StructField(name, types[of]()) for name, of in columns])
reader = source.streamReader(schema)
start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1000))
end = reader.latestOffset(start, ReadMaxRows(1000))
pickle.dumps((reader, reader.partitions(start, end)))
print(json.dumps([end, sorted(set(sys.modules) - before)]))
"""
ONLY_FOR_RECORDS = {
    "cramjam",
    "crc32c",
    "lz4",
    "logfleet.client.consumer",
    "logfleet.client.fetcher",
    "logfleet.client.groups",
    "logfleet.client.producer",
    "logfleet.records",
    "logfleet_spark.decoding",
    "logfleet_spark.encoding",
    "logfleet_spark.sink",
    "logfleet_spark.writing",
    "pandas",
    "pyarrow.compute",
    "backports.zstd",
}


def test_a_planner_imports_nothing_that_only_reads_and_writes_of_records_need(broker):
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(10))
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic.name,
        "startingOffsets": "earliest",
    }
    ran = subprocess.run(
        [sys.executable, "-c", PLANNER, json.dumps(options)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    end, imported = json.loads(ran.stdout)
    assert sum(end[topic.name].values()) == 10
    assert "logfleet.client.connection" in imported
    assert set(imported) & ONLY_FOR_RECORDS == set()
