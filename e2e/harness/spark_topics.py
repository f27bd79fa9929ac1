"""Topics of numbered records, and the rows that a Spark source reads from them.

The source is `logfleet` or Spark's own `kafka`. Record n has the key `kn`, the value `vn`, and a
timestamp n ms after T0, unless a test sets another one. It is in partition n % 3, at offset n // 3
if all records are written in order.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported by name only
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from e2e.harness.topics import ends

SOURCES = ("logfleet", "kafka")
T0 = 1_000_000
WITHIN_S = 120.0
"""Retention takes a second; among two busy Sparks, a check of three partitions has taken several.
"""
Row = tuple[int, int, bytes, bytes]


class NumberedTopic:
    """A new topic, created at once.

    name: instead of a random one. configs: apply from its first record on.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        partitions: int = 3,
        name: str | None = None,
        configs: Mapping[str, str] | None = None,
        replicas: int = 1,
    ) -> None:
        self.bootstrap = bootstrap
        self.replicas = replicas
        self.configs = dict(configs or {})
        self.name = name or f"t-{uuid.uuid4()}"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.create(partitions)

    def create(self, partitions: int = 3) -> None:
        wanted = NewTopic(self.name, partitions, self.replicas, config=self.configs)
        self._admin.create_topics([wanted])[self.name].result(WITHIN_S)

    def delete(self) -> None:
        """Delete the topic and wait, so that its name can be used again."""
        self._admin.delete_topics([self.name])[self.name].result(WITHIN_S)
        wait_until(lambda: self.name not in self._admin.list_topics(timeout=WITHIN_S).topics)

    def grow(self, total: int) -> None:
        """Raise the number of partitions to `total`."""
        self._admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(WITHIN_S)

    def configure(self, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)

    def produce(
        self, numbers: Iterable[int], *, t0: int = T0, spread: int = 3, **more: Any
    ) -> None:
        """Write record n to partition n % spread; return when all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for n in numbers:
            producer.produce(
                self.name,
                key=f"k{n}",
                value=f"v{n}",
                partition=n % spread,
                timestamp=t0 + n,
                **more,
            )
        assert producer.flush(WITHIN_S) == 0

    def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset that the partition still holds, and its end."""
        return ends(self.bootstrap, self.name)[partition]

    def named(self, options: dict[str, str]) -> dict[str, str]:
        """Replace TOPIC in options with the topic's name, and PART with its end.

        Adds `subscribe` unless the options select topics.
        """
        chosen = {"subscribe", "subscribePattern", "assign"} & options.keys()
        basic = {"kafka.bootstrap.servers": self.bootstrap}
        basic |= {} if chosen else {"subscribe": self.name}
        for key, value in options.items():
            basic[key] = value.replace("TOPIC", self.name).replace("PART", self.name[-20:])
        return basic

    def batch(self, spark: SparkSession, source: str = "logfleet", **options: str) -> DataFrame:
        return spark.read.format(source).options(**self.named(options)).load()

    def stream(self, spark: SparkSession, source: str = "logfleet", **options: str) -> DataFrame:
        """Read the topic as a stream, from its first record unless the options say otherwise."""
        started = {"startingOffsets": "earliest", **options}
        return spark.readStream.format(source).options(**self.named(started)).load()


def started(frame: DataFrame, folder: Path, *, available_now: bool = True) -> StreamingQuery:
    """Start a query that writes the frame to `folder/out`; its checkpoint is in `folder` too."""
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="0 seconds").start()


def drained(frame: DataFrame, folder: Path) -> list[int]:
    """Run a query over all available records to its end.

    Return the rows of each non-empty micro-batch.
    """
    query = started(frame, folder)
    query.awaitTermination()
    return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]


def failing_at_first(frame: DataFrame, folder: Path) -> None:
    """Run a query whose first batch with rows fails; the checkpoint is `folder/checkpoint`."""

    def fail(batch: DataFrame, _number: int) -> None:
        if not batch.isEmpty():
            raise ValueError("the first rows")

    query = (
        frame.writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as failure:
        if "the first rows" not in str(failure):
            raise
        return
    raise AssertionError("the query met no rows")


def rows(frame: DataFrame) -> list[Row]:
    """Return (partition, offset, key, value) of each row, sorted."""
    return sorted(
        (r["partition"], r["offset"], bytes(r["key"]), bytes(r["value"])) for r in frame.collect()
    )


def written(spark: SparkSession, folder: Path) -> list[Row]:
    """Return the rows that queries have written to `folder/out`."""
    return rows(spark.read.parquet(str(folder / "out")))


def read_table(folder: Path) -> pd.DataFrame:
    """Read a job's table (Delta or plain Parquet) without Spark.

    Raises the reader's error if there is no table.
    """
    if folder.joinpath("_delta_log").exists():
        return deltalake.DeltaTable(folder).to_pandas()
    return pd.read_parquet(folder)


def expected(numbers: Iterable[int]) -> list[Row]:
    return sorted((n % 3, n // 3, f"k{n}".encode(), f"v{n}".encode()) for n in numbers)


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > give_up_s:
            raise AssertionError(f"not within {WITHIN_S} s")
        time.sleep(0.05)
