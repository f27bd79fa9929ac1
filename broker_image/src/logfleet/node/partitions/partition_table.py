"""The replicas of this broker and the partitions that it leads, by topic name and by topic id.

For a partition that it does not lead, the table gives the error to answer.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.offline import OfflinePartitions
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.node.partitions.traffic import Traffic
from logfleet.replication.fetch_check import leader_epoch_error
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode


class HostedTopic:
    """A topic of which this broker has replicas.

    partitions: those that it leads. former_traffic: the traffic of roles that have ended.
    """

    __slots__ = ("former_traffic", "id", "name", "partitions", "replicas")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, LeaderPartition] = {}
        self.replicas: dict[int, Replica] = {}
        self.former_traffic = Traffic()


class Leader(msgspec.Struct, frozen=True):
    """The leader of a partition by the image (KIP-951).

    host is None if that broker is not there.
    """

    broker_id: int
    leader_epoch: LeaderEpoch
    host: str | None = None
    port: int = 0
    rack: str | None = None


class PartitionTable:
    """by_name and by_id are read on every produce and fetch; only `add` and `remove` change them.

    former_traffic: the traffic of topics that are hosted no more. replicated: bytes copied from
    leaders, and sent to followers.
    """

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self.by_name: dict[str, HostedTopic] = {}
        self.by_id: dict[bytes, HostedTopic] = {}
        self.former_traffic = Traffic()
        self.replicated = Traffic()
        self.offline = OfflinePartitions()
        self.unstarted: set[tuple[bytes, int]] = set()  # the disk has no space for their logs

    def __iter__(self) -> Iterator[Replica]:
        """All replicas, in any role."""
        for topic in list(self.by_id.values()):
            yield from list(topic.replicas.values())

    def __len__(self) -> int:
        return sum(len(topic.replicas) for topic in self.by_id.values())

    def led(self) -> Iterator[LeaderPartition]:
        """The replicas of which this broker is the leader."""
        for topic in list(self.by_id.values()):
            yield from list(topic.partitions.values())

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The high watermarks of all replicas."""
        return {
            TopicPartition(replica.topic, replica.index): replica.high_watermark for replica in self
        }

    def high_watermark_of(self, name: TopicPartition) -> int | None:
        """The replica's high watermark, None if this broker has no replica."""
        topic = self.by_name.get(name.topic)
        replica = None if topic is None else topic.replicas.get(name.partition)
        return None if replica is None else replica.high_watermark

    def replica(self, topic_id: bytes, index: int) -> Replica | None:
        """The replica in its present role, None if its log is not hosted."""
        hosted = self.by_id.get(topic_id)
        return None if hosted is None else hosted.replicas.get(index)

    def add(self, replica: Replica) -> None:
        """The replica has this role from now on; its former role ends and notifies its waiters."""
        topic = self.by_id.get(replica.topic_id)
        if topic is None:
            topic = HostedTopic(replica.topic, replica.topic_id)
            self.by_id[replica.topic_id] = self.by_name[replica.topic] = topic
        former = topic.replicas.get(replica.index)
        topic.replicas[replica.index] = replica
        if former is not None:
            self._end(topic, former)
        if isinstance(replica, LeaderPartition):
            topic.partitions[replica.index] = replica

    def remove(self, replica: Replica) -> None:
        """Stop hosting it, in whatever role it is by now."""
        topic = self.by_id[replica.topic_id]
        former = topic.replicas.pop(replica.index)
        self._end(topic, former)
        if not topic.replicas:
            self.former_traffic.add(topic.former_traffic)
            del self.by_id[topic.id]
            if self.by_name.get(topic.name) is topic:  # else a new topic has this name already
                del self.by_name[topic.name]

    @staticmethod
    def _end(topic: HostedTopic, former: Replica) -> None:
        if isinstance(former, LeaderPartition):
            del topic.partitions[former.index]
        topic.former_traffic.add(former.traffic)
        former.end()

    def remove_topic(self, topic_id: bytes) -> None:
        """The topic was deleted: none of its partitions is offline or waits to be started."""
        self.offline.remove_topic(topic_id)
        self.unstarted = {each for each in self.unstarted if each[0] != topic_id}

    def get(self, topic: str, index: int) -> LeaderPartition | None:
        """The partition if this broker leads it."""
        hosted = self.by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def get_by_id(self, topic_id: bytes, index: int) -> LeaderPartition | None:
        """As `get`, by the topic's id."""
        hosted = self.by_id.get(topic_id)
        return None if hosted is None else hosted.partitions.get(index)

    def find(self, topic: str, index: int) -> LeaderPartition | ErrorCode:
        """The partition by its topic's name, or the error to answer."""
        hosted = self.by_name.get(topic)
        if hosted is not None and (partition := hosted.partitions.get(index)) is not None:
            return partition
        return self.error_for(topic, index)

    def leaderless_replica(self, topic: str, index: int) -> Replica | None:
        """The replica by its topic's name, if its role is neither leader nor follower."""
        hosted = self.by_name.get(topic)
        replica = None if hosted is None else hosted.replicas.get(index)
        return None if isinstance(replica, LeaderPartition | FollowerPartition) else replica

    def find_in_epoch(
        self, topic: str, index: int, epoch: LeaderEpoch
    ) -> LeaderPartition | ErrorCode:
        """As `find`, but checks the leader epoch that the client sent (NO_EPOCH: none).

        Followers check it too (Partition.getLocalLog).
        """
        hosted = self.by_name.get(topic)
        replica = None if hosted is None else hosted.replicas.get(index)
        if isinstance(replica, LeaderPartition | FollowerPartition):
            other_epoch = leader_epoch_error(epoch, replica.leader_epoch)
            if other_epoch is not ErrorCode.NONE:
                return other_epoch
        return self.find(topic, index)

    def find_by_id(self, topic_id: bytes, index: int) -> LeaderPartition | ErrorCode:
        """The partition by its topic's id, or the error to answer."""
        hosted = self.by_id.get(topic_id)
        if hosted is not None and (partition := hosted.partitions.get(index)) is not None:
            return partition
        return self.error_for_id(topic_id, index)

    def error_for(self, topic: str, index: int) -> ErrorCode:
        """The error for a partition that this broker does not serve."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._error_for(self._image().topic(topic), index, unknown)

    def error_for_id(self, topic_id: bytes, index: int) -> ErrorCode:
        return self._error_for(
            self._image().topic_by_id(topic_id), index, ErrorCode.UNKNOWN_TOPIC_ID
        )

    def _error_for(self, topic: Topic | None, index: int, unknown: ErrorCode) -> ErrorCode:
        if topic is None:
            return unknown
        if not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic.id, index) in self.offline or (topic.id, index) in self.unstarted:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def leader_of(self, topic: Topic | None, index: int, listener: str) -> Leader | None:
        """The partition's leader (NO_LEADER: none) and its address on the listener.

        None if there is no such partition.
        """
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        state = topic.partitions[index]
        broker = self._image().brokers.get(state.leader)
        address = broker.listener(listener) if broker is not None else None
        if broker is None or address is None:
            return Leader(state.leader, state.leader_epoch)
        return Leader(state.leader, state.leader_epoch, address.host, address.port, broker.rack)

    def leader_by_name(self, topic: str, index: int, listener: str) -> Leader | None:
        return self.leader_of(self._image().topic(topic), index, listener)

    def leader_by_id(self, topic_id: bytes, index: int, listener: str) -> Leader | None:
        return self.leader_of(self._image().topic_by_id(topic_id), index, listener)
