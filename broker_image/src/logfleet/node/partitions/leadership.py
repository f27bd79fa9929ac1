"""Leads a partition only if the image gives it to this broker's present registration.

It serves the partition once the new leader epoch is on disk (KAFKA-16541).

While the metadata store does not answer, a partition for which other brokers do not confirm this
leader is suspended (`logfleet.node.cluster.failsafe`): this broker stops leading it, but keeps the
state of the replicas. If the store answers again and the registration still stands, it goes on with
that state in the same leader epoch.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable

import structlog

from logfleet.io.clock import monotonic_ms
from logfleet.io.slices import Slices
from logfleet.log.flushing.flusher import Flusher
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image import Partition as PartitionState
from logfleet.node.partitions.leader_partition import FlushRule, LeaderPartition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.replication.leader import LeaderReplicas
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch

log = structlog.get_logger(__name__)

Key = tuple[bytes, int]
"""Topic id and index of a partition."""
# Writes of leader epochs in parallel in one log directory.
EPOCH_WRITES_MAX = 8
LAG_MAX_MS = 30_000


class Leadership:
    """The partitions that this broker leads.

    rule: decides when records of any of them are committed. lag_max_ms: replica.lag.time.max.ms.
    broker_epoch: of the current registration, None while there is none. on_led, on_lost: called
    with each partition that this broker starts or stops leading.
    """

    def __init__(
        self,
        node_id: int,
        table: PartitionTable,
        flusher: Flusher,
        rule: FlushRule | None = None,
        lag_max_ms: int = LAG_MAX_MS,
    ) -> None:
        self.broker_epoch: BrokerEpoch | None = None
        self.on_led: list[Callable[[LeaderPartition], None]] = []
        self.on_lost: list[Callable[[LeaderPartition], None]] = []
        self._node_id = node_id
        self._table = table
        self._flusher = flusher
        self._rule = rule
        self.lag_max_ms = lag_max_ms
        self._epoch_writes: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(EPOCH_WRITES_MAX)
        )
        self._slices = Slices()
        self._suspended: dict[Key, LeaderReplicas] = {}
        self._resuming: dict[Key, LeaderReplicas] = {}

    @property
    def member(self) -> Member | None:
        """The present registration, None while there is none."""
        return None if self.broker_epoch is None else (self._node_id, self.broker_epoch)

    def leads(self, state: PartitionState) -> bool:
        """Whether this broker is to lead the partition, by its present registration."""
        return (
            state.leader == self._node_id
            and self.broker_epoch is not None
            and (self._node_id, self.broker_epoch) in state.isr
        )

    def leads_its_own(self, image: ClusterImage) -> bool:
        """Whether this broker is active and leads all partitions of which it has the only replica.

        Those that are offline do not count.
        """
        broker = image.brokers.get(self._node_id)
        if broker is None or broker.epoch != self.broker_epoch or not broker.is_active:
            return False
        return all(
            self.leads(state) or (topic.id, index) in self._table.offline
            for topic in image.topics()
            for index, state in enumerate(topic.partitions)
            if state.replicas == (self._node_id,)
        )

    async def follow(self, topic: Topic) -> list[int]:
        """End the leaderships that the topic's new state ends; return the indexes to begin."""
        starting = []
        for index, state in enumerate(topic.partitions):
            partition = self._table.get_by_id(topic.id, index)
            leads = self.leads(state)
            if not leads:
                self._table.unstarted.discard((topic.id, index))
                self._suspended.pop((topic.id, index), None)
                self._resuming.pop((topic.id, index), None)
            if partition is not None:
                same = leads and partition.leader_epoch == state.leader_epoch
                if not (same and partition.learned(state, state.revision)):
                    self.end(partition)
                    partition = None
            if leads and partition is None and (topic.id, index) not in self._table.offline:
                starting.append(index)
            await self._slices.pause_if_due()
        return starting

    async def begin(
        self,
        state: PartitionState,
        replica: Replica,
        newest: Callable[[], PartitionState | None],
    ) -> None:
        """Lead the partition once its leader epoch is on disk, if it is still to be led in it then.

        newest: its state by the newest image, None if it is not hosted here any more. The disk may
        take long, and images arrive meanwhile. Raises OSError. No leader epoch is led twice (Kafka:
        Partition.makeLeader), except by `resume`: an answer of the store may end it sooner than the
        image does.
        """
        key = (replica.topic_id, replica.index)
        if state.leader_epoch <= replica.led_epoch and key not in self._resuming:
            return
        replica.log.start_epoch(state.leader_epoch)
        async with self._epoch_writes[replica.log.disk.path]:
            await self._flusher.flush(replica.log)
        self._table.unstarted.discard(key)
        written, now = state.leader_epoch, newest()
        if now is None or now.leader_epoch != written or not self.leads(now):
            return  # for example, the registration has ended
        state = now
        kept = self._resuming.pop(key, None)
        if kept is not None and kept.learned(state, state.revision):
            self._lead(replica, kept)
        elif state.leader_epoch > replica.led_epoch:
            self._lead(replica, self._new_replicas(state, replica))

    def _new_replicas(self, state: PartitionState, replica: Replica) -> LeaderReplicas:
        """The state at the start of a leader epoch: only what the image and the own log show."""
        return LeaderReplicas(
            self._node_id,
            state,
            state.revision,
            ends=replica.ends,
            lag_max_ms=self.lag_max_ms,
            now_ms=monotonic_ms(),
        )

    def _lead(self, replica: Replica, replicas_state: LeaderReplicas) -> None:
        leader_epoch = replicas_state.state.leader_epoch
        partition = LeaderPartition(
            replica.topic,
            replica.topic_id,
            replica.index,
            replica.log,
            leader_epoch,
            rule=self._rule,
            replicas_state=replicas_state,
        )
        self._table.add(partition)
        log.debug(
            "leading", topic=partition.topic, partition=partition.index, leader_epoch=leader_epoch
        )
        for callback in self.on_led:
            callback(partition)

    def end(self, partition: LeaderPartition) -> None:
        """Stop leading the partition; its log is still hosted."""
        self._table.add(Replica.of(partition))
        log.debug("no_longer_leading", topic=partition.topic, partition=partition.index)
        for callback in self.on_lost:
            callback(partition)

    @property
    def suspended(self) -> int:
        """The number of suspended partitions."""
        return len(self._suspended)

    def suspend(self, partition: LeaderPartition) -> None:
        """Stop leading the partition for now; `resume` may continue it in the same leader epoch.

        It keeps the state of the replicas: an ISR change in flight may be written at any time, and
        its members count until that is settled (KIP-497).
        """
        self._suspended[partition.topic_id, partition.index] = partition.replicas_state
        self.end(partition)

    def resume(self, may_lead: Callable[[Key, LeaderReplicas], bool]) -> set[bytes]:
        """Resume suspended partitions; return the ids of their topics, to apply the image to again.

        may_lead: which to resume. Those with an ISR change in flight stay suspended until it is
        settled.
        """
        resumed = {
            key: kept
            for key, kept in self._suspended.items()
            if kept.pending is None and may_lead(key, kept)
        }
        for key in resumed:
            del self._suspended[key]
        self._resuming |= resumed
        return {topic_id for topic_id, _ in resumed}

    def resign(self) -> None:
        """The registration has ended: lead nothing until there is another."""
        self.broker_epoch = None
        self._suspended.clear()
        self._resuming.clear()
        for partition in self._table.led():
            self.end(partition)
