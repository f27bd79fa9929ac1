"""The Python data source `logfleet`: topics as DataFrames without any jar, for batch and streaming.

Columns and options are those of Spark's Kafka source (see options.py). Offsets live in the checkpoint; with
`kafka.group.id` set they are also committed to that group, so that its lag can be watched like any consumer's.
"""

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

import pyarrow as pa
from logfleet.client.metadata import Topic
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

from logfleet_spark.client_options import OptionError
from logfleet_spark.cluster import Cluster, partitions_of, refuse_made_anew
from logfleet_spark.losses import Losses
from logfleet_spark.offsets import (
    OffsetRange,
    Offsets,
    clamped,
    from_json,
    gone_or_lower,
    limited,
    planned,
    shared,
    split,
    to_json,
    without_latest,
)
from logfleet_spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    SinkOptions,
    SourceOptions,
    Topics,
    check_read,
    includes_headers,
    sink_options,
    source_options,
)
from logfleet_spark.sink import BatchWriter, StreamWriter

log = logging.getLogger(__name__)

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)
HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

# An idle stream asks for the newest offsets every 10 ms (spark.sql.streaming.pollingDelay); the cluster is asked less often.
# It waits rather than gets an old answer: an end that is not the newest would let `processAllAvailable` return too early.
IDLE_ASK_SECONDS = 0.1
NO_LIMIT = 2**63 - 1
"""Offsets of a micro-batch: as many as there are."""


FAR_MAX = 20
"""Partitions that a warning names."""
TASK_RECORDS = 10_000
"""Offsets of small ranges that share a task: less work than starting another one."""


class LogfleetSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "logfleet"

    def schema(self) -> str:
        """Spark asks for it at `load()`, where a wrong option is told too; whether it is for a stream is not known yet."""
        check_read(self._given)
        return _columns(self._given)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self._given, streaming=False)
        _check_schema(schema, self._given)
        _tell(options.unused)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = source_options(self._given, streaming=True)
            _check_schema(schema, self._given)
        except OptionError as problem:
            return RefusedStream(problem)
        _tell(options.unused)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 (Spark's signature)
        if overwrite:
            raise OptionError("mode overwrite: a topic can only be appended to; use mode append")
        return BatchWriter(self._sink(), _types(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001
        if overwrite:
            raise OptionError("output mode complete: a topic can only be appended to")
        return StreamWriter(self._sink(), _types(schema))

    def _sink(self) -> SinkOptions:
        options = sink_options(self._given)
        _tell(options.unused)
        return options

    @property
    def _given(self) -> MutableMapping[str, str]:
        return self.options


class Piece(InputPartition):
    """The offsets that one task reads; topic_ids: of the topics that they were planned for, but for those that were not there."""

    def __init__(self, ranges: tuple[OffsetRange, ...], topic_ids: Mapping[str, bytes]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.topic_ids = topic_ids


def read_piece(options: SourceOptions, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one task's offsets. Opens its own connections: it runs in a worker of its own."""
    if not isinstance(piece, Piece):
        return  # Spark makes one empty partition of its own where there are none
    with Cluster(options.bootstrap, options.client) as cluster:
        yield from cluster.read(
            piece.ranges,
            piece.topic_ids,
            losses=Losses(accepted=not options.fail_on_data_loss),
            include_headers=options.include_headers,
        )


def ids_of(topics: Iterable[Topic]) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in topics}


def tell_locality(cluster: Cluster, options: SourceOptions, topics: Sequence[Topic]) -> None:
    """Say of a plan what of it is read in the rack of `kafka.client.rack`, and warn of what is not.

    Spark 4.2 lets no Python source add to what `explain` shows (PythonScan.description), so it is in the driver's log.
    """
    rack = options.client.fetcher.get("rack")
    if rack is None:
        return
    far = cluster.far_from(rack, topics)
    count = len(partitions_of(topics))
    near = (
        f"kafka.client.rack={rack}: {count - len(far)} of {count} partitions have a replica there"
    )
    if far:
        log.warning("%s; read from elsewhere: %s", near, _listed(far[:FAR_MAX]))
    else:
        log.info(near)


def pieces(
    ranges: Sequence[OffsetRange], options: SourceOptions, ids: Mapping[str, bytes]
) -> list[InputPartition]:
    """What each task reads: small ranges share one, unless so many tasks are asked for."""
    cut = split(ranges, options.min_partitions, options.max_records_per_partition)
    together = 0 if options.min_partitions else TASK_RECORDS
    if options.max_records_per_partition:
        together = min(together, options.max_records_per_partition)
    return [
        Piece(task, {r.where.topic: ids[r.where.topic] for r in task if r.where.topic in ids})
        for task in shared(cut, together)
    ]


def subscribed(cluster: Cluster, wanted: Topics) -> list[Topic]:
    """The topics that the options mean now; raises OptionError for one, or a partition of one, that is not there."""
    if wanted.pattern is not None:
        return [topic for topic in cluster.topics() if wanted.pattern.search(topic.name)]
    names = wanted.names or [tp.topic for tp in wanted.assigned]
    found = cluster.find(names)
    missing = [name for name in names if name not in {topic.name for topic in found}]
    if missing:
        raise OptionError(f"topic {missing[0]} does not exist; create it or correct the name")
    return found


def matching(topics: Iterable[Topic], wanted: Topics) -> list[TopicPartition]:
    """The partitions of these topics that are to be read."""
    there = partitions_of(topics)
    missing = sorted(set(wanted.assigned) - set(there))
    if missing:
        raise OptionError(f"assign: partition {missing[0]} does not exist; correct the number")
    return list(wanted.assigned) or there


def starts(cluster: Cluster, partitions: list[TopicPartition], bound: Bound) -> Offsets:
    """Offsets that a bound means for each partition, LATEST for its end; raises OptionError where Spark's source refuses too."""
    if bound.special == LATEST:
        return dict.fromkeys(partitions, LATEST)
    if bound.special is not None:
        return cluster.offsets(dict.fromkeys(partitions, bound.special))
    if bound.timestamp_ms is not None:
        return _by_time(cluster, dict.fromkeys(partitions, bound.timestamp_ms), bound)
    named = bound.offsets or bound.timestamps_ms
    if set(named) != set(partitions):
        raise OptionError(
            "offsets or timestamps per partition must name every partition that is read and no other: "
            f"named {_listed(named)}, read {_listed(partitions)}"
        )
    if bound.timestamps_ms:
        return _by_time(cluster, bound.timestamps_ms, bound)
    earliest = {tp: o for tp, o in bound.offsets.items() if o == EARLIEST}
    fixed = {tp: o for tp, o in bound.offsets.items() if tp not in earliest}
    return {**fixed, **cluster.offsets(earliest)}


def resolved(cluster: Cluster, partitions: list[TopicPartition], bound: Bound) -> Offsets:
    """As `starts`, with the ends as they are now."""
    found = starts(cluster, partitions, bound)
    latest = {tp: o for tp, o in found.items() if o == LATEST}
    return {tp: o for tp, o in found.items() if o != LATEST} | cluster.offsets(latest)


def _by_time(cluster: Cluster, times: Mapping[TopicPartition, int], bound: Bound) -> Offsets:
    found = cluster.offsets_at(times)
    missing = [tp for tp, offset in found.items() if offset is None]
    if missing and bound.unmatched == "error":
        raise OptionError(
            f"no record at or after the starting timestamp in {_listed(missing)}; "
            "set startingOffsetsByTimestampStrategy=latest to start at their ends"
        )
    return {tp: LATEST if offset is None else offset for tp, offset in found.items()}


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(tp) for tp in sorted(partitions)) or "none"


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _columns(given: Mapping[str, str]) -> str:
    return COLUMNS + HEADERS if includes_headers(given) else COLUMNS


def _check_schema(schema: StructType, given: Mapping[str, str]) -> None:
    """Raises OptionError for a schema of the user's that is another one; Spark asks for ours only where there is none."""
    found = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    wanted = _columns(given)
    if found.replace(" ", "").lower() != wanted.replace(" ", "").lower():
        raise OptionError(
            f"schema: a topic's columns are {wanted}; leave .schema(...) out and select from these"
        )


def _tell(unused: Iterable[str]) -> None:
    for sentence in unused:
        log.warning("%s", sentence)


class RefusedStream(DataSourceStreamReader):
    """Raises what is wrong with a stream's options, which Spark asks for later: an error of `streamReader` itself is hidden by one of Spark's own."""

    def __init__(self, problem: OptionError) -> None:
        self._problem = problem

    def initialOffset(self) -> dict[str, dict[str, int]]:
        raise self._problem

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        raise self._problem

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[InputPartition]:
        raise self._problem

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._problem


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        with Cluster(self.options.bootstrap, self.options.client) as cluster:
            wanted = self.options.topics
            topics = subscribed(cluster, wanted)
            partitions = matching(topics, wanted)
            start = resolved(cluster, partitions, self.options.starting)
            end = resolved(cluster, partitions, self.options.ending)
            earliest = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
            tell_locality(cluster, self.options, topics)
            latest = cluster.offsets(dict.fromkeys(partitions, LATEST))
        after = [f"{tp} ({start[tp]} to {end[tp]})" for tp in sorted(end) if start[tp] > end[tp]]
        if after:
            raise OptionError(f"the start lies after the end in {', '.join(after)}; correct one")
        losses = Losses(accepted=not self.options.fail_on_data_loss)
        losses.take(gone_or_lower(end, latest))
        end = {tp: min(offset, latest.get(tp, 0)) for tp, offset in end.items()}
        ranges, lost = planned(start, end, earliest)
        losses.take(lost)
        return pieces(ranges, self.options, ids_of(topics))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self.options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process on the driver for the whole query, apart from `read`, which runs in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._cluster: Cluster | None = None
        self._available_now = False
        self._target: Offsets | None = None
        self._newest: Offsets = {}
        self._asked = 0.0
        self._ids: dict[str, bytes] = {}
        self._to_be_started = False
        self._triggered_s = -math.inf
        self._held_back: Offsets | None = None
        self._losses = Losses(accepted=not options.fail_on_data_loss)

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
        """Nothing, which `latestOffset` answers with where the query starts: the end of batch 0, which has no rows.

        So the start is in the checkpoint from then on, whatever becomes of batch 1: what is deleted before that is read is a loss, and
        partitions that appear are new. Spark's Kafka source has a file of its own in the checkpoint for it, of which a Python source
        knows nothing. Source: KafkaMicroBatchStream.getOrCreateInitialPartitionOffsets.
        """
        self._to_be_started = True
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        # never ReadAllAvailable: a trigger that runs once asks for that, and only that
        return ReadMaxRows(self.options.max_offsets_per_trigger or NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        # the end is taken when the query first asks: this is called before `initialOffset`, which may lie later
        self._available_now = True

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        begin, first = self._begin(start)
        if self._target is None and begin in (self._newest, self._held_back):
            time.sleep(max(0.0, self._asked + IDLE_ASK_SECONDS - time.monotonic()))
        end = self._latest() if self._target is None else self._target
        if first:
            begin = without_latest(self._starts(end), end)
        if self._target is None and gone_or_lower(begin, end):
            end = self._latest()  # a broker may have lagged behind for a moment
        if self._available_now:
            self._target = end
        self._losses.take(gone_or_lower(begin, end))  # before this end stands in the checkpoint
        if first and not isinstance(limit, ReadAllAvailable):
            return to_json(clamped(begin, end))
        new = [tp for tp in end if tp not in begin]
        if new:
            # a partition that appeared while the query runs is read from its first record
            begin |= self.cluster.offsets(dict.fromkeys(new, EARLIEST))
        if not isinstance(limit, ReadAllAvailable) and not self._is_enough(begin, end):
            self._held_back = from_json(start)
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return to_json(end)

    def _is_enough(self, begin: Offsets, end: Offsets) -> bool:
        """Whether a micro-batch starts: what is there is minOffsetsPerTrigger, or the last one is maxTriggerDelay ago.

        A run to the end (availableNow) waits for nothing. Source: KafkaMicroBatchStream.delayBatch of Spark's Kafka source.
        """
        if self.options.min_offsets_per_trigger is None or self._available_now:
            return True
        now_s = time.monotonic()
        there = sum(max(0, at - begin.get(tp, 0)) for tp, at in end.items())
        late = now_s - self._triggered_s >= self.options.max_trigger_delay_ms / 1000
        if there < self.options.min_offsets_per_trigger and not late:
            return False
        self._triggered_s = now_s
        return True

    def _begin(self, start: dict[str, dict[str, int]]) -> tuple[Offsets, bool]:
        """Where a batch begins, and whether it is batch 0: Spark asks for `initialOffset` whenever there is none in the checkpoint.

        No partition at all may be in the checkpoint too: those that appear then are new.
        """
        first, self._to_be_started = self._to_be_started and not start, False
        return from_json(start), first

    def _starts(self, read: Offsets) -> Offsets:
        """Where the query starts in these partitions."""
        return starts(self.cluster, sorted(read), self.options.starting)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        return to_json(self._newest)

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[InputPartition]:
        until = from_json(end)
        begin, first = self._begin(start)
        if first:
            # its end is its start, of whatever time; but for a trigger that runs once, which has all in it
            begin = clamped(self._starts(until), until)
        # none are known yet when a query that was started again reads its last batch once more
        ids = self._ids or ids_of(self.cluster.find(tp.topic for tp in until))
        earliest = self.cluster.offsets(dict.fromkeys(until, EARLIEST))
        ranges, lost = planned(begin, until, earliest)
        self._losses.take(lost)
        return pieces(ranges, self.options, ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self.options, partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        group = self.options.client.group
        if group:
            self.cluster.commit(group, from_json(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _latest(self) -> Offsets:
        """Where the partitions end now."""
        self._asked = time.monotonic()
        topics = self._topics()
        partitions = matching(topics, self.options.topics)
        self._newest = self.cluster.offsets(dict.fromkeys(partitions, LATEST), there=topics)
        return self._newest

    def _topics(self) -> list[Topic]:
        """What is to be read now. Raises DataLossError if a topic is another one than before (KIP-516)."""
        topics = subscribed(self.cluster, self.options.topics)
        if self.options.fail_on_data_loss:
            refuse_made_anew(ids_of(topics), self._ids)
        if not self._ids:
            tell_locality(self.cluster, self.options, topics)
        self._ids = ids_of(topics)
        return topics
