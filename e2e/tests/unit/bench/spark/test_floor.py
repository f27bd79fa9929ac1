"""The source and the sink that do nothing: they hand over as many rows as are asked for, and no stream of them goes on for ever."""

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from e2e.bench.spark.floor import FloorSource, FloorWriter
from e2e.bench.spark.work import ALL_COLUMNS

SCHEMA = StructType()


def source(**options: str) -> FloorSource:
    given = {"records": "100003", "size": "100", "columns": ALL_COLUMNS, "chunk": "30000"}
    return FloorSource(given | options)


def batches_of(
    reader: DataSourceReader | DataSourceStreamReader, share: InputPartition
) -> list[pa.RecordBatch]:
    found = list(reader.read(share))
    assert all(isinstance(batch, pa.RecordBatch) for batch in found)
    return found


def test_a_batch_has_all_rows_with_the_columns_that_are_asked_for():
    for columns in (ALL_COLUMNS, "value"):
        reader = source(columns=columns).reader(SCHEMA)
        batches = [b for share in reader.partitions() for b in batches_of(reader, share)]
        assert sum(batch.num_rows for batch in batches) == 100_003
        assert {",".join(batch.schema.names) for batch in batches} == {columns}
    value = batches[0].column("value")
    assert value.type == pa.binary()
    assert len(value[0].as_py()) == 88


def test_a_stream_ends_after_its_chunks():
    stream = source().streamReader(SCHEMA)
    at, rows, ends = stream.initialOffset(), 0, []
    limit = stream.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    while (end := stream.latestOffset(at, limit)) != at:
        for share in stream.partitions(at, end):
            rows += sum(batch.num_rows for batch in batches_of(stream, share))
        ends.append(end["at"])
        at = end
    assert ends == [30_000, 60_000, 90_000, 100_003]
    assert rows == 100_003


def test_the_sink_counts_what_it_drops():
    written = FloorWriter().write(iter([pa.record_batch({"value": [b"a", b"b"]})] * 3))
    assert vars(written) == {"records": 6}
