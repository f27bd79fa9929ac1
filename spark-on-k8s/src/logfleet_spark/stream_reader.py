"""Streams: where a query starts, what a micro-batch holds, and what the checkpoint keeps."""

import math
import time
from collections.abc import Iterator

import pyarrow as pa
from logfleet.client.offsets import TopicPartition
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logfleet_spark.client_options import OptionError
from logfleet_spark.cluster import Cluster
from logfleet_spark.losses import Losses
from logfleet_spark.offsets import (
    Loss,
    Offsets,
    TopicIds,
    clamped,
    from_json,
    gone_or_lower,
    ids_from_json,
    limited,
    planned,
    recreated,
    recreated_losses,
    to_json,
    without_latest,
    without_topics,
)
from logfleet_spark.options import EARLIEST, SourceOptions
from logfleet_spark.planning import (
    ids_of,
    log_locality,
    matching,
    pieces,
    read_task,
    starts,
    subscribed,
)

# An idle stream asks for the newest offsets every 10 ms (spark.sql.streaming.pollingDelay), which is
# more often than brokers should be asked. The stream then waits; a cached answer would let
# `processAllAvailable` return too early.
IDLE_ASK_SECONDS = 0.1
NO_LIMIT = 2**63 - 1
"""Offsets of a micro-batch if none are configured."""


class RefusedStream(DataSourceStreamReader):
    """A stream whose options are wrong: raises the error when Spark first asks for offsets.

    Raised in `streamReader`, Spark would hide it behind an error of its own.
    """

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


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process on the driver for the whole query; tasks call only `read`."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._cluster: Cluster | None = None
        self._available_now = False
        self._target: tuple[Offsets, TopicIds] | None = None
        self._newest: Offsets = {}
        self._reached: Offsets | None = None
        self._asked = 0.0
        self._is_locality_logged = False
        self._to_be_started = False
        self._triggered_s = -math.inf
        self._held_back: Offsets | None = None
        self._losses = Losses(accepted=not options.fail_on_data_loss)
        self._not_committed: set[TopicPartition] = set()

    def __getstate__(self) -> dict[str, object]:
        # tasks get only the options; connections belong to this process
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
        """Return no offsets: batch 0 has no rows, and its end is the start of the query.

        `latestOffset` returns that end, so the checkpoint holds the start from batch 0 on, even if
        batch 1 fails. Records that are deleted before batch 1 reads them then count as lost, and
        partitions that appear later count as new. Spark's Kafka source stores the start in a file
        of its own in the checkpoint, which a Python source cannot reach. Source:
        KafkaMicroBatchStream.getOrCreateInitialPartitionOffsets.
        """
        self._to_be_started = True
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        # never ReadAllAvailable: `latestOffset` recognises a trigger that runs once by it
        return ReadMaxRows(self.options.max_offsets_per_trigger or NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        # the end is determined when the query first asks for it: Spark calls this method before
        # `initialOffset`, and the start must not lie behind the end
        self._available_now = True

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """Return the end of the next micro-batch; `start` itself if it is too early for a batch.

        A partition that is not visible keeps its offset: it may only be unavailable, and must not
        be read twice when it is back. A topic with another id than in `start` was deleted and
        created again: if losses are accepted, it is read from its first record.
        """
        begin, first = self._begin(start)
        if self._target is None and begin in (self._reached, self._held_back):
            time.sleep(max(0.0, self._asked + IDLE_ASK_SECONDS - time.monotonic()))
        found, ids = self._latest(begin) if self._target is None else self._target
        if first:
            begin = without_latest(self._starts(found), found)
        before = ids_from_json(start)
        if self._target is None and _lost(begin, before, found, ids):
            found, ids = self._latest(begin)  # the broker that answered may have lagged behind
        if self._available_now:
            self._target = found, ids
        # check for losses before Spark writes this end to the checkpoint
        self._losses.take_standing(_lost(begin, before, found, ids))
        begin = without_topics(begin, recreated(before, ids))
        end = begin | found
        ids = {**before, **ids}
        self._reached = end
        if first and not isinstance(limit, ReadAllAvailable):
            return to_json(clamped(begin, end), ids)
        new = [tp for tp in end if tp not in begin]
        if new:
            # a partition that appeared while the query runs is read from its first record
            begin |= self.cluster.offsets(dict.fromkeys(new, EARLIEST))
        if not isinstance(limit, ReadAllAvailable) and not self._is_enough(begin, end):
            self._held_back = from_json(start)
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return to_json(end, ids)

    def _is_enough(self, begin: Offsets, end: Offsets) -> bool:
        """Return whether minOffsetsPerTrigger offsets are available, or maxTriggerDelay is over.

        A query with the trigger availableNow never waits. Source: KafkaMicroBatchStream.delayBatch
        of Spark's Kafka source.
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
        """Return the offsets at which a batch begins, and whether it is batch 0.

        Spark calls `initialOffset` whenever the checkpoint has no offsets, so only then may an
        empty start mean batch 0. A later batch also has an empty start if no partition existed; all
        partitions are new then.
        """
        first, self._to_be_started = self._to_be_started and not start, False
        return from_json(start), first

    def _starts(self, read: Offsets) -> Offsets:
        """Return the offsets at which the query starts in the partitions of `read`."""
        return starts(self.cluster, sorted(read), self.options.starting)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        return to_json(self._newest)

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[InputPartition]:
        until = from_json(end)
        begin, first = self._begin(start)
        if first:
            # batch 0 ends where it starts, so these ranges are empty; with a trigger that runs once
            # it holds everything up to the end
            begin = clamped(self._starts(until), until)
        topics = self.cluster.find(tp.topic for tp in until)
        ids, now = ids_from_json(end), ids_of(topics)
        self._losses.take(recreated_losses(ids, now))
        gone = recreated(ids, now)
        until = without_topics(until, gone)
        begin = without_topics(begin, [*gone, *recreated(ids_from_json(start), ids)])
        earliest = self.cluster.offsets(dict.fromkeys(until, EARLIEST), there=topics)
        ranges, lost = planned(begin, until, earliest)
        self._losses.take(lost)
        return pieces(ranges, self.options, {**now, **ids})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        group = self.options.client.group
        if group:
            self.cluster.commit(group, from_json(end), self._not_committed)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _latest(self, begin: Offsets) -> tuple[Offsets, TopicIds]:
        """Return the current ends of the visible partitions, and the ids of their topics.

        begin: what was read before; no partition that holds these records ends below it.
        """
        self._asked = time.monotonic()
        topics = subscribed(self.cluster, self.options.topics)
        if not self._is_locality_logged:
            log_locality(self.cluster, self.options, topics)
            self._is_locality_logged = True
        partitions = matching(topics, self.options.topics)
        self._newest = self.cluster.ends(partitions, begin, there=topics)
        return self._newest, ids_of(topics)


def _lost(begin: Offsets, before: TopicIds, found: Offsets, ids: TopicIds) -> list[Loss]:
    """Return the losses between two sets of offsets.

    They are the recreated topics, and the partitions that are not visible or end lower than
    `begin`.
    """
    others = recreated(before, ids)
    return recreated_losses(before, ids) + gone_or_lower(without_topics(begin, others), found)
