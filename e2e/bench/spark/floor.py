"""The least that a source and a sink in Python cost in Spark: they hand over Arrow batches that are there already, and drop what they get.

What `logfleet` costs beyond them is its own. The batches have the columns, the sizes and the numbers of rows of those that `logfleet` hands over.
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from logfleet_spark.decoding import GROUP_BYTES
from logfleet_spark.options import COLUMNS
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from e2e.bench.spark.work import PARTITIONS

NAME = "floor"


class FloorSource(DataSource):
    """Options: records (of the whole topic), size (bytes of key and value), columns (names with commas), chunk (rows of a micro-batch; all by default)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def _names(self) -> tuple[str, ...]:
        return tuple(str(self.options["columns"]).split(","))

    def schema(self) -> str:
        return ", ".join(f"{name} {COLUMNS[name]}" for name in self._names())

    def _rows(self) -> "Rows":
        return Rows(int(self.options["records"]), int(self.options["size"]), self._names())

    def reader(self, schema: StructType) -> DataSourceReader:
        return FloorReader(self._rows())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        rows = self._rows()
        return FloorStream(rows, int(self.options.get("chunk", rows.records)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 (Spark's signature)
        return FloorWriter()


@dataclass(frozen=True)
class Rows:
    records: int
    size: int
    names: tuple[str, ...]

    def given(self, count: int) -> Iterator[pa.RecordBatch]:
        whole = batch_of(self.size, self.names)
        while count > 0:
            yield whole.slice(0, min(count, whole.num_rows))
            count -= whole.num_rows


@functools.cache
def batch_of(size: int, names: tuple[str, ...]) -> pa.RecordBatch:
    """Made once in each worker: rows as many as `logfleet` hands over at a time."""
    count = GROUP_BYTES // size
    columns = {
        "key": pa.array([b"%08d" % n for n in range(count)], pa.binary()),
        "value": pa.array([b"%08d" % n * ((size - 8) // 8) for n in range(count)], pa.binary()),
        "topic": pa.repeat(pa.scalar("floor", pa.string()), count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array(range(count), pa.timestamp("us", tz="UTC")),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))


class Share(InputPartition):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def shares(count: int) -> list[InputPartition]:
    """As of a topic of PARTITIONS partitions."""
    ends = [count * n // PARTITIONS for n in range(PARTITIONS + 1)]
    return [Share(end - start) for start, end in itertools.pairwise(ends)]


class FloorReader(DataSourceReader):
    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return shares(self.rows.records)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return self.rows.given(partition.count)


class FloorStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: Rows, chunk: int) -> None:
        self.rows, self.chunk = rows, chunk

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.chunk)

    def prepareForTriggerAvailableNow(self) -> None:
        """The end is fixed anyway."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        more = limit.max_rows if isinstance(limit, ReadMaxRows) else self.rows.records
        return {"at": min(start["at"] + more, self.rows.records)}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"at": self.rows.records}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return shares(end["at"] - start["at"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return self.rows.given(partition.count)


@dataclass
class Dropped(WriterCommitMessage):
    records: int


class FloorWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Dropped(sum(batch.num_rows for batch in iterator))
