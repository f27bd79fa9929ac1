"""A partition of three replicas at its leader, broker 1; the test makes the others' fetches."""

from typing import Any

from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.replication.ends import ReplicaEnds
from logfleet.replication.leader import LeaderReplicas
from logfleet.replication.partition_state import Member
from logfleet.replication.waiters import Waiter
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire.errors import ErrorCode

LAG_MAX_MS = 30_000
A, B, C = ((each, BrokerEpoch(10 * each)) for each in (1, 2, 3))
STATE = PartitionValue((1, 2, 3), (A, B, C), 1, LeaderEpoch(5), PartitionEpoch(1), 2)


def replicated(log_end_offset: int = 0, **changes: object) -> LeaderReplicas:
    """changes: fields of the partition's state."""
    return LeaderReplicas(
        1,
        STATE.changed(**changes),
        7,
        ends=ReplicaEnds(log_end_offset=log_end_offset),
        lag_max_ms=LAG_MAX_MS,
        now_ms=0,
    )


def fetch(partition: LeaderPartition, member: Member, offset: int, *, start: int = 0) -> ErrorCode:
    """The member has everything below the offset."""
    return partition.fetched(*member, offset, start, now_ms=0)


def shrink(partition: LeaderPartition, *isr: Any) -> None:
    """The image shows an ISR of these."""
    state = partition.replicas_state.state
    assert partition.learned(state.changed(isr=isr), partition.replicas_state.revision + 1)


class Told(Waiter):
    """Waits for a partition and keeps its notifications."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.writes: list[int] = []
        self.lost = 0
        self.starts = 0

    def log_start_moved(self) -> None:
        self.starts += 1

    def committed(self, size: int) -> None:
        self.sizes.append(size)

    def written(self, size: int) -> None:
        self.writes.append(size)

    def role_ended(self) -> None:
        self.lost += 1
