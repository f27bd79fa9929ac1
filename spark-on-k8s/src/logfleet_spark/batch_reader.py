"""Spark's batch reads of topics."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from logfleet_spark.client_options import OptionError
from logfleet_spark.cluster import Cluster
from logfleet_spark.losses import Losses
from logfleet_spark.offsets import OffsetRange, gone_or_lower, planned
from logfleet_spark.options import EARLIEST, LATEST, SourceOptions
from logfleet_spark.planning import (
    ids_of,
    log_locality,
    matching,
    pieces,
    read_task,
    resolved,
    subscribed,
)
from logfleet_spark.pushdown import Cut, translate_filters


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.cut = Cut()

    def partitions(self) -> list[InputPartition]:
        with Cluster(self.options.bootstrap, self.options.client) as cluster:
            wanted = self.options.topics
            topics = subscribed(cluster, wanted)
            partitions = matching(topics, wanted)
            start = resolved(cluster, partitions, self.options.starting)
            end = resolved(cluster, partitions, self.options.ending)
            earliest = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
            log_locality(cluster, self.options, topics)
            latest = cluster.offsets(dict.fromkeys(partitions, LATEST))
            after = [
                f"{tp} ({start[tp]} to {end[tp]})" for tp in sorted(end) if start[tp] > end[tp]
            ]
            if after:
                raise OptionError(
                    f"the start lies after the end in {', '.join(after)}; correct one"
                )
            losses = Losses(accepted=not self.options.fail_on_data_loss)
            losses.take(gone_or_lower(end, latest))
            end = {tp: min(offset, latest.get(tp, 0)) for tp, offset in end.items()}
            ranges, lost = planned(start, end, earliest)
            losses.take(lost)
            return pieces(self._cut(cluster, ranges), self.options, ids_of(topics))

    def _cut(self, cluster: Cluster, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Narrow the ranges to the offsets that the filters select.

        Call this last, after all checks: the same reads are refused whether or not Spark pushes
        filters down.
        """
        wanted = self.cut.partitions(ranges)
        if self.cut.from_ms is None:
            return self.cut.offsets(wanted, {})
        times = dict.fromkeys((r.where for r in wanted), self.cut.from_ms)
        return self.cut.offsets(wanted, cluster.offsets_at(times))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition)


class FilteringReader(BatchReader):
    """A batch read whose filters narrow the ranges of offsets that are read.

    It is a separate class because Spark refuses to plan a reader that has `pushFilters` while
    Spark's own setting for pushdown is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.cut, left = translate_filters(filters)
        return left
