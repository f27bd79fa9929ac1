"""What this broker follows: partitions of which it has a replica, where the image says that another broker leads them."""

from collections.abc import Callable

import structlog

from logfleet.io.slices import Slices
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.image import Topic
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowerPartition, Replica

log = structlog.get_logger(__name__)


class Following:
    """broker_epoch: of the present registration, by which a follower is known to its leader; None while there is none.

    on_followed and on_unfollowed: called with each partition that this broker begins and ceases to follow. Another leader, or the same in
    another epoch, is another one to follow.
    """

    def __init__(self, node_id: int, table: PartitionTable) -> None:
        self.broker_epoch: int | None = None
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
        """End what is led elsewhere or in another epoch; the indexes of what is to begin, logs that are to be hosted without a leader too."""
        starting = []
        for index, state in enumerate(topic.partitions):
            replica = self._table.replica(topic.id, index)
            follows = self.follows(state)
            if isinstance(replica, FollowerPartition):
                as_it_is = (replica.leader, replica.leader_epoch)
                if not follows or as_it_is != (state.leader, state.leader_epoch):
                    self.end(replica)
                else:
                    follows = False  # it does already
            is_new = replica is None and self._node_id in state.replicas
            if (follows or is_new) and (topic.id, index) not in self._table.offline:
                starting.append(index)
            await self._slices.pause_if_due()
        return starting

    def begin(self, state: PartitionState, replica: Replica) -> None:
        """Follow the partition, if the registration stands still and it is not followed so already."""
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
        """Follow it no more; its log is still hosted."""
        self._table.add(Replica.of(followed))
        for callback in self.on_unfollowed:
            callback(followed)

    def resign(self) -> None:
        """The registration is over: nothing is followed until there is another."""
        self.broker_epoch = None
        for replica in self._table:
            if isinstance(replica, FollowerPartition):
                self.end(replica)
