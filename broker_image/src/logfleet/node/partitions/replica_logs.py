"""The logs of this broker's replicas: finds, makes and deletes them.

A log is made only where no other directory may have it. It is deleted only if the cluster has
recorded the topic's deletion, or if the partition was moved to other brokers while this one ran;
never just because the image lacks the topic. A log that no partition of the image explains is set
aside and kept.
"""

import asyncio
from collections.abc import Callable

from logfleet.io.clock import now_ms
from logfleet.io.slices import Slices
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dirs import LogDirError, LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.node.partitions.strays import is_deleted, set_aside
from logfleet.wire import uuids


class ReplicaLogs:
    """The logs of one broker. log_dirs: where they are. table: hosted and offline replicas."""

    def __init__(
        self,
        node_id: int,
        log_dirs: LogDirs,
        table: PartitionTable,
        flusher: Flusher,
        checkpointer: Checkpointer,
    ) -> None:
        self.log_dirs = log_dirs
        self._node_id = node_id
        self._table = table
        self._flusher = flusher
        self._checkpointer = checkpointer
        self._slices = Slices()
        self._making = asyncio.Lock()

    def has(self, topic: Topic, index: int) -> bool:
        """Whether the log is in a directory that is there."""
        found = self.log_dirs.log_of(TopicPartition(topic.name, index))
        return found is not None and found.topic_id == uuids.to_text(topic.id)

    async def replica_for(
        self,
        image: ClusterImage,
        topic: Topic,
        index: int,
        config: LogConfig,
        is_wanted: Callable[[], bool],
    ) -> Replica | None:
        """The replica; starts to host it if it was not hosted. Raises OSError.

        is_wanted: whether it is still to be hosted, and its directory neither failed nor missing.
        It is called before a log is made; None if it is False. Call it again afterwards: the disk
        may have taken long.
        """
        partition_log = await self.log_for(image, topic, index, config, is_wanted)
        replica = self._table.replica(topic.id, index)
        if replica is None and partition_log is not None and is_wanted():
            checkpointed = self.log_dirs.high_watermark_of(partition_log.partition)
            replica = Replica(
                topic.name, topic.id, index, partition_log, high_watermark=checkpointed
            )
            self._table.add(replica)
        elif replica is not None:
            # A truncation that began in its last role is completed first: its end is uncertain
            # until then.
            await self._flusher.until_idle(replica.log)
        return self._table.replica(topic.id, index)  # the replica's role may have ended meanwhile

    async def log_for(
        self,
        image: ClusterImage,
        topic: Topic,
        index: int,
        config: LogConfig,
        is_wanted: Callable[[], bool],
    ) -> PartitionLog | None:
        """The log, made if there is none; None if it is not wanted. Raises OSError."""
        name, topic_id = TopicPartition(topic.name, index), uuids.to_text(topic.id)
        while (found := self.log_dirs.log_of(name)) is not None and found.topic_id != topic_id:
            if not is_wanted():
                return None
            await self._clear_name(image, name, found, topic_id)
        if found is not None:
            found.config = config  # the config may have changed meanwhile
            return found
        await self._forget_departed()
        async with self._making:  # one after another, so that it is in slices
            await self._slices.pause_if_due()
            # No await between this and the making: a directory may fail in any, and an empty log
            # would hide what it holds.
            if not is_wanted():
                return None
            return self.log_dirs.log_of(name) or self._make(topic, index, config)

    def make_now(self, topic: Topic, index: int, config: LogConfig) -> None:
        """Make the log if it is missing, unless a disk has to be waited for first.

        Raises OSError.
        """
        is_free = self.log_dirs.log_of(TopicPartition(topic.name, index)) is None
        if is_free and not any(log_dir.has_departed for log_dir in self.log_dirs):
            self._make(topic, index, config)

    def _make(self, topic: Topic, index: int, config: LogConfig) -> PartitionLog:
        name = TopicPartition(topic.name, index)
        return self.log_dirs.create(name, uuids.to_text(topic.id), config, now_ms())

    async def _clear_name(
        self, image: ClusterImage, name: TopicPartition, other: PartitionLog, topic_id: str
    ) -> None:
        """The log is of another topic with the same name: delete it or set it aside."""
        await self._flusher.until_idle(other)
        log_dir = self.log_dirs.dir_of(name)
        if log_dir is None or log_dir.logs[name] is not other:
            return  # the directory has failed meanwhile, or the other topic's log was deleted
        if is_deleted(image, self._node_id, other.topic_id):
            log_dir.delete(name, now_ms())  # an earlier deletion failed
        else:
            reason = f"it belongs to topic id {other.topic_id}, not {topic_id}"
            set_aside(log_dir, name, reason)

    async def delete(self, topic_id: bytes) -> None:
        """Return once the topic's logs are gone for good.

        Raises LogDirError: some may still be there.
        """
        uuid = uuids.to_text(topic_id)
        for log_dir in self.log_dirs:
            for partition_log in list(log_dir.logs.values()):
                if partition_log.topic_id == uuid:
                    await self._delete_log(partition_log)
                await self._slices.pause_if_due()
        await self._forget_departed()

    async def delete_one(self, topic: Topic, index: int) -> bool:
        """Return once the log of one partition is gone for good; whether there was one.

        Raises LogDirError: then it may still be there.
        """
        found = self.log_dirs.log_of(TopicPartition(topic.name, index))
        is_there = found is not None and found.topic_id == uuids.to_text(topic.id)
        if found is not None and is_there:
            await self._delete_log(found)
        await self._forget_departed()
        return is_there

    async def _delete_log(self, partition_log: PartitionLog) -> None:
        await self._flusher.until_idle(partition_log)
        name = partition_log.partition
        holder = self.log_dirs.dir_of(name)
        if holder is None or holder.logs[name] is not partition_log:
            return  # the directory has failed, or another topic's log has the name now
        try:
            holder.delete(name, now_ms())
        except OSError as error:
            raise LogDirError(holder, error) from error

    async def _forget_departed(self) -> None:
        """Return once logs that were deleted or set aside are gone for good.

        After a crash neither they nor their offsets come back. Raises LogDirError.
        """
        for log_dir in self.log_dirs:
            try:
                await self._checkpointer.record_departures(log_dir, self._table.high_watermark_of)
            except OSError as error:
                raise LogDirError(log_dir, error) from error
