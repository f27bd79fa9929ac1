"""Deletes the logs of deleted and moved partitions.

The cluster forgets a deleted topic once every broker has confirmed that its logs are gone.

The log of a partition that was moved away is deleted if this broker is running when it sees the
move. After a start it is set aside instead (`node.partitions.strays`): a metadata store that was
restored from before the move looks the same, and then these logs are the only ones.
"""

import asyncio
from collections.abc import Iterable

import structlog

from logfleet.controller.changes.topics import confirm_deleted
from logfleet.metadata.image import ClusterImage, DeletedTopic, Topic
from logfleet.metadata.store import MetadataStore, StoreRefused, StoreUnavailable, UnknownOutcome
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.store.refused_writes import RefusedWrites
from logfleet.wire import uuids

log = structlog.get_logger(__name__)

CONFIRM_AGAIN_S = 1.0


class Deletions:
    """The deletions of one broker. refused: confirmations that the store refused."""

    def __init__(self, node_id: int, store: MetadataStore, logs: ReplicaLogs) -> None:
        self.refused = RefusedWrites()
        self._node_id = node_id
        self._store = store
        self._logs = logs

    def due(self, image: ClusterImage) -> list[DeletedTopic]:
        """The deleted topics that this broker has yet to confirm."""
        return [each for each in image.deleted.values() if self._node_id in each.brokers]

    def moved(self, topic: Topic, indexes: Iterable[int]) -> set[int]:
        """The topic's partitions that were moved to other brokers.

        indexes: partitions of which this broker has, or may have, a log.
        """
        return {
            index
            for index in indexes
            if index < len(topic.partitions)
            and self._node_id not in topic.partitions[index].replicas
        }

    async def carry_out_moved(self, topic: Topic, index: int) -> None:
        """Return once the partition's log is gone for good.

        Raises OSError: the log may still be there.
        """
        if await self._logs.delete_one(topic, index):
            log.info("moved_away", topic=topic.name, partition=index)

    async def carry_out(self, deleted: DeletedTopic) -> bool:
        """Delete the logs for good, and confirm it. False: the store refused, call it again later.

        Raises OSError: then nothing is confirmed, as some logs may still be there.
        """
        uuid = uuids.to_text(deleted.id)
        write = f"deletion of {uuid}"
        if self.refused.is_waiting(write):
            return False
        await self._logs.delete(deleted.id)
        log.info("topic_deleted", topic=deleted.name, topic_id=uuid)
        while True:
            try:
                # If another broker was faster, the next image brings the key's new state here.
                await self._store.txn(confirm_deleted(deleted, self._node_id))
            except (StoreUnavailable, UnknownOutcome) as error:
                log.warning("deletion_not_confirmed", topic=deleted.name, reason=str(error))
                await asyncio.sleep(CONFIRM_AGAIN_S)
            except StoreRefused as error:
                self.refused.refused(write, error)
                return False
            else:
                self.refused.accepted(write)
                return True
