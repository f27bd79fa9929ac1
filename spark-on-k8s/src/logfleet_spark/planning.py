"""Plans a read: its topics, where it starts and ends, and the offsets that each task reads."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from logfleet.client.metadata import Topic
from logfleet.client.offsets import TopicPartition
from logfleet.wire.schema import ZERO_UUID
from pyspark.sql.datasource import InputPartition

from logfleet_spark.client_options import OptionError
from logfleet_spark.cluster import Cluster, partitions_of
from logfleet_spark.kept import kept_cluster
from logfleet_spark.losses import Losses
from logfleet_spark.offsets import OffsetRange, Offsets, TopicIds, shared, split
from logfleet_spark.options import EARLIEST, LATEST, Bound, SourceOptions, Topics

log = logging.getLogger(__name__)

FAR_MAX = 20
"""Largest number of partitions that a warning names."""
TASK_RECORDS = 10_000
"""Small ranges share a task up to this many offsets; reading them costs less than another task."""


class Piece(InputPartition):
    """The offsets that one task reads.

    topic_ids: ids of the topics at the time of planning; topics without an id are missing.
    """

    def __init__(self, ranges: tuple[OffsetRange, ...], topic_ids: TopicIds) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.topic_ids = topic_ids


def read_task(options: SourceOptions, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task's offsets.

    It runs in a Python worker, which keeps its connection for the next task.
    """
    if not isinstance(piece, Piece):
        return  # where a plan has no partitions, Spark makes an empty one
    with kept_cluster(options.bootstrap, options.client) as cluster:
        yield from cluster.read(
            piece.ranges,
            piece.topic_ids,
            losses=Losses(accepted=not options.fail_on_data_loss),
            columns=options.columns,
        )


def ids_of(topics: Iterable[Topic]) -> dict[str, bytes]:
    """Return the ids of topics by name; brokers before KIP-516 have none."""
    return {topic.name: topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID}


def log_locality(cluster: Cluster, options: SourceOptions, topics: Sequence[Topic]) -> None:
    """Log how many partitions have a replica in `kafka.client.rack`, and warn about the others.

    It is in the driver's log because Spark 4.2 does not let a Python source add to the output of
    `explain` (PythonScan.description).
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
    ranges: Sequence[OffsetRange], options: SourceOptions, ids: TopicIds
) -> list[InputPartition]:
    """Divide the ranges into tasks. Small ranges share a task, unless `minPartitions` is set."""
    cut = split(ranges, options.min_partitions, options.max_records_per_partition)
    together = 0 if options.min_partitions else TASK_RECORDS
    if options.max_records_per_partition:
        together = min(together, options.max_records_per_partition)
    return [
        Piece(task, {r.where.topic: ids[r.where.topic] for r in task if r.where.topic in ids})
        for task in shared(cut, together)
    ]


def subscribed(cluster: Cluster, wanted: Topics) -> list[Topic]:
    """Return the topics that the options select now.

    Raises OptionError for a topic that does not exist.
    """
    if wanted.pattern is not None:
        return [topic for topic in cluster.topics() if wanted.pattern.search(topic.name)]
    names = wanted.names or [tp.topic for tp in wanted.assigned]
    found = cluster.find(names)
    missing = [name for name in names if name not in {topic.name for topic in found}]
    if missing:
        raise OptionError(f"topic {missing[0]} does not exist; create it or correct the name")
    return found


def matching(topics: Iterable[Topic], wanted: Topics) -> list[TopicPartition]:
    """Return the partitions of these topics that the options select.

    Raises OptionError for a partition that does not exist.
    """
    there = partitions_of(topics)
    missing = sorted(set(wanted.assigned) - set(there))
    if missing:
        raise OptionError(f"assign: partition {missing[0]} does not exist; correct the number")
    return list(wanted.assigned) or there


def starts(cluster: Cluster, partitions: list[TopicPartition], bound: Bound) -> Offsets:
    """Return the offset that a bound selects in each partition; LATEST stands for the end.

    Raises OptionError where Spark's source also refuses.
    """
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
    """As `starts`, with the current end offset in the place of LATEST."""
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
