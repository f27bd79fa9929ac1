"""Coordinates the groups of the `__consumer_offsets` partitions that this broker leads.

When it starts to lead one, it reads what it has not read as a follower (`standby_coordinators`),
one partition after the other and in slices. The groups start once all that was in the log at the
election is committed: until then a commit may be neither shown nor dropped, as it may get lost, or
the former leader may have acknowledged it. Until then requests for its groups get
COORDINATOR_LOAD_IN_PROGRESS. When it stops to lead a partition, it drops its groups at once. All
sessions and rebalances share one timer.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final

import structlog

from logfleet.control.brokers.internal_topics import factor_at_creation
from logfleet.control.configs import BrokerConfig
from logfleet.control.store_writes import Refusal
from logfleet.control.topic_configs import BrokerLayers
from logfleet.groups.config import GroupConfig
from logfleet.groups.offsets import ZERO_UUID
from logfleet.groups.partition import OFFSETS_TOPIC, partition_for
from logfleet.groups.topic_removal import departed
from logfleet.io.clock import monotonic_ms
from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.io.files import is_shortage
from logfleet.io.slices import Slices
from logfleet.metadata.image import ClusterImage
from logfleet.node.cluster.metadata_loader import Subscription
from logfleet.node.groups.group_log import GroupLog, ReadInThread
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.groups.standby_coordinators import StandbyCoordinators
from logfleet.node.partitions.leader_partition import LeaderPartition, NotLeading
from logfleet.records.errors import RecordsError
from logfleet.wire.errors import ErrorCode, MalformedMessage

log = structlog.get_logger(__name__)

TICK_MS: Final = 5
"""Deadlines are checked no more often; the shortest session is a thousand times as long."""
CREATE_AGAIN_S: Final = 1.0
"""Pause after a refused creation of the offsets topic."""

CreateTopic = Callable[[str, int, int, Mapping[str, str]], Awaitable[Refusal | None]]
"""name, partitions, replication factor, configs: creates a topic through the controller."""


class CoordinatorLoop:
    """The group coordinators of one broker.

    Call `led` and `lost` with every partition that the broker starts and stops leading; `standby`
    gets those that it follows. create_topic: see CreateTopic. storage_failed: takes a partition
    whose log cannot be read or written out of service.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        create_topic: CreateTopic,
        run_in_thread: ReadInThread,
        storage_failed: Callable[[LeaderPartition, OSError], None],
        is_hosted: Callable[[bytes, int], bool],
    ) -> None:
        self._config = config
        self._group_config = GroupConfig(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )
        self._create_topic = create_topic
        self._run_in_thread = run_in_thread
        self._storage_failed = storage_failed
        self._shards: dict[int, GroupShard] = {}
        self._to_load: asyncio.Queue[tuple[GroupShard, GroupLog]] = asyncio.Queue()
        self.standby = StandbyCoordinators(
            self._group_config, run_in_thread=run_in_thread, is_hosted=is_hosted
        )
        self._slices = Slices()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._last_tick_ms = 0
        self._creating: asyncio.Task[None] | None = None
        self._create_again_at = 0.0

    # -- what this broker coordinates

    def shards(self) -> Iterator[GroupShard]:
        """The partitions of the offsets topic that are led here, loaded or not."""
        return iter(tuple(self._shards.values()))

    def shard_of(self, group_id: str, partitions: int) -> GroupShard | ErrorCode:
        """The loaded shard of a group, or the error to answer.

        partitions: of the offsets topic, 0 if it does not exist.
        """
        shard = self._shards.get(partition_for(group_id, partitions)) if partitions else None
        if shard is None or shard.is_closed:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def led(self, partition: LeaderPartition) -> None:
        """Start to coordinate the groups of a partition, if it is one of the offsets topic."""
        if partition.topic != OFFSETS_TOPIC:
            return
        read = self.standby.take(partition) or GroupLog(partition.log, self._group_config)
        shard = GroupShard(
            partition,
            read.coordinator,
            commit_timeout_ms=self._config.offsets_commit_timeout_ms,
            arm=self._arm,
            spawn=self._spawn,
            storage_failed=self._storage_failed,
        )
        self._shards[partition.index] = shard
        self._to_load.put_nowait((shard, read))

    def lost(self, partition: LeaderPartition) -> None:
        """Stop coordinating the groups of a partition."""
        if partition.topic != OFFSETS_TOPIC:
            return
        shard = self._shards.get(partition.index)
        if shard is not None and shard.partition is partition:
            del self._shards[partition.index]
            shard.close()

    async def run(self, subscription: Subscription) -> None:
        """Load, and follow the cluster's changes, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._load_all(subscription))
                tasks.create_task(self.standby.run())
                tasks.create_task(self._follow(subscription))
                tasks.create_task(self._expire_offsets())
                tasks.create_task(self._supervise())
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.put_nowait(error)

    async def _supervise(self) -> None:
        """A task that fails by a bug ends the broker, as any other would."""
        raise await self._failures.get()

    # -- loading

    async def _load_all(self, subscription: Subscription) -> None:
        while True:
            shard, read = await self._to_load.get()
            if shard.is_closed:
                continue
            started = time.monotonic()
            name = f"{OFFSETS_TOPIC}-{shard.partition.index}"
            before = read.records
            try:
                is_led = await self._load(shard, read)
            except OSError as error:
                self._storage_failed(shard.partition, error)
            except (RecordsError, MalformedMessage) as error:
                # The rest cannot be trusted: no coordinator is better than one that lost commits.
                log.critical("groups_not_loaded", partition=name, reason=str(error))
                shard.close()
            else:
                if not is_led:
                    continue
                seconds = round(time.monotonic() - started, 3)
                log.debug(
                    "groups_read",
                    partition=name,
                    records=read.records - before,
                    before=before,
                    seconds=seconds,
                )
                if shard.partition.is_high_watermark_behind:
                    self._spawn(self._start_once_committed(shard, read, subscription))
                else:
                    await self._start_groups(shard, read, subscription)

    async def _start_once_committed(
        self, shard: GroupShard, read: GroupLog, subscription: Subscription
    ) -> None:
        """Wait for followers, which may take long; the other partitions do not wait."""
        partition = shard.partition
        with contextlib.suppress(NotLeading):
            await partition.wait_committed(partition.epoch_start_offset)
            await self._start_groups(shard, read, subscription)

    async def _start_groups(
        self, shard: GroupShard, read: GroupLog, subscription: Subscription
    ) -> None:
        self._remove_departed(shard, read, subscription)
        for _ in shard.start_groups():
            await self._slices.pause_if_due()

    async def _load(self, shard: GroupShard, read: GroupLog) -> bool:
        """Apply all records from the election, and those committed since.

        False if leadership ended meanwhile.
        """
        partition = shard.partition
        while True:
            try:
                await read.read_on(
                    lambda: max(partition.epoch_start_offset, partition.high_watermark),
                    is_over=lambda: shard.is_closed,
                    run_in_thread=self._run_in_thread,
                    pause_if_due=self._slices.pause_if_due,
                )
                break
            except OSError as error:
                if not is_shortage(error):
                    raise
                self._storage_failed(partition, error)
                await asyncio.sleep(TRY_AGAIN_S)
        if read.pending and not shard.is_closed:
            log.warning(
                "transactional_offsets_skipped",
                partition=partition.index,
                offsets=read.pending,
                reason="their transactions have not ended",
            )
        return not shard.is_closed

    def _remove_departed(
        self, shard: GroupShard, read: GroupLog, subscription: Subscription
    ) -> None:
        """Remove the offsets of topics that were deleted while this broker was not the coordinator.

        Only by an image that shows the leadership that began this load: it holds every topic that
        commits in the log were accepted for.
        """
        image, partition = subscription.image, shard.partition
        state = image.partition(partition.topic_id, partition.index)
        if state is not None and state.leader_epoch >= partition.leader_epoch:
            shard.remove_topics(departed(read.topics, image))

    # -- time

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None and self._armed_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = max(due_ms, self._last_tick_ms + TICK_MS)
        delay_s = max(self._armed_ms - monotonic_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._last_tick_ms = monotonic_ms()
        for shard in self.shards():
            due_ms = shard.coordinator.next_deadline_ms()
            if due_ms is None:
                continue
            if due_ms <= now_ms:
                shard.tick()
            else:
                self._arm(due_ms)

    async def _expire_offsets(self) -> None:
        """Every offsets.retention.check.interval.ms, expire offsets, one short step at a time."""
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for shard in self.shards():
                shard.remove_due_topics()  # retries what could not be written before
                is_unfinished = True
                while is_unfinished:
                    is_unfinished = shard.expire_offsets()
                    await asyncio.sleep(0)

    # -- deleted topics

    async def _follow(self, subscription: Subscription) -> None:
        """Remove the offsets of topics that are deleted while this broker coordinates.

        Source: OffsetMetadataManager.onTopicsDeleted.
        """
        before = ClusterImage()
        while True:
            image, changes = await subscription.next()
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

    # -- the offsets topic

    def partitions(self, image: ClusterImage) -> int:
        """The number of partitions of the offsets topic; 0 if it does not exist."""
        topic = image.topic(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def want_topic(self, image: ClusterImage) -> None:
        """Create the offsets topic, with as many replicas as the image has brokers for.

        The client will ask again. A refusal is logged, and not retried for CREATE_AGAIN_S.
        """
        now = asyncio.get_running_loop().time()
        if self._creating is None and now >= self._create_again_at:
            self._create_again_at = now + CREATE_AGAIN_S
            self._creating = self._spawn(self._create_offsets_topic(image))
            self._creating.add_done_callback(self._created)

    def _created(self, _: object) -> None:
        self._creating = None

    async def _create_offsets_topic(self, image: ClusterImage) -> None:
        config = self._config
        replicas = factor_at_creation(OFFSETS_TOPIC, image, BrokerLayers(config.static))
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        refusal = await self._create_topic(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            replicas,
            configs,
        )
        if refusal is None:
            log.info("offsets_topic_created", partitions=config.offsets_topic_num_partitions)
        elif refusal.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            log.error(
                "offsets_topic_not_created",
                error=refusal.error.name,
                reason=refusal.message,
                replication_factor=replicas,
                hint="consumer groups need it; set offsets.topic.replication.factor to what the "
                "cluster can hold",
            )
