"""Streams: where a query starts, what each micro-batch holds, and what the checkpoint keeps."""

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
    of_other_topics,
    planned,
    recreated,
    recreated_losses,
    to_json,
    without_latest,
)
from logfleet_spark.options import EARLIEST, LATEST, SourceOptions
from logfleet_spark.planning import (
    ids_of,
    log_locality,
    matching,
    pieces,
    read_piece,
    starts,
    subscribed,
)

# An idle stream asks for the newest offsets every 10 ms (spark.sql.streaming.pollingDelay); the
# cluster is asked less often. It waits rather than gets an old answer: an end that is not the
# newest would let `processAllAvailable` return too early.
IDLE_ASK_SECONDS = 0.1
NO_LIMIT = 2**63 - 1
"""Offsets of a micro-batch: as many as there are."""


class RefusedStream(DataSourceStreamReader):
    """Raises what is wrong with a stream's options when Spark first asks for offsets.

    Spark hides an error of `streamReader` itself behind one of its own.
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
    """Lives in one process on the driver for the whole query; only `read` runs in the tasks."""

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
        """Nothing: `latestOffset` replies with the start, as the end of batch 0, which has no rows.

        So the start is in the checkpoint from then on, whatever becomes of batch 1: what is deleted
        before that is read is a loss, and partitions that appear are new. Spark's Kafka source has
        a file of its own in the checkpoint for it, of which a Python source knows nothing. Source:
        KafkaMicroBatchStream.getOrCreateInitialPartitionOffsets.
        """
        self._to_be_started = True
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        # never ReadAllAvailable: a trigger that runs once asks for that, and only that
        return ReadMaxRows(self.options.max_offsets_per_trigger or NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        # the end is taken when the query first asks: this is called before `initialOffset`, which
        # may lie later
        self._available_now = True

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """The end of the next micro-batch.

        A partition that is not visible keeps its offset: absence is not deletion, and what comes
        back is not read twice. A topic of another id than in `start` is another topic, which is
        read from its first record if the loss of the former one is accepted.
        """
        begin, first = self._begin(start)
        if self._target is None and begin in (self._reached, self._held_back):
            time.sleep(max(0.0, self._asked + IDLE_ASK_SECONDS - time.monotonic()))
        found, ids = self._latest() if self._target is None else self._target
        if first:
            begin = without_latest(self._starts(found), found)
        before = ids_from_json(start)
        if self._target is None and _lost(begin, before, found, ids):
            found, ids = self._latest()  # a broker may have lagged behind for a moment
        if self._available_now:
            self._target = found, ids
        # before this end stands in the checkpoint
        self._losses.take_standing(_lost(begin, before, found, ids))
        begin = of_other_topics(begin, recreated(before, ids))
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
        """Whether minOffsetsPerTrigger are there, or maxTriggerDelay is over.

        A run to the end (availableNow) waits for nothing. Source: KafkaMicroBatchStream.delayBatch
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
        """Where a batch begins, and whether it is batch 0.

        Spark calls `initialOffset` whenever the checkpoint has no offsets. No partition at all may
        be in the checkpoint too: those that appear then are new.
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
            # its end is its start, of whatever time; but for a trigger that runs once, which has
            # all in it
            begin = clamped(self._starts(until), until)
        topics = self.cluster.find(tp.topic for tp in until)
        ids, now = ids_from_json(end), ids_of(topics)
        self._losses.take(recreated_losses(ids, now))
        gone = recreated(ids, now)
        until = of_other_topics(until, gone)
        begin = of_other_topics(begin, [*gone, *recreated(ids_from_json(start), ids)])
        earliest = self.cluster.offsets(dict.fromkeys(until, EARLIEST), there=topics)
        ranges, lost = planned(begin, until, earliest)
        self._losses.take(lost)
        return pieces(ranges, self.options, {**now, **ids})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self.options, partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        group = self.options.client.group
        if group:
            self.cluster.commit(group, from_json(end), self._not_committed)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _latest(self) -> tuple[Offsets, TopicIds]:
        """Where the visible partitions end now, and the ids of their topics."""
        self._asked = time.monotonic()
        topics = subscribed(self.cluster, self.options.topics)
        if not self._is_locality_logged:
            log_locality(self.cluster, self.options, topics)
            self._is_locality_logged = True
        partitions = matching(topics, self.options.topics)
        self._newest = self.cluster.offsets(dict.fromkeys(partitions, LATEST), there=topics)
        return self._newest, ids_of(topics)


def _lost(begin: Offsets, before: TopicIds, found: Offsets, ids: TopicIds) -> list[Loss]:
    """The topics that are others now, and the partitions that are not visible or end lower."""
    others = recreated(before, ids)
    return recreated_losses(before, ids) + gone_or_lower(of_other_topics(begin, others), found)
