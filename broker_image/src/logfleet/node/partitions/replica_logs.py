"""The logs of this broker's replicas, whoever leads them: found, made where none may be elsewhere, deleted.

A log is deleted only when the cluster says that its topic was deleted, never because the topic is not there, or that its partition has been
moved to other brokers while this one ran; one that belongs to nothing known here is set aside and kept.
"""

from collections.abc import Container

from logfleet.io.clock import now_ms
from logfleet.io.slices import Slices
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.node.partitions.strays import is_deleted, set_aside
from logfleet.storage.checkpointer import Checkpointer
from logfleet.storage.flusher import Flusher
from logfleet.storage.log_dirs import LogDirError, LogDirs
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire import uuids


class ReplicaLogs:
    """log_dirs: where they are. table: those that are hosted, and which of them are offline."""

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

    def has(self, topic: Topic, index: int) -> bool:
        """Whether the log is in a directory that is there."""
        found = self.log_dirs.log_of(TopicPartition(topic.name, index))
        return found is not None and found.topic_id == uuids.to_text(topic.id)

    async def replica_for(
        self, image: ClusterImage, topic: Topic, index: int, config: LogConfig
    ) -> Replica | None:
        """The replica, hosted from now on if it was not; None if its log is in a directory that failed or is missing. Raises OSError."""
        partition_log = await self.log_for(image, topic, index, config)
        replica = self._table.replica(topic.id, index)
        if replica is None and partition_log is not None:
            known = self.log_dirs.high_watermark_of(partition_log.partition)
            replica = Replica(topic.name, topic.id, index, partition_log, high_watermark=known)
            self._table.add(replica)
        elif replica is not None:
            # what began to cut it in its last role is carried through: until then nobody knows where it ends
            await self._flusher.until_idle(replica.log)
            if (topic.id, index) in self._table.offline:
                return None
        return replica

    async def log_for(
        self, image: ClusterImage, topic: Topic, index: int, config: LogConfig
    ) -> PartitionLog | None:
        """The log, made if there is none; None if it is in a directory that failed or is missing. Raises OSError."""
        name, topic_id = TopicPartition(topic.name, index), uuids.to_text(topic.id)
        found = self.log_dirs.log_of(name)
        if found is not None and found.topic_id == topic_id:
            found.config = config  # it may have changed while nobody hosted the log
            return found
        if found is not None:
            await self._make_way(image, name, found, topic_id)
        await self._forget_departed()
        # Asked without an await before the making: a directory may fail in any, and an empty log would hide what it holds.
        if (topic.id, index) in self._table.offline:
            return None
        return self.log_dirs.create(name, topic_id, config, now_ms())

    async def _make_way(
        self, image: ClusterImage, name: TopicPartition, other: PartitionLog, topic_id: str
    ) -> None:
        """The log is another topic's of the same name."""
        await self._flusher.until_idle(other)
        log_dir = self.log_dirs.dir_of(name)
        if log_dir is None:
            return  # it failed meanwhile, and the other topic's log with it
        if is_deleted(image, self._node_id, other.topic_id):
            log_dir.delete(name, now_ms())  # it could not be until now
        else:
            reason = f"it belongs to topic id {other.topic_id}, not {topic_id}"
            set_aside(log_dir, name, reason)

    async def delete(self, topic_id: bytes, indexes: Container[int] | None = None) -> None:
        """Return once the topic's logs are gone for good, or those of these partitions. Raises LogDirError: then some may be there."""
        uuid = uuids.to_text(topic_id)
        for log_dir in self.log_dirs:
            for name, partition_log in list(log_dir.logs.items()):
                is_meant = indexes is None or name.partition in indexes
                if is_meant and partition_log.topic_id == uuid:
                    await self._flusher.until_idle(partition_log)
                    holder = self.log_dirs.dir_of(name) or log_dir  # a move may have ended
                    try:
                        holder.delete(name, now_ms())
                    except OSError as error:
                        raise LogDirError(holder, error) from error
                await self._slices.breathe()
        await self._forget_departed()

    async def _forget_departed(self) -> None:
        """Return once deleted logs, and those set aside, are gone for good: after a crash neither they nor their offsets are there.

        Raises LogDirError.
        """
        for log_dir in self.log_dirs:
            try:
                await self._checkpointer.forget_departed(log_dir, self._table.high_watermark_of)
            except OSError as error:
                raise LogDirError(log_dir, error) from error
