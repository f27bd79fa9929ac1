"""Brings what this broker hosts in line with the cluster image.

It follows the image and leaves the work to what does one thing each: leading, following, making logs, deleting them, missing directories.
What the disk refused for want of room is tried again.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.io.slices import Slices
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage, DeletedTopic, Topic
from logfleet.metadata.image_builder import Changes
from logfleet.node.cluster.metadata_follower import MetadataFollower, Subscription
from logfleet.node.partitions.deletions import Deletions
from logfleet.node.partitions.following import Following
from logfleet.node.partitions.leadership import Key, Leadership
from logfleet.node.partitions.log_configs import LogConfigs
from logfleet.node.partitions.missing_directories import MissingDirectories
from logfleet.node.partitions.partition import Partition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowedPartition, Replica
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.replication.leader import LeaderReplicas
from logfleet.storage.disk_failure import Failed
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire import uuids

log = structlog.get_logger(__name__)


class LocalPartitions:
    """on_disk_failure: called with what the disk refused, before it is tried again."""

    def __init__(
        self,
        follower: MetadataFollower,
        table: PartitionTable,
        configs: LogConfigs,
        *,
        logs: ReplicaLogs,
        leadership: Leadership,
        following: Following,
        deletions: Deletions,
        missing: MissingDirectories,
        on_disk_failure: Failed,
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
        self._will_try = False
        self._undeleted: set[tuple[bytes, int]] = set()  # moved away, and the log is there still
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
        if isinstance(replica, Partition):
            self._leadership.end(replica)
        elif isinstance(replica, FollowedPartition):
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
        starting: list[tuple[Topic, int]] = []
        for topic_id in topic_ids:
            await self._slices.breathe()
            topic = image.topic_by_id(topic_id)
            if topic is None:
                self._let_topic_go(topic_id)
                self._table.forget_topic(topic_id)
            else:
                await self._configure(image, topic)
                led = await self._leadership.follow(topic)
                others = await self._following.follow(topic)
                starting += [(topic, index) for index in {*led, *others}]
                await self._delete_moved(topic)
        if changes.everything or changes.deleted:
            for deleted in self._deletions.due(image):
                await self._delete(deleted)
        if may_create:
            ready = [each for each in starting if await self._make_log(image, *each)]
            await asyncio.gather(*(self._start(image, *each) for each in ready))
        elif self._missing.is_refused:  # else the registration by which it has them is over
            self._table.unstarted |= {(topic.id, index) for topic, index in starting}
            self._try_soon()

    async def _configure(self, image: ClusterImage, topic: Topic) -> None:
        """The logs that are hosted obey what is set now."""
        hosted = self._table.by_id.get(topic.id)
        if hosted is not None:
            config = self._configs.of(image, topic.name)
            for replica in list(hosted.replicas.values()):
                replica.log.config = config
                await self._slices.breathe()

    async def _make_log(self, image: ClusterImage, topic: Topic, index: int) -> bool:
        """Make the log if there is none; False if that is to be tried again later.

        One after another, in slices: 10,000 in one turn of the loop held it up for seven seconds.
        And before any of them begins: that flushes, and a log is made more slowly beside flushes.
        """
        await self._slices.breathe()
        if not self._logs.has(topic, index):
            try:
                await self._logs.log_for(image, topic, index, self._configs.of(image, topic.name))
            except OSError as error:
                self._not_started(topic, index, error)
                return False
        return True

    async def _start(self, image: ClusterImage, topic: Topic, index: int) -> None:
        """Host the partition in the role that is wanted, or try again later."""
        config, state = self._configs.of(image, topic.name), topic.partitions[index]
        try:
            replica = await self._logs.replica_for(image, topic, index, config)
            if replica is None:
                return
            if self._leadership.leads(state):
                await self._leadership.begin(state, replica)
            else:
                self._following.begin(state, replica)
        except OSError as error:
            self._not_started(topic, index, error)

    def _not_started(self, topic: Topic, index: int, error: OSError) -> None:
        """Try again later: there may be room then, or another directory. A log on a directory that failed is not tried again."""
        name, key = TopicPartition(topic.name, index), (topic.id, index)
        log_dir = self._logs.log_dirs.where_failed(name, error)
        self._on_disk_failure(name, error)
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

    async def _delete_moved(self, topic: Topic) -> None:
        """What has been moved to other brokers goes: by now all of them are in sync (`replication.reassignment`)."""
        hosted = self._table.by_id.get(topic.id)
        mine = set() if hosted is None else set(hosted.replicas)
        left = {index for topic_id, index in self._undeleted if topic_id == topic.id}
        moved = self._deletions.moved(topic, mine | left)
        self._undeleted -= {(topic.id, index) for index in left}
        for index in moved & mine:
            replica = self._table.replica(topic.id, index)
            assert replica is not None, "it is hosted"
            self._let_go(replica)
        try:
            await self._deletions.carry_out_moved(topic, moved)
        except OSError as error:
            log.warning("deletion_failed", topic=topic.name, error=str(error))
            self._on_disk_failure(TopicPartition(topic.name, min(moved)), error)
            self._undeleted |= {(topic.id, index) for index in moved}
            self._try_soon()

    async def _delete(self, deleted: DeletedTopic) -> None:
        """What the disk refuses is tried again later, until it is done or the directory has failed; so is what the store refuses."""
        self._let_topic_go(deleted.id)
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
