"""The Python data source `logfleet`: topics as DataFrames without any jar, for batch and streaming.

Columns and options are those of Spark's Kafka source (see options.py). Offsets live in the checkpoint; with
`kafka.group.id` set they are also committed to that group, so that its lag can be watched like any consumer's.
"""

import re
import time
from collections.abc import Iterator, Mapping, MutableMapping

import pyarrow as pa
from logfleet.client.offsets import TopicPartition
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from logfleet_spark.cluster import Cluster
from logfleet_spark.offsets import (
    OffsetRange,
    Offsets,
    from_json,
    limited,
    reachable,
    split,
    to_json,
)
from logfleet_spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    OptionError,
    SourceOptions,
    Topics,
    sink_options,
    source_options,
)
from logfleet_spark.rows import to_arrow
from logfleet_spark.sink import BatchWriter, StreamWriter

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)
HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

# An idle stream asks for the newest offsets every 10 ms (spark.sql.streaming.pollingDelay); ask the cluster less often.
LATEST_CACHED_SECONDS = 0.1


class LogfleetSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "logfleet"

    def schema(self) -> str:
        wanted = str(self._given.get("includeHeaders", "false")).lower() == "true"
        return COLUMNS + HEADERS if wanted else COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(source_options(self._given, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(source_options(self._given, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 (Spark's signature)
        if overwrite:
            raise OptionError("mode overwrite: a topic can only be appended to; use mode append")
        return BatchWriter(sink_options(self._given), schema.names)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001
        if overwrite:
            raise OptionError("output mode complete: a topic can only be appended to")
        return StreamWriter(sink_options(self._given), schema.names)

    @property
    def _given(self) -> MutableMapping[str, str]:
        return self.options


class Piece(InputPartition):
    """The offsets that one task reads."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


def read_piece(options: SourceOptions, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one task's offsets. Opens its own connections: it runs in a worker of its own."""
    if not isinstance(piece, Piece):
        return  # Spark makes one empty partition of its own where there are none
    with Cluster(options.bootstrap, options.client) as cluster:
        for records in cluster.read(piece.offsets, fail_on_data_loss=options.fail_on_data_loss):
            yield to_arrow(piece.offsets.where, records, include_headers=options.include_headers)


def matching(cluster: Cluster, topics: Topics) -> list[TopicPartition]:
    """The partitions that the topic options mean now."""
    if topics.assigned:
        return list(topics.assigned)
    if topics.pattern is not None:
        pattern = re.compile(topics.pattern)
        names = tuple(name for name in cluster.topics() if pattern.fullmatch(name))
    else:
        names = topics.names
    return cluster.partitions(names)


def resolved(cluster: Cluster, partitions: list[TopicPartition], bound: Bound) -> Offsets:
    """Offsets that a bound means for each partition; raises OptionError where Spark's source refuses too."""
    if bound.special is not None:
        return cluster.offsets(dict.fromkeys(partitions, bound.special))
    if bound.offsets:
        if set(bound.offsets) != set(partitions):
            raise OptionError(
                "offsets per partition must name every partition that is read and no other: "
                f"named {sorted(bound.offsets)}, read {sorted(partitions)}"
            )
        special = {tp: o for tp, o in bound.offsets.items() if o in {EARLIEST, LATEST}}
        fixed = {tp: o for tp, o in bound.offsets.items() if tp not in special}
        return {**fixed, **cluster.offsets(special)}
    times = bound.timestamps_ms or dict.fromkeys(partitions, bound.timestamp_ms or 0)
    return _by_time(cluster, partitions, times, bound)


def _by_time(
    cluster: Cluster,
    partitions: list[TopicPartition],
    times: Mapping[TopicPartition, int],
    bound: Bound,
) -> Offsets:
    found = cluster.offsets_at(times)
    missing = sorted(tp for tp, offset in found.items() if offset is None)
    if missing and bound.unmatched == "error":
        raise OptionError(
            f"no record at or after the starting timestamp in {missing}; "
            "set startingOffsetsByTimestampStrategy=latest to start at their ends"
        )
    # partitions without a timestamp start at their end, as in Spark's source
    at_end = cluster.offsets(dict.fromkeys([*missing, *(set(partitions) - set(times))], LATEST))
    return {tp: offset for tp, offset in found.items() if offset is not None} | at_end


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        with Cluster(self.options.bootstrap, self.options.client) as cluster:
            partitions = matching(cluster, self.options.topics)
            start = resolved(cluster, partitions, self.options.starting)
            end = resolved(cluster, partitions, self.options.ending)
            earliest = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
        start = reachable(start, earliest, fail_on_data_loss=self.options.fail_on_data_loss)
        ranges = [OffsetRange(tp, start[tp], end[tp]) for tp in sorted(start)]
        return [Piece(r) for r in split(ranges, self.options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self.options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process on the driver for the whole query, apart from `read`, which runs in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._cluster: Cluster | None = None
        self._target: Offsets | None = None
        self._newest: tuple[float, Offsets] = (0.0, {})

    def __getstate__(self) -> dict[str, object]:
        # tasks get the options only; connections belong to this process
        return {"options": self.options}

    def __setstate__(self, state: dict[str, object]) -> None:
        options = state["options"]
        assert isinstance(options, SourceOptions)
        self.__init__(options)  # type: ignore[misc]  # the state is exactly the constructor's argument

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.options.bootstrap, self.options.client)
        return self._cluster

    def initialOffset(self) -> dict[str, dict[str, int]]:
        partitions = matching(self.cluster, self.options.topics)
        return to_json(resolved(self.cluster, partitions, self.options.starting))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        end = self._target if self._target is not None else self._latest()
        begin = from_json(start)
        new = [tp for tp in end if tp not in begin]
        if new:
            # a partition that appeared while the query runs is read from its first record
            begin |= self.cluster.offsets(dict.fromkeys(new, EARLIEST))
        # a partition that is gone keeps its offset: `partitions` decides whether that is an error
        end = {tp: max(end.get(tp, at), at) for tp, at in begin.items()}
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        return to_json(self._latest())

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[InputPartition]:
        begin, until = from_json(start), from_json(end)
        if begin == until:
            return []
        earliest = self.cluster.offsets(dict.fromkeys(until, EARLIEST))
        wanted = {tp: begin.get(tp, earliest.get(tp, 0)) for tp in until}
        reached = reachable(wanted, earliest, fail_on_data_loss=self.options.fail_on_data_loss)
        ranges = [OffsetRange(tp, reached[tp], until[tp]) for tp in sorted(reached)]
        return [Piece(r) for r in split(ranges, self.options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self.options, partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        group = self.options.client.get("group.id")
        if group:
            self.cluster.commit(group, from_json(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _latest(self) -> Offsets:
        asked, known = self._newest
        if known and time.monotonic() - asked < LATEST_CACHED_SECONDS:
            return known
        partitions = matching(self.cluster, self.options.topics)
        known = self.cluster.offsets(dict.fromkeys(partitions, LATEST))
        self._newest = (time.monotonic(), known)
        return known
