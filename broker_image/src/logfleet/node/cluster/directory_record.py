"""Keeps the record of this broker's log directories in the metadata store (`control.log_directories` says what for)."""

from collections.abc import Collection

import msgspec

from logfleet.control.log_directories import LogDirectories
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Directories
from logfleet.metadata.keys import DirectoriesValue
from logfleet.metadata.store import Get, MetadataStore, Put, Txn, created_at, modified_at
from logfleet.node.cluster.claims import settle


class DirectoryRecord:
    """Of one broker. local: as its start found them."""

    def __init__(self, store: MetadataStore, broker_id: int, local: LogDirectories) -> None:
        self._store = store
        self._broker_id = broker_id
        self._local = local

    def missing(self, image: ClusterImage) -> frozenset[str]:
        """Directories that may hold logs of this broker and are not there."""
        return self._local.missing(image.directories.get(self._broker_id))

    async def keep(
        self, image: ClusterImage, broker_epoch: int, forgotten: Collection[str]
    ) -> bool:
        """Have it name the directories that are there, and `forgotten` no more; True: logs may be made there.

        False: the registration of that epoch is over. Waits as long as the store is away. Raises StoreRefused, StoreReplaced.
        """
        registration, key = keys.broker(self._broker_id), keys.directories(self._broker_id)
        recorded = image.directories.get(self._broker_id)
        while True:
            wanted = self._local.to_record(recorded, forgotten)
            if recorded is not None and wanted == recorded.ids:
                return True
            revision = 0 if recorded is None else recorded.revision
            result = await settle(
                self._store,
                Txn(
                    (created_at(registration, broker_epoch), modified_at(key, revision)),
                    (Put(key, keys.encode(DirectoriesValue(tuple(sorted(wanted))))),),
                    (Get(registration), Get(key)),
                ),
            )
            if result.succeeded:
                return True
            registered, held = result.reads
            if registered is None or registered.create_revision != broker_epoch:
                return False
            recorded = None
            if held is not None:
                ids = msgspec.json.decode(held.value, type=DirectoriesValue).ids
                recorded = Directories(frozenset(ids), held.mod_revision)
