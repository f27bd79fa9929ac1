"""A Spark of its own for one connector: takes commands as JSON lines on its input, answers each by a line.

Run as `python -m e2e.bench.spark.side FORMAT BOOTSTRAP SCRATCH`. Everything that it starts is of its session (setsid), by which
its processor time is counted.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import logfleet_spark
from pyspark.sql import SparkSession

from e2e.bench.spark.floor import FloorSource
from e2e.bench.spark.work import ALL_COLUMNS, FLOOR, PARTITIONS

MEMORY = "2g"
CHUNKS = 4
"""Micro-batches of a run over what there is."""


class Side:
    """Commands are its methods; each gives the figures that it can tell itself."""

    def __init__(self, source: str, bootstrap: str, scratch: Path) -> None:
        self.source, self.bootstrap, self.scratch = source, bootstrap, scratch
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", MEMORY)
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.local.dir", str(scratch))
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .getOrCreate()
        )
        logfleet_spark.register(self.spark)
        self.spark.dataSource.register(FloorSource)
        self._checkpoints = 0

    def _options(
        self, topic: str, records: int = 0, size: int = 0, columns: str = ALL_COLUMNS
    ) -> dict[str, str]:
        if self.source == FLOOR:
            return {"records": str(records), "size": str(size), "columns": columns}
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        if self.source == "logfleet" and columns != ALL_COLUMNS:
            options["includeColumns"] = columns
        return options

    def _checkpoint(self) -> str:
        self._checkpoints += 1
        return str(self.scratch / f"checkpoint-{self._checkpoints}")

    def batch_read(
        self, topic: str, records: int, size: int, columns: str, **_: Any
    ) -> dict[str, float]:
        """All records, of which these columns are kept."""
        options = self._options(topic, records, size, columns)
        begin = time.monotonic()
        frame = self.spark.read.format(self.source).options(**options).load()
        frame.select(*columns.split(",")).write.format("noop").mode("overwrite").save()
        seconds = time.monotonic() - begin
        assert frame.count() == records
        return {"rows_per_s": records / seconds}

    def available_now(self, topic: str, records: int, size: int, **_: Any) -> dict[str, float]:
        seconds = self._run_to_the_end(topic, records, size, records // CHUNKS)
        return {"rows_per_s": records / seconds}

    def few(self, topic: str, records: int, size: int, **_: Any) -> dict[str, float]:
        """A query so small that its start is all of it."""
        return {"seconds": self._run_to_the_end(topic, records, size, records)}

    def _run_to_the_end(self, topic: str, records: int, size: int, chunk: int) -> float:
        """Seconds that a query with the trigger availableNow takes. chunk: rows of a micro-batch."""
        limit = "chunk" if self.source == FLOOR else "maxOffsetsPerTrigger"
        first = {} if self.source == FLOOR else {"startingOffsets": "earliest"}
        begin = time.monotonic()
        query = (
            self.spark.readStream.format(self.source)
            .options(**self._options(topic, records, size), **first)
            .option(limit, str(chunk))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", self._checkpoint())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.monotonic() - begin
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert read == records, f"{read} of {records} rows"
        return seconds

    def start(self, topic: str, **_: Any) -> dict[str, float]:
        """Begin a stream of what is written from now on."""
        self._query = (
            self.spark.readStream.format(self.source)
            .options(**self._options(topic), startingOffsets="latest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", self._checkpoint())
            .start()
        )
        self._query.processAllAvailable()
        return {}

    def drain(self, **_: Any) -> dict[str, float]:
        self._query.processAllAvailable()
        return {}

    def stop(self, records: int, **_: Any) -> dict[str, float]:
        self._query.stop()
        full = [p for p in self._query.recentProgress if p["numInputRows"]]
        read = sum(progress["numInputRows"] for progress in full)
        assert read == records, f"{read} of {records} rows"
        took = [progress["durationMs"]["triggerExecution"] for progress in full]
        return {"trigger_ms": statistics.median(took)}

    def write(self, topic: str, records: int, codec: str, size: int, **_: Any) -> dict[str, float]:
        options = {"kafka.bootstrap.servers": self.bootstrap, "kafka.compression.type": codec}
        options = self._options(topic) if self.source == FLOOR else options | {"topic": topic}
        begin = time.monotonic()
        (
            self.spark.range(0, records, 1, PARTITIONS)
            .selectExpr(
                "format_string('%08d', id) AS key",
                f"rpad(sha2(cast(id AS string), 256), {size - 8}, sha2(cast(id AS string), 256)) AS value",
            )
            .write.format(self.source)
            .options(**options)
            .mode("append")
            .save()
        )
        return {"rows_per_s": records / (time.monotonic() - begin)}


def main() -> None:
    source, bootstrap, scratch = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    side = Side(source, bootstrap, Path(scratch))
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        found = getattr(side, command.pop("do"))(**command)
        print(json.dumps(found), file=answers, flush=True)
    side.spark.stop()


if __name__ == "__main__":
    main()
