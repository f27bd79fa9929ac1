"""Follows partitions of which this broker has a replica and another broker is the leader."""

from collections.abc import Callable

import structlog

from logfleet.io.slices import Slices
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.image import Topic
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.types import BrokerEpoch

log = structlog.get_logger(__name__)


class Following:
    """The partitions that this broker follows.

    broker_epoch: of the present registration, sent to leaders; None while there is none.
    on_followed and on_unfollowed: called with each partition that this broker starts and stops
    following. A new leader, or a new leader epoch, stops one and starts another.
    """

    def __init__(self, node_id: int, table: PartitionTable) -> None:
        self.broker_epoch: BrokerEpoch | None = None
        self.on_followed: list[Callable[[FollowerPartition], None]] = []
        self.on_unfollowed: list[Callable[[FollowerPartition], None]] = []
        self._node_id = node_id
        self._table = table
        self._slices = Slices()

    def follows(self, state: PartitionState) -> bool:
        """Whether this broker is to follow the partition."""
        return (
            self.broker_epoch is not None
            and self._node_id in state.replicas
            and state.has_leader
            and state.leader != self._node_id
        )

    async def follow(self, topic: Topic) -> list[int]:
        """End the roles that the topic's new state ends; return the indexes of those to begin.

        These include partitions that have no leader: their logs are to be hosted too.
        """
        starting = []
        for index, state in enumerate(topic.partitions):
            replica = self._table.replica(topic.id, index)
            follows = self.follows(state)
            if isinstance(replica, FollowerPartition):
                as_it_is = (replica.leader, replica.leader_epoch)
                if not follows or as_it_is != (state.leader, state.leader_epoch):
                    self.end(replica)
                else:
                    follows = False  # the replica follows this leader already
            is_new = replica is None and self._node_id in state.replicas
            if (follows or is_new) and (topic.id, index) not in self._table.offline:
                starting.append(index)
            await self._slices.pause_if_due()
        return starting

    def begin(self, state: PartitionState, replica: Replica) -> None:
        """Follow the partition, if the registration still stands and it is not followed already."""
        if not self.follows(state):
            return
        if isinstance(replica, FollowerPartition):
            as_it_is = (replica.leader, replica.leader_epoch)
            assert as_it_is == (state.leader, state.leader_epoch), (
                "a role ends before another begins"
            )
            return
        followed = FollowerPartition(replica, state.leader, state.leader_epoch)
        self._table.add(followed)
        log.debug(
            "following",
            topic=followed.topic,
            partition=followed.index,
            leader=followed.leader,
            leader_epoch=followed.leader_epoch,
        )
        for callback in self.on_followed:
            callback(followed)

    def end(self, followed: FollowerPartition) -> None:
        """Stop following it; its log is still hosted."""
        self._table.add(Replica.of(followed))
        for callback in self.on_unfollowed:
            callback(followed)

    def resign(self) -> None:
        """The registration has ended: follow nothing until there is another."""
        self.broker_epoch = None
        for replica in self._table:
            if isinstance(replica, FollowerPartition):
                self.end(replica)
