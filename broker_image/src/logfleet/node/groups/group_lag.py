"""Lag of the groups that this broker coordinates, by partition, from memory: for metrics.

Only a partition's leader has its end offset, so the lag is known for partitions that this broker
leads itself; with one broker these are all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logfleet.groups.lag import lag
from logfleet.groups.offsets import ZERO_UUID
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.partitions.partition_table import PartitionTable


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's position in a partition.

    end_offset and lag are None where another broker leads the partition.
    """

    group: str
    topic: str
    partition: int
    committed: int
    end_offset: int | None
    lag: int | None


def group_lags(shards: Iterable[GroupShard], partitions: PartitionTable) -> Iterator[PartitionLag]:
    """Each offset committed with these coordinators for a topic that still exists, group by group.

    shards: `GroupCoordinators.shards`. The rows are made one by one: a caller with many of them
    lets other work run in between, and gets the state of that moment.
    """
    for shard in shards:
        if not shard.is_loaded or shard.is_closed:
            continue
        for group, topic, number, value in shard.coordinator.committed_offsets():
            hosted = partitions.by_name.get(topic)
            end_offset = None
            if hosted is not None:
                if bytes(value.topic_id) not in {ZERO_UUID, hosted.id}:
                    continue  # an offset of a deleted topic with the same name
                partition = hosted.partitions.get(number)
                end_offset = None if partition is None else partition.high_watermark
            behind = lag(end_offset, value.offset)
            yield PartitionLag(group, topic, number, value.offset, end_offset, behind)
