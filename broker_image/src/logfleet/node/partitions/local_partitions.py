"""Brings what this broker hosts in line with the cluster image: leads, stops leading, creates and deletes logs.

A broker leads a partition only if the image says so for its present registration. It serves the partition
once the new leader epoch is on disk (KAFKA-16541). A log is deleted only when the cluster says that its topic was
deleted, never because the topic is not there; a log that belongs to nothing known is set aside and kept.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator

import structlog

from logfleet.control.log_directories import is_new
from logfleet.control.topics import confirm_deleted
from logfleet.io.clock import now_ms
from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.io.slices import Slices
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage, DeletedTopic, Topic
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.store import MetadataStore, StoreUnavailable, UnknownOutcome
from logfleet.node.cluster.directory_record import DirectoryRecord
from logfleet.node.cluster.metadata_follower import MetadataFollower, Subscription
from logfleet.node.partitions.log_configs import LogConfigs
from logfleet.node.partitions.partition import CommitRule, Partition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.strays import is_deleted, set_aside
from logfleet.storage.checkpointer import Checkpointer
from logfleet.storage.disk_failure import Failed
from logfleet.storage.flusher import Flusher
from logfleet.storage.log_dirs import LogDirError, LogDirs
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire import uuids

log = structlog.get_logger(__name__)

# Leader epochs written at the same time.
EPOCH_WRITES_MAX = 8
CONFIRM_AGAIN_S = 1.0


class LocalPartitions:
    """rule: for all partitions led here. on_led and on_lost: called with each partition that this broker begins and ceases to lead.

    on_offline: called when other partitions than before are offline.
    """

    def __init__(
        self,
        node_id: int,
        follower: MetadataFollower,
        store: MetadataStore,
        *,
        table: PartitionTable,
        log_dirs: LogDirs,
        directories: DirectoryRecord,
        configs: LogConfigs,
        flusher: Flusher,
        checkpointer: Checkpointer,
        on_disk_failure: Failed,
        rule: CommitRule | None = None,
    ) -> None:
        self._node_id = node_id
        self._follower = follower
        self._store = store
        self._table = table
        self._log_dirs = log_dirs
        self._directories = directories
        self._configs = configs
        self._flusher = flusher
        self._checkpointer = checkpointer
        self._on_disk_failure = on_disk_failure
        self._rule = rule
        self._epoch_writes = asyncio.Semaphore(EPOCH_WRITES_MAX)
        self._slices = Slices()
        self._subscription: Subscription | None = None
        self._broker_epoch: int | None = None
        self._will_try = False
        self._lost_known = False
        self._lost_told = False
        self._applied_revision = 0
        self._applied = asyncio.Event()
        self.on_led: list[Callable[[Partition], None]] = []
        self.on_lost: list[Callable[[Partition], None]] = []
        self.on_offline: list[Callable[[], None]] = []

    def registered(self, broker_epoch: int) -> None:
        """This broker may lead what the image gives to this very registration."""
        self._broker_epoch = broker_epoch
        self._lost_known = False
        if self._subscription is not None and self._follower.image.revision:
            self._subscription.publish(self._follower.image, Changes(everything=True))

    def lost_registration(self) -> None:
        """This broker leads nothing until it is registered again."""
        self._broker_epoch = None
        for partition in self._table:
            self._stop(partition)

    async def run(self) -> None:
        """Follow the image until cancelled."""
        self._subscription = self._follower.subscribe()
        while True:
            image, changes = await self._subscription.next()
            await self._apply(image, changes)
            self._applied_revision = image.revision
            self._applied.set()

    async def until_applied(self, revision: int) -> None:
        """Return once everything is done that the image of this revision wants of this broker."""
        while self._applied_revision < revision:
            self._applied.clear()
            await self._applied.wait()

    def leads_its_own(self, image: ClusterImage) -> bool:
        """Whether the image gives this broker all the partitions that nobody else could lead, but for those that are offline."""
        return all(
            self._leads(state) or (topic.id, index) in self._table.offline
            for topic in image.topics()
            for index, state in enumerate(topic.partitions)
            if state.replicas == (self._node_id,)
        )

    def take_offline(self, logs: Iterable[PartitionLog]) -> None:
        """These logs are not to be had any more, led at present or not; none begins anew elsewhere, where it would be empty."""
        for partition_log in logs:
            assert partition_log.topic_id is not None, "set_strays_aside has seen to it"
            topic_id = uuids.from_text(partition_log.topic_id)
            self._table.offline.add((topic_id, partition_log.partition.partition))
        for partition in self._table:
            if (partition.topic_id, partition.index) in self._table.offline:
                self._stop(partition)
        self._tell_offline()

    async def _apply(self, image: ClusterImage, changes: Changes) -> None:
        may_create = await self._miss_directories(image, changes)
        topic_ids = set(changes.topics)
        if changes.everything or (changes.broker_configs and self._configs.may_differ(image)):
            topic_ids |= {topic.id for topic in image.topics()} | set(self._table.by_id)
        starting = []
        for topic_id in topic_ids:
            await self._slices.breathe()
            topic = image.topic_by_id(topic_id)
            if topic is None:
                for partition in self._hosted(topic_id):
                    self._stop(partition)
                self._table.forget_topic(topic_id)
                self._tell_offline()
            else:
                starting += await self._apply_topic(image, topic)
        if changes.everything or changes.deleted:
            for deleted in image.deleted.values():
                if self._node_id in deleted.brokers:
                    await self._delete(deleted)
        if may_create:  # else the registration by which it leads them is over
            await asyncio.gather(*(self._start(image, *each) for each in starting))

    async def _miss_directories(self, image: ClusterImage, changes: Changes) -> bool:
        """Take offline what a missing directory may hold; forget one that holds nothing. Whether logs may be made."""
        deleted = any(image.topic_by_id(topic_id) is None for topic_id in changes.topics)
        if changes.everything or deleted:
            self._lost_known = False
        forgotten: frozenset[str] = frozenset()
        missing = self._directories.missing(image)
        broker_epoch = self._broker_epoch
        is_current = broker_epoch is not None and image.revision >= broker_epoch
        if missing and not self._lost_known:
            lost = set()
            for each in self._lost(image):
                if each is not None:
                    lost.add(each)
                await self._slices.breathe()
            self._take_lost_offline(lost, missing)
            self._lost_known = is_current
            if is_current and not lost:
                forgotten = missing
        if broker_epoch is None or not is_current:
            return False
        if forgotten:
            log.info("log_directories_forgotten", directories=sorted(forgotten))
        return await self._directories.keep(image, broker_epoch, forgotten)

    def take_lost_offline(self, image: ClusterImage) -> None:
        """After loading, before it is registered: what is in a missing directory is not to be had."""
        missing = self._directories.missing(image)
        if missing:
            lost = {each for each in self._lost(image) if each is not None}
            self._take_lost_offline(lost, missing)

    def _take_lost_offline(self, lost: set[tuple[bytes, int]], missing: frozenset[str]) -> None:
        self._table.offline |= lost
        self._tell_offline()
        if lost and not self._lost_told:
            self._lost_told = True
            log.error(
                "log_directories_missing",
                directories=sorted(missing),
                partitions=len(lost),
                note="what they hold stays offline: mount them again at a path of log.dirs and restart, or delete the topics",
            )

    def _tell_offline(self) -> None:
        for callback in self.on_offline:
            callback()

    def _lost(self, image: ClusterImage) -> Iterator[tuple[bytes, int] | None]:
        """Partitions of this broker that are not new and have no log in the directories that are there; None for any other."""
        for topic in image.topics():
            for index, state in enumerate(topic.partitions):
                is_lost = (
                    self._node_id in state.replicas
                    and not is_new(state, self._node_id, self._broker_epoch)
                    and not self._has_log(topic, index)
                )
                yield (topic.id, index) if is_lost else None

    def _has_log(self, topic: Topic, index: int) -> bool:
        found = self._log_dirs.log_of(TopicPartition(topic.name, index))
        return found is not None and found.topic_id == uuids.to_text(topic.id)

    async def _apply_topic(
        self, image: ClusterImage, topic: Topic
    ) -> list[tuple[Topic, int, PartitionState]]:
        """Stop what is led elsewhere and pass on the configuration; what this broker begins to lead."""
        starting = []
        hosted = {partition.index: partition for partition in self._hosted(topic.id)}
        config = self._configs.of(image, topic.name) if hosted else None
        for index, state in enumerate(topic.partitions):
            partition = hosted.get(index)
            leads = self._leads(state)
            if not leads:
                self._table.unstarted.discard((topic.id, index))
            if partition is not None:
                assert config is not None
                partition.log.config = config
                if not leads or partition.leader_epoch != state.leader_epoch:
                    self._stop(partition)
                    partition = None
            if leads and partition is None and (topic.id, index) not in self._table.offline:
                starting.append((topic, index, state))
            await self._slices.breathe()
        return starting

    def _hosted(self, topic_id: bytes) -> list[Partition]:
        hosted = self._table.by_id.get(topic_id)
        return [] if hosted is None else list(hosted.partitions.values())

    def _leads(self, state: PartitionState) -> bool:
        return (
            state.leader == self._node_id
            and self._broker_epoch is not None
            and (self._node_id, self._broker_epoch) in state.isr
        )

    async def _start(
        self, image: ClusterImage, topic: Topic, index: int, state: PartitionState
    ) -> None:
        name = TopicPartition(topic.name, index)
        broker_epoch = self._broker_epoch
        try:
            partition_log = await self._log_for(image, topic, name)
            if partition_log is None:
                return
            partition_log.start_epoch(state.leader_epoch)
            async with self._epoch_writes:
                await self._flusher.flush(partition_log)
        except OSError as error:
            self._not_started(topic, name, error)
            return
        self._table.unstarted.discard((topic.id, index))
        if broker_epoch is None or broker_epoch != self._broker_epoch:
            return  # the registration ended meanwhile
        if (topic.id, index) in self._table.offline:
            return  # its directory failed meanwhile
        partition = Partition(
            topic.name, topic.id, index, partition_log, state.leader_epoch, rule=self._rule
        )
        self._table.add(partition)
        log.debug("leading", topic=topic.name, partition=index, leader_epoch=state.leader_epoch)
        for callback in self.on_led:
            callback(partition)

    def _not_started(self, topic: Topic, name: TopicPartition, error: OSError) -> None:
        """Try again later: there may be room then, or another directory. A log on a directory that failed is not tried again."""
        log_dir = self._log_dirs.where_failed(name, error)
        self._on_disk_failure(name, error)
        key = (topic.id, name.partition)
        if key in self._table.offline:
            return
        if key not in self._table.unstarted:
            log.warning(
                "partition_not_started",
                partition=str(name),
                path=None if log_dir is None else log_dir.path,
                error=str(error),
            )
        self._table.unstarted.add(key)
        self._try_soon()

    def _try_soon(self) -> None:
        if not self._will_try:
            self._will_try = True
            self._try_later(self._try_again)

    @staticmethod
    def _try_later(work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(TRY_AGAIN_S, work)

    def _try_again(self) -> None:
        self._will_try = False
        topics = {topic_id for topic_id, _ in self._table.unstarted}
        if self._subscription is not None:
            changes = Changes(topics=topics, deleted=True)
            self._subscription.publish(self._follower.image, changes)

    async def _log_for(
        self, image: ClusterImage, topic: Topic, name: TopicPartition
    ) -> PartitionLog | None:
        """The log, made if there is none; None if it is in a directory that failed or is missing."""
        found = self._log_dirs.log_of(name)
        topic_id = uuids.to_text(topic.id)
        if found is not None and found.topic_id != topic_id:
            await self._flusher.until_idle(found)
            log_dir = self._log_dirs.dir_of(name)
            if log_dir is None:
                pass  # it failed meanwhile, and the other topic's log with it
            elif is_deleted(image, self._node_id, found.topic_id):
                log_dir.delete(name, now_ms())  # it could not be until now
            else:
                reason = f"it belongs to topic id {found.topic_id}, not {topic_id}"
                set_aside(log_dir, name, reason)
            found = None
        config = self._configs.of(image, topic.name)
        if found is not None:
            found.config = config  # it may have changed while nobody led the log
            return found
        await self._forget_departed()
        # Asked without an await before the making: a directory may fail in any, and an empty log would hide what it holds.
        if (topic.id, name.partition) in self._table.offline:
            return None
        return self._log_dirs.create(name, topic_id, config, now_ms())

    def _stop(self, partition: Partition) -> None:
        self._table.remove(partition)
        log.debug("no_longer_leading", topic=partition.topic, partition=partition.index)
        for callback in self.on_lost:
            callback(partition)

    async def _delete(self, deleted: DeletedTopic) -> None:
        """Remove the topic's logs, then say so; the cluster forgets the deletion when every broker has.

        What the disk refuses is tried again later, until it is done or the directory has failed.
        """
        for partition in self._hosted(deleted.id):
            self._stop(partition)
        topic_id = uuids.to_text(deleted.id)
        name = TopicPartition(deleted.name, 0)
        try:
            for log_dir in self._log_dirs:
                for name, partition_log in list(log_dir.logs.items()):
                    if partition_log.topic_id == topic_id:
                        await self._flusher.until_idle(partition_log)
                        log_dir.delete(name, now_ms())
                    await self._slices.breathe()
            await self._forget_departed()
        except OSError as error:
            log.warning("deletion_failed", topic=deleted.name, error=str(error))
            self._on_disk_failure(name, error)
            self._table.forget_topic(deleted.id)
            self._tell_offline()
            self._try_soon()
            return
        log.info("topic_deleted", topic=deleted.name, topic_id=topic_id)
        await self._confirm(deleted)

    async def _forget_departed(self) -> None:
        """Return once deleted logs, and those set aside, are gone for good: after a crash neither they nor their offsets are there.

        Raises LogDirError.
        """
        for log_dir in self._log_dirs:
            try:
                await self._checkpointer.forget_departed(log_dir, self._table.high_watermarks)
            except OSError as error:
                raise LogDirError(log_dir, error) from error

    async def _confirm(self, deleted: DeletedTopic) -> None:
        while True:
            try:
                # If another broker was faster, the next image brings the key's new state here.
                await self._store.txn(confirm_deleted(deleted, self._node_id))
            except (StoreUnavailable, UnknownOutcome) as error:
                log.warning("deletion_not_confirmed", topic=deleted.name, reason=str(error))
                await asyncio.sleep(CONFIRM_AGAIN_S)
            else:
                return
