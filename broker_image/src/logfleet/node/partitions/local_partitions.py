"""Brings what this broker hosts in line with the cluster image.

It follows the image and delegates the work: leading, following, making logs, deleting them, missing
directories. A role that is over ends at once. What may wait for a disk (making a log, making a
leader epoch durable, deleting) is done for each partition by itself (`pending_work`), while later
images are applied. What failed for lack of disk space is tried again.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.io.slices import Slices
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.metadata.image import ClusterImage, DeletedTopic, Topic
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.image_builder import Changes
from logfleet.node.partitions.deletions import Deletions
from logfleet.node.partitions.following import Following
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.leadership import Key, Leadership
from logfleet.node.partitions.log_configs import LogConfigs
from logfleet.node.partitions.missing_directories import MissingDirectories
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.pending_work import WHOLE_TOPIC, DesiredState, PendingWork
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.replication.leader import LeaderReplicas
from logfleet.store.loader import MetadataLoader, Subscription
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids

log = structlog.get_logger(__name__)

SLOW_S: Final = 10.0
"""A partition that has not begun its role after this time is logged: its disk hangs."""


class LocalPartitions:
    """Applies each new image to the partitions of this broker.

    on_disk_failure: called with a disk's error, before the work is tried again.
    """

    def __init__(
        self,
        follower: MetadataLoader,
        table: PartitionTable,
        configs: LogConfigs,
        *,
        logs: ReplicaLogs,
        leadership: Leadership,
        following: Following,
        deletions: Deletions,
        missing: MissingDirectories,
        on_disk_failure: OnDiskFailure,
    ) -> None:
        self._follower = follower
        self._table = table
        self._configs = configs
        self._logs = logs
        self._leadership = leadership
        self._following = following
        self._deletions = deletions
        self._missing = missing
        self._on_disk_failure = on_disk_failure
        self._slices = Slices()
        self._subscription: Subscription | None = None
        self._pending: PendingWork  # set while `run` runs
        self._will_try = False
        self._undeleted: set[Key] = set()  # moved away, but their logs could not be deleted yet
        self._seen_epoch: BrokerEpoch | None = None
        self._applied_revision = 0
        self._applied = asyncio.Event()

    def registered(self, broker_epoch: BrokerEpoch) -> None:
        """Lead the partitions that the image gives to this registration, and follow the rest."""
        self._leadership.broker_epoch = self._following.broker_epoch = broker_epoch
        self._missing.registration_changed()
        if self._follower.image.revision:
            self._apply_again(Changes(everything=True))

    def lost_registration(self) -> None:
        """Lead and follow nothing until this broker is registered again."""
        self._leadership.resign()
        self._following.resign()

    def resume(self, may_lead: Callable[[Key, LeaderReplicas], bool]) -> None:
        """Lead suspended partitions again, if `may_lead` and the present image still allow it."""
        topics = self._leadership.resume(may_lead)
        if topics:
            self._apply_again(Changes(topics=topics))

    @property
    def refused_writes(self) -> int:
        """Count of refused store writes: confirmations of deletions, records of log directories."""
        return self._deletions.refused.count + self._missing.refused.count

    async def run(self) -> None:
        """Follow the image until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._pending = PendingWork(self._carry_out, tasks)
                self._subscription = self._follower.subscribe()
                while True:
                    image, changes = await self._subscription.next()
                    await self._apply(image, changes)
                    self._applied_revision = image.revision
                    self._applied.set()
        except ExceptionGroup as group:
            # the broker logs this error as the reason of its end
            raise group.exceptions[0] from group

    async def until_applied(self, revision: int, after: int = 0) -> None:
        """Return once everything is done that the images up to this revision want of this broker.

        after: work that only images up to this revision want is not waited for: it may wait for a
        disk that hangs. Set a bound by asyncio.timeout.
        """
        while self._applied_revision < revision:
            self._applied.clear()
            await self._applied.wait()
        await self._pending.until_done(revision, after)

    def take_offline(self, logs: Iterable[PartitionLog]) -> None:
        """End the roles of these logs, which cannot be used any more.

        None of them is made again elsewhere, where it would be empty.
        """
        lost = set()
        for each in logs:
            assert each.topic_id is not None, "set_strays_aside has set it"
            lost.add((uuids.from_text(each.topic_id), each.partition.partition))
        self._table.offline.add(lost)
        for replica in self._table:
            if (replica.topic_id, replica.index) in lost:
                self._stop_hosting(replica)

    def _stop_hosting(self, replica: Replica) -> None:
        """End the replica's role, and remove it from the table."""
        if isinstance(replica, LeaderPartition):
            self._leadership.end(replica)
        elif isinstance(replica, FollowerPartition):
            self._following.end(replica)
        self._table.remove(replica)

    def _stop_hosting_topic(self, topic_id: bytes) -> None:
        hosted = self._table.by_id.get(topic_id)
        for replica in [] if hosted is None else list(hosted.replicas.values()):
            self._stop_hosting(replica)

    def _apply_again(self, changes: Changes) -> None:
        """Apply the present image once more."""
        if self._subscription is not None:
            self._subscription.publish(self._follower.image, changes)

    async def _apply(self, image: ClusterImage, changes: Changes) -> None:
        broker_epoch = self._leadership.broker_epoch
        if broker_epoch not in {None, self._seen_epoch} and image.revision >= broker_epoch:
            self._seen_epoch = broker_epoch
            changes.everything = True  # older images do not show this registration
        may_create = await self._missing.follow(image, changes, broker_epoch)
        topic_ids = set(changes.topics)
        if changes.everything or (changes.broker_configs and self._configs.may_differ(image)):
            topic_ids |= {topic.id for topic in image.topics()} | set(self._table.by_id)
        topics: list[tuple[Topic, set[int], set[int]]] = []
        for topic_id in topic_ids:
            await self._slices.pause_if_due()
            topic = image.topic_by_id(topic_id)
            if topic is None:
                self._pending.drop(topic_id, but={WHOLE_TOPIC})
                self._stop_hosting_topic(topic_id)
                self._table.remove_topic(topic_id)
            else:
                self._pending.replace_image(topic_id, image)
                await self._configure(image, topic)
                led = await self._leadership.follow(topic)
                others = await self._following.follow(topic)
                topics.append((topic, {*led, *others}, self._stop_hosting_moved(topic)))
        if changes.everything or changes.deleted:
            for deleted in self._deletions.due(image):
                self._stop_hosting_topic(deleted.id)
                self._pending.want((deleted.id, WHOLE_TOPIC), image)
        if may_create:
            await self._make_logs(image, topics)
        for topic, starting, moved in topics:
            # without a present registration only the moved ones: their logs are to be deleted
            await self._want(image, topic, starting | moved if may_create else moved)
            if self._missing.is_refused:
                self._table.unstarted |= {(topic.id, index) for index in starting}
                self._try_soon()

    async def _make_logs(
        self, image: ClusterImage, topics: list[tuple[Topic, set[int], set[int]]]
    ) -> None:
        """Make the logs that are missing, except for those that have to wait for a disk.

        One after another, in slices: 10,000 in one step of the loop blocked it for seven seconds.
        And before any of them begins its role: that flushes, and making logs is slower beside
        flushes.
        """
        for topic, starting, _ in topics:
            config = self._configs.of(image, topic.name)
            for index in list(starting):
                await self._slices.pause_if_due()
                if (topic.id, index) in self._table.offline:
                    continue  # the log's directory failed meanwhile
                try:
                    self._logs.make_now(topic, index, config)
                except OSError as error:
                    starting.discard(index)
                    self._not_started((topic.id, index), topic.name, error)

    async def _want(self, image: ClusterImage, topic: Topic, indexes: set[int]) -> None:
        """Record that these partitions must begin another role, or lose their logs."""
        self._pending.drop(topic.id, but=indexes)
        for index in indexes:
            await self._slices.pause_if_due()
            self._pending.want((topic.id, index), image)

    async def _configure(self, image: ClusterImage, topic: Topic) -> None:
        """Apply the topic's present configuration to its hosted logs."""
        hosted = self._table.by_id.get(topic.id)
        if hosted is not None:
            config = self._configs.of(image, topic.name)
            for replica in list(hosted.replicas.values()):
                replica.log.config = config
                await self._slices.pause_if_due()

    async def _carry_out(self, key: Key, desired: DesiredState) -> DesiredState:
        """Do what an image wants, or plan to try again; see PendingWork."""
        topic_id, index = key
        if index == WHOLE_TOPIC:
            await self._delete(desired.image.deleted[topic_id])
            return desired
        topic = desired.image.topic_by_id(topic_id)
        assert topic is not None, "only partitions of topics that exist are wanted"
        if self._deletions.moved(topic, (index,)):
            await self._delete_moved(topic, index)
            return desired
        return await self._start(key, desired, topic)

    async def _start(self, key: Key, desired: DesiredState, topic: Topic) -> DesiredState:
        """Host the partition in the role that the newest image wants, or try again later."""
        index, config = key[1], self._configs.of(desired.image, topic.name)

        def newest() -> PartitionState | None:
            return self._wanted_state(key)

        slow = asyncio.get_running_loop().call_later(SLOW_S, _report_slow, topic.name, index)
        try:
            replica = await self._logs.replica_for(
                desired.image, topic, index, config, lambda: newest() is not None
            )
            state = newest()
            if replica is None or state is None:
                return desired
            if self._leadership.leads(state):
                await self._leadership.begin(state, replica, newest)
            else:
                self._following.begin(state, replica)
        except OSError as error:
            self._not_started(key, topic.name, error, is_wanted=newest() is not None)
            return desired
        finally:
            slow.cancel()
        now, done = newest(), self._pending.newest(key)
        if now is None or done is None or _role(now) != _role(state):
            return desired
        return done

    def _wanted_state(self, key: Key) -> PartitionState | None:
        """The partition in the newest image, None if its log is not to be hosted here now."""
        topic_id, index = key
        desired = self._pending.newest(key)
        topic = None if desired is None else desired.image.topic_by_id(topic_id)
        if topic is None or key in self._table.offline or self._deletions.moved(topic, (index,)):
            return None
        return topic.partitions[index]

    def _not_started(self, key: Key, topic: str, error: OSError, *, is_wanted: bool = True) -> None:
        """Try again later: there may be space then, or another directory.

        is_wanted: False if the image has moved on. A log in a failed directory is not tried again.
        """
        name = TopicPartition(topic, key[1])
        log_dir = self._logs.log_dirs.failed_directory(name, error)
        self._on_disk_failure(name, error)
        if key in self._table.offline or not is_wanted:
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

    def _stop_hosting_moved(self, topic: Topic) -> set[int]:
        """Stop hosting what was moved to other brokers; return the partitions whose logs to delete.

        By now all the other brokers are in sync (`replication.reassignment_steps`).
        """
        hosted = self._table.by_id.get(topic.id)
        mine = set() if hosted is None else set(hosted.replicas)
        left = {index for topic_id, index in self._undeleted if topic_id == topic.id}
        moved = self._deletions.moved(topic, mine | left | self._pending.indexes(topic.id))
        self._undeleted -= {(topic.id, index) for index in left}
        for index in moved & mine:
            replica = self._table.replica(topic.id, index)
            assert replica is not None, "it is hosted"
            self._stop_hosting(replica)
        return moved

    async def _delete_moved(self, topic: Topic, index: int) -> None:
        try:
            await self._deletions.carry_out_moved(topic, index)
        except OSError as error:
            log.warning("deletion_failed", topic=topic.name, error=str(error))
            self._on_disk_failure(TopicPartition(topic.name, index), error)
            self._undeleted.add((topic.id, index))
            self._try_soon()

    async def _delete(self, deleted: DeletedTopic) -> None:
        """Delete the topic's logs and confirm it.

        What the disk or the store refuses is tried again later, until it is done or the directory
        has failed.
        """
        try:
            if not await self._deletions.carry_out(deleted):
                self._try_soon()
        except OSError as error:
            log.warning("deletion_failed", topic=deleted.name, error=str(error))
            self._on_disk_failure(TopicPartition(deleted.name, 0), error)
            self._table.remove_topic(deleted.id)
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
        topics = {topic_id for topic_id, _ in self._table.unstarted | self._undeleted}
        self._apply_again(Changes(topics=topics, parts={"deleted"}))


def _role(state: PartitionState) -> tuple[int, int]:
    """A role lasts as long as these two stay the same."""
    return state.leader, state.leader_epoch


def _report_slow(topic: str, index: int) -> None:
    log.warning(
        "partition_begins_slowly",
        topic=topic,
        partition=index,
        note="its disk does not answer; until then it is neither led nor followed here",
    )
