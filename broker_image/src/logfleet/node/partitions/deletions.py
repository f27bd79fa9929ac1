"""Topics that were deleted: what this broker has of them goes, and it says so; the cluster forgets a deletion when every broker has."""

import asyncio

import structlog

from logfleet.control.topics import confirm_deleted
from logfleet.metadata.image import ClusterImage, DeletedTopic
from logfleet.metadata.store import MetadataStore, StoreUnavailable, UnknownOutcome
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.wire import uuids

log = structlog.get_logger(__name__)

CONFIRM_AGAIN_S = 1.0


class Deletions:
    """Of one broker."""

    def __init__(self, node_id: int, store: MetadataStore, logs: ReplicaLogs) -> None:
        self._node_id = node_id
        self._store = store
        self._logs = logs

    def due(self, image: ClusterImage) -> list[DeletedTopic]:
        """Those that this broker has yet to confirm."""
        return [each for each in image.deleted.values() if self._node_id in each.brokers]

    async def carry_out(self, deleted: DeletedTopic) -> None:
        """Return once the logs are gone for good and it is said. Raises OSError: then nothing is said, as some may be there."""
        await self._logs.delete(deleted.id)
        log.info("topic_deleted", topic=deleted.name, topic_id=uuids.to_text(deleted.id))
        while True:
            try:
                # If another broker was faster, the next image brings the key's new state here.
                await self._store.txn(confirm_deleted(deleted, self._node_id))
            except (StoreUnavailable, UnknownOutcome) as error:
                log.warning("deletion_not_confirmed", topic=deleted.name, reason=str(error))
                await asyncio.sleep(CONFIRM_AGAIN_S)
            else:
                return
