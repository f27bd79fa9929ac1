"""What the handlers of groups and their offsets need of the broker they run in."""

from typing import Protocol

from logfleet.metadata.image import ClusterImage
from logfleet.node.groups.coordinator_loop import CoordinatorLoop
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.wire.errors import ErrorCode


class GroupHost(Protocol):
    """A broker, as far as these handlers see it. image: the newest."""

    @property
    def image(self) -> ClusterImage: ...
    @property
    def partitions(self) -> PartitionTable: ...
    @property
    def coordinators(self) -> CoordinatorLoop: ...


def shard_of(broker: GroupHost, group_id: str) -> GroupShard | ErrorCode:
    """The coordinator of a group, or why this broker has none."""
    coordinators = broker.coordinators
    return coordinators.shard_of(group_id, coordinators.partitions(broker.image))
