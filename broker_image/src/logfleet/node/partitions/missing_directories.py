"""Takes partitions offline whose logs may be in a missing log directory.

`replication.missing_directories` gives the reasons.
"""

from collections.abc import Iterator

import structlog

from logfleet.io.slices import Slices
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.node.cluster.directory_record import DirectoryRecord
from logfleet.node.partitions.offline import OfflinePartitions
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.replication.missing_directories import is_new, may_begin_empty
from logfleet.store.refused_writes import RefusedWrites
from logfleet.types import BrokerEpoch

log = structlog.get_logger(__name__)


class MissingDirectories:
    """The missing directories of one broker. record: names all that may hold logs of it."""

    def __init__(
        self,
        node_id: int,
        record: DirectoryRecord,
        logs: ReplicaLogs,
        offline: OfflinePartitions,
    ) -> None:
        self._node_id = node_id
        self._record = record
        self._logs = logs
        self._offline = offline
        self._slices = Slices()
        self._lost: set[tuple[bytes, int]] = set()
        self._are_lost_current = False
        self._are_lost_logged = False

    @property
    def refused(self) -> RefusedWrites:
        """Writes of the record that the store refused."""
        return self._record.refused

    @property
    def is_refused(self) -> bool:
        """Whether `follow` was False because the store refused the record: call it again later."""
        return self._record.is_refused

    def registration_changed(self) -> None:
        """The broker has a new registration, and so other partitions count as new."""
        self._are_lost_current = False

    def take_offline(self, image: ClusterImage) -> None:
        """After loading, before registration: take offline what is in a missing directory."""
        missing = self._record.missing(image)
        if missing:
            lost = {each for each in self._find_lost(image, None) if each is not None}
            self._set_lost(lost, missing)

    async def follow(
        self, image: ClusterImage, changes: Changes, broker_epoch: BrokerEpoch | None
    ) -> bool:
        """Take offline what a missing directory may hold; return whether logs may be made.

        A missing directory that holds nothing is removed from the record. broker_epoch: of the
        present registration, None while there is none.
        """
        deleted = any(image.topic_by_id(topic_id) is None for topic_id in changes.topics)
        if changes.everything or deleted or any(each in changes.topics for each, _ in self._lost):
            self._are_lost_current = False
        forgotten: frozenset[str] = frozenset()
        missing = self._record.missing(image)
        is_current = broker_epoch is not None and image.revision >= broker_epoch
        if missing and not self._are_lost_current:
            lost = set()
            for each in self._find_lost(image, broker_epoch):
                if each is not None:
                    lost.add(each)
                await self._slices.pause_if_due()
            self._set_lost(lost, missing)
            self._are_lost_current = is_current
            if is_current and not lost:
                forgotten = missing
        if broker_epoch is None or not is_current:
            return False
        if forgotten:
            log.info("log_directories_forgotten", directories=sorted(forgotten))
        return await self._record.keep(image, broker_epoch, forgotten)

    def _set_lost(self, lost: set[tuple[bytes, int]], missing: frozenset[str]) -> None:
        if no_more := self._lost - lost:
            log.info("lost_partitions_fewer", partitions=len(no_more), left=len(lost))
            self._offline.remove(no_more)
        self._lost = lost
        self._offline.add(lost)
        if lost and not self._are_lost_logged:
            self._are_lost_logged = True
            log.error(
                "log_directories_missing",
                directories=sorted(missing),
                partitions=len(lost),
                note="partitions without another leader stay offline: mount the directories at a "
                "path of log.dirs and restart, or delete the topics",
            )

    def _find_lost(
        self, image: ClusterImage, broker_epoch: BrokerEpoch | None
    ) -> Iterator[tuple[bytes, int] | None]:
        """The broker's partitions that are not new and have no log in any present directory.

        Yields None for every other partition. Leaves out those that may begin empty: none may while
        a failed directory could come back with their logs.
        """
        may_begin = broker_epoch is not None and not self._logs.log_dirs.failed
        for topic in image.topics():
            for index, state in enumerate(topic.partitions):
                is_lost = (
                    self._node_id in state.replicas
                    and not is_new(state, self._node_id, broker_epoch)
                    and not self._logs.has(topic, index)
                    and not (may_begin and may_begin_empty(state, self._node_id))
                )
                yield (topic.id, index) if is_lost else None
