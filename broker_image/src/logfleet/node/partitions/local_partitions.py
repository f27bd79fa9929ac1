"""Brings what this broker hosts in line with the cluster image.

It follows the image and leaves the work to what does one thing each: leading, following, making logs, deleting them, missing directories.
A role that is over ends at once. What may wait for a disk (making a log, a leader epoch that has to be
durable, deleting) is done for each partition by itself (`pending_work`), while later images are
applied. What the disk refused for want of room is tried again.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.io.slices import Slices
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage, DeletedTopic, Topic
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.image_builder import Changes
from logfleet.node.cluster.metadata_loader import MetadataLoader, Subscription
from logfleet.node.partitions.deletions import Deletions
from logfleet.node.partitions.following import Following
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.leadership import Key, Leadership
from logfleet.node.partitions.log_configs import LogConfigs
from logfleet.node.partitions.missing_directories import MissingDirectories
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.pending_work import WHOLE_TOPIC, PendingWork, Wish
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.replication.leader import LeaderReplicas
from logfleet.storage.disk_failure import OnDiskFailure
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire import uuids

log = structlog.get_logger(__name__)

SLOW_S: Final = 10.0
"""A partition that has not begun its role after so long is logged: its disk hangs."""


class LocalPartitions:
    """on_disk_failure: called with what the disk refused, before it is tried again."""

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
        self._pending: PendingWork  # while it runs
        self._will_try = False
        self._undeleted: set[Key] = set()  # moved away, and the log is there still
        self._seen_epoch: int | None = None
        self._applied_revision = 0
        self._applied = asyncio.Event()

    def registered(self, broker_epoch: int) -> None:
        """This broker may lead what the image gives to this very registration, and follow the rest."""
        self._leadership.broker_epoch = self._following.broker_epoch = broker_epoch
        self._missing.look_again()
        if self._follower.image.revision:
            self._look_at(Changes(everything=True))

    def lost_registration(self) -> None:
        """This broker leads and follows nothing until it is registered again."""
        self._leadership.resign()
        self._following.resign()

    def resume(self, may_lead: Callable[[Key, LeaderReplicas], bool]) -> None:
        """Lead again what was suspended and `may_lead`, as far as the present image gives it to this broker."""
        topics = self._leadership.resume(may_lead)
        if topics:
            self._look_at(Changes(topics=topics))

    @property
    def refused_writes(self) -> int:
        """Attempts to confirm deletions, or to record log directories, that the metadata store refused."""
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
            raise group.exceptions[0] from group  # what the broker ends with says why

    async def until_applied(self, revision: int, after: int = 0) -> None:
        """Return once everything is done that the images up to this revision want of this broker.

        after: what only images up to that revision want is not waited for: it may wait for a disk
        that hangs. Bound it by asyncio.timeout.
        """
        while self._applied_revision < revision:
            self._applied.clear()
            await self._applied.wait()
        await self._pending.until_done(revision, after)

    def take_offline(self, logs: Iterable[PartitionLog]) -> None:
        """These logs are not to be had any more, led at present or not; none begins anew elsewhere, where it would be empty."""
        lost = set()
        for each in logs:
            assert each.topic_id is not None, "set_strays_aside has seen to it"
            lost.add((uuids.from_text(each.topic_id), each.partition.partition))
        self._table.offline.add(lost)
        for replica in self._table:
            if (replica.topic_id, replica.index) in lost:
                self._let_go(replica)

    def _let_go(self, replica: Replica) -> None:
        """Host the replica no longer."""
        if isinstance(replica, LeaderPartition):
            self._leadership.end(replica)
        elif isinstance(replica, FollowerPartition):
            self._following.end(replica)
        self._table.remove(replica)

    def _let_topic_go(self, topic_id: bytes) -> None:
        hosted = self._table.by_id.get(topic_id)
        for replica in [] if hosted is None else list(hosted.replicas.values()):
            self._let_go(replica)

    def _look_at(self, changes: Changes) -> None:
        """Apply the present image once more."""
        if self._subscription is not None:
            self._subscription.publish(self._follower.image, changes)

    async def _apply(self, image: ClusterImage, changes: Changes) -> None:
        broker_epoch = self._leadership.broker_epoch
        if broker_epoch not in {None, self._seen_epoch} and image.revision >= broker_epoch:
            self._seen_epoch = broker_epoch
            changes.everything = True  # images before it show nothing of this registration
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
                self._let_topic_go(topic_id)
                self._table.forget_topic(topic_id)
            else:
                self._pending.go_by(topic_id, image)
                await self._configure(image, topic)
                led = await self._leadership.follow(topic)
                others = await self._following.follow(topic)
                topics.append((topic, {*led, *others}, self._let_moved_go(topic)))
        if changes.everything or changes.deleted:
            for deleted in self._deletions.due(image):
                self._let_topic_go(deleted.id)
                self._pending.want((deleted.id, WHOLE_TOPIC), image)
        if may_create:
            await self._make_logs(image, topics)
        for topic, starting, moved in topics:
            # may_create is False if the registration by which it has them is over
            await self._want(image, topic, starting | moved if may_create else moved)
            if self._missing.is_refused:
                self._table.unstarted |= {(topic.id, index) for index in starting}
                self._try_soon()

    async def _make_logs(
        self, image: ClusterImage, topics: list[tuple[Topic, set[int], set[int]]]
    ) -> None:
        """Make the logs that are not there, except for those that have to wait for a disk.

        One after another, in slices: 10,000 in one turn of the loop held it up for seven seconds.
        And before any of them begins: that flushes, and a log is made more slowly beside flushes.
        """
        for topic, starting, _ in topics:
            config = self._configs.of(image, topic.name)
            for index in list(starting):
                await self._slices.pause_if_due()
                if (topic.id, index) in self._table.offline:
                    continue  # its directory failed meanwhile
                try:
                    self._logs.make_at_once(topic, index, config)
                except OSError as error:
                    starting.discard(index)
                    self._not_started((topic.id, index), topic.name, error)

    async def _want(self, image: ClusterImage, topic: Topic, indexes: set[int]) -> None:
        """These partitions of the topic are to begin another role, or to lose their logs."""
        self._pending.drop(topic.id, but=indexes)
        for index in indexes:
            await self._slices.pause_if_due()
            self._pending.want((topic.id, index), image)

    async def _configure(self, image: ClusterImage, topic: Topic) -> None:
        """The logs that are hosted obey what is set now."""
        hosted = self._table.by_id.get(topic.id)
        if hosted is not None:
            config = self._configs.of(image, topic.name)
            for replica in list(hosted.replicas.values()):
                replica.log.config = config
                await self._slices.pause_if_due()

    async def _carry_out(self, key: Key, wish: Wish) -> Wish:
        """Do what an image wants, or plan to try again; see PendingWork."""
        topic_id, index = key
        if index == WHOLE_TOPIC:
            await self._delete(wish.image.deleted[topic_id])
            return wish
        topic = wish.image.topic_by_id(topic_id)
        assert topic is not None, "only of topics that exist partitions are wanted"
        if self._deletions.moved(topic, (index,)):
            await self._delete_moved(topic, index)
            return wish
        return await self._start(key, wish, topic)

    async def _start(self, key: Key, wish: Wish, topic: Topic) -> Wish:
        """Host the partition in the role that the newest image wants, or try again later."""
        index, config = key[1], self._configs.of(wish.image, topic.name)

        def newest() -> PartitionState | None:
            return self._wanted_state(key)

        slow = asyncio.get_running_loop().call_later(SLOW_S, _report_slow, topic.name, index)
        try:
            replica = await self._logs.replica_for(
                wish.image, topic, index, config, lambda: newest() is not None
            )
            state = newest()
            if replica is None or state is None:
                return wish
            if self._leadership.leads(state):
                await self._leadership.begin(state, replica, newest)
            else:
                self._following.begin(state, replica)
        except OSError as error:
            self._not_started(key, topic.name, error, is_wanted=newest() is not None)
            return wish
        finally:
            slow.cancel()
        now, done = newest(), self._pending.newest(key)
        if now is None or done is None or _role(now) != _role(state):
            return wish
        return done

    def _wanted_state(self, key: Key) -> PartitionState | None:
        """The partition as the newest image has it, None if its log is not to be hosted here now."""
        topic_id, index = key
        wish = self._pending.newest(key)
        topic = None if wish is None else wish.image.topic_by_id(topic_id)
        if topic is None or key in self._table.offline or self._deletions.moved(topic, (index,)):
            return None
        return topic.partitions[index]

    def _not_started(self, key: Key, topic: str, error: OSError, *, is_wanted: bool = True) -> None:
        """Try again later: there may be room then, or another directory.

        is_wanted: False if the image has moved on. A log on a directory that failed is not tried again.
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

    def _let_moved_go(self, topic: Topic) -> set[int]:
        """What has been moved to other brokers goes: by now all of them are in sync (`replication.reassignment_steps`).

        Whose logs are to be deleted.
        """
        hosted = self._table.by_id.get(topic.id)
        mine = set() if hosted is None else set(hosted.replicas)
        left = {index for topic_id, index in self._undeleted if topic_id == topic.id}
        moved = self._deletions.moved(topic, mine | left | self._pending.indexes(topic.id))
        self._undeleted -= {(topic.id, index) for index in left}
        for index in moved & mine:
            replica = self._table.replica(topic.id, index)
            assert replica is not None, "it is hosted"
            self._let_go(replica)
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
        """What the disk refuses is tried again later, until it is done or the directory has failed; so is what the store refuses."""
        try:
            if not await self._deletions.carry_out(deleted):
                self._try_soon()
        except OSError as error:
            log.warning("deletion_failed", topic=deleted.name, error=str(error))
            self._on_disk_failure(TopicPartition(deleted.name, 0), error)
            self._table.forget_topic(deleted.id)
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
        self._look_at(Changes(topics=topics, deleted=True))


def _role(state: PartitionState) -> tuple[int, int]:
    """What another one of ends the role that this broker has in a partition."""
    return state.leader, state.leader_epoch


def _report_slow(topic: str, index: int) -> None:
    log.warning(
        "partition_begins_slowly",
        topic=topic,
        partition=index,
        note="its disk does not answer; until then it is neither led nor followed here",
    )
