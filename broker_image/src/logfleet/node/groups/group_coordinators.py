"""Coordinates the groups of the `__consumer_offsets` partitions that this broker leads.

`logfleet.node.coordinators` loads and runs their coordinators. Here is what only groups have: their
topic, offsets that expire, and offsets that go with deleted topics.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from logfleet.config.broker import BrokerConfig
from logfleet.config.topic import BrokerLayers
from logfleet.groups.config import GroupConfig
from logfleet.groups.offsets import ZERO_UUID
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.groups.topic_removal import departed
from logfleet.io.clock import Clock
from logfleet.metadata.image import ClusterImage
from logfleet.node.coordinators.internal_topic import CreateTopic, InternalTopic
from logfleet.node.coordinators.loader import ReadInThread
from logfleet.node.coordinators.runtime import CoordinatorRuntime
from logfleet.node.groups.group_shard import GroupShard, group_kind
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.control import Marker
from logfleet.store.loader import Subscription
from logfleet.wire.errors import ErrorCode


class GroupCoordinators:
    """The group coordinators of one broker: a runtime with all partitions that are led here.

    create_topic: see CreateTopic; the other arguments: see CoordinatorRuntime.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        create_topic: CreateTopic,
        run_in_thread: ReadInThread,
        storage_failed: Callable[[LeaderPartition, OSError], None],
        is_hosted: Callable[[bytes, int], bool],
    ) -> None:
        limits = GroupConfig(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )
        self.runtime = CoordinatorRuntime(
            group_kind(limits),
            GroupShard,
            clock=clock,
            write_timeout_ms=config.offsets_commit_timeout_ms,
            loaded=self._loaded,
            run_in_thread=run_in_thread,
            storage_failed=storage_failed,
            is_hosted=is_hosted,
        )
        self._expiry_interval_s = config.offsets_retention_check_interval_ms / 1000
        self._subscription = Subscription()
        self.topic = InternalTopic(
            OFFSETS_TOPIC,
            event_prefix="offsets_topic",
            at_creation=config.offsets_topic_num_partitions,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
            layers=BrokerLayers(config.static),
            hint="consumer groups need it; set offsets.topic.replication.factor to what the "
            "cluster can hold",
            create_topic=create_topic,
            spawn=self.runtime.spawn,
        )

    def shards(self) -> Iterator[GroupShard]:
        """The partitions of the offsets topic that are led here, loaded or not."""
        return self.runtime.shards()

    def shard_of(self, group_id: str, image: ClusterImage) -> GroupShard | ErrorCode:
        """The loaded shard of a group, or the error to answer."""
        return self.runtime.shard_of(group_id, self.topic.partitions(image))

    def takes_markers(self, partition: LeaderPartition) -> bool:
        """Whether the coordinator of this leadership of the partition is loaded.

        Markers are appended only then: before, the rest of the log may still be read.
        """
        return self.runtime.shard_on(partition) is not None

    def end_transactions(self, partition: LeaderPartition, markers: Sequence[Marker]) -> bool:
        """Apply markers that were just appended; False if no coordinator takes them.

        Nothing may be awaited between the append and this call. Offsets that the transactions
        committed are stored then; a fetch of them waits until the markers are committed
        (KAFKA-17507).
        """
        shard = self.runtime.shard_on(partition)
        if shard is not None:
            shard.end_transactions(markers)
        return shard is not None

    async def run(self, subscription: Subscription) -> None:
        """Load, and follow the cluster's changes, until cancelled."""
        self._subscription = subscription
        await self.runtime.run(self._follow(), self._expire_offsets())

    def _loaded(self, shard: GroupShard) -> None:
        """Remove the offsets of topics that were deleted while this broker was not the coordinator.

        Only by an image that shows the leadership that began this load: it holds every topic that
        commits in the log were accepted for.
        """
        partition = shard.partition
        image = self._subscription.image
        state = image.partition(partition.topic_id, partition.index)
        if state is not None and state.leader_epoch >= partition.leader_epoch:
            shard.remove_topics(departed(shard.coordinator.topics_read, image))

    async def _expire_offsets(self) -> None:
        """Every offsets.retention.check.interval.ms, expire offsets, one short step at a time."""
        while True:
            await asyncio.sleep(self._expiry_interval_s)
            for shard in self.shards():
                shard.remove_due_topics()  # retries what could not be written before
                is_unfinished = True
                while is_unfinished:
                    is_unfinished = shard.expire_offsets()
                    await asyncio.sleep(0)

    async def _follow(self) -> None:
        """Remove the offsets of topics that are deleted while this broker coordinates.

        Source: OffsetMetadataManager.onTopicsDeleted.
        """
        before = ClusterImage()
        while True:
            image, changes = await self._subscription.next()
            candidates = (
                before.topics()
                if changes.everything
                else filter(None, map(before.topic_by_id, changes.topics))
            )
            # Ids are never used again: a topic whose id is gone was deleted. Commits without an id
            # were for it too.
            deleted = [
                (topic.name, topic_id)
                for topic in candidates
                if image.topic_by_id(topic.id) is None
                for topic_id in (topic.id, ZERO_UUID)
            ]
            if deleted:
                for shard in self.shards():
                    shard.remove_topics(deleted)
            before = image
