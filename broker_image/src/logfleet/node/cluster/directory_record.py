"""Keeps the record of this broker's log directories in the metadata store.

`replication.missing_directories` gives the reasons.
"""

import asyncio
from collections.abc import Collection
from typing import Final

import msgspec

from logfleet.metadata.image import ClusterImage, Directories
from logfleet.metadata.kinds.brokers import BROKER, DIRECTORIES, DirectoriesValue
from logfleet.metadata.store import (
    Get,
    Put,
    StoreRefused,
    Txn,
    TxnResult,
    created_at,
    modified_at,
)
from logfleet.node.world import World
from logfleet.replication.missing_directories import LogDirectories
from logfleet.store.claims import settle
from logfleet.store.refused_writes import RefusedWrites
from logfleet.types import BrokerEpoch

SETTLE_S_MAX: Final = 5.0
"""Longest time that a write waits for the store: no image is applied meanwhile."""


class DirectoryRecord:
    """The record of one broker. local: the directories that its start found.

    is_refused: the store refused the record; no logs are made until it accepts it.
    """

    def __init__(self, world: World, broker_id: int, local: LogDirectories) -> None:
        self._store = world.store
        self._broker_id = broker_id
        self._local = local
        self.refused = RefusedWrites(world.clock)
        self.is_refused = False

    def missing(self, image: ClusterImage) -> frozenset[str]:
        """Directories that may hold logs of this broker and are not there."""
        return self._local.missing(image.directories.get(self._broker_id))

    async def keep(
        self, image: ClusterImage, broker_epoch: BrokerEpoch, forgotten: Collection[str]
    ) -> bool:
        """Record the directories that are there, without `forgotten`. True: logs may be made there.

        False: the registration of that epoch has ended, or the store refuses or does not answer
        (`is_refused`). Raises StoreReplaced.
        """
        registration, key = BROKER.key(self._broker_id), DIRECTORIES.key(self._broker_id)
        recorded = image.directories.get(self._broker_id)
        self.is_refused = False
        while True:
            wanted = self._local.to_record(recorded, forgotten)
            if recorded is not None and wanted == recorded.ids:
                return True
            revision = 0 if recorded is None else recorded.revision
            txn = Txn(
                (created_at(registration, broker_epoch), modified_at(key, revision)),
                (Put(key, DIRECTORIES.encode(DirectoriesValue(tuple(sorted(wanted))))),),
                (Get(registration), Get(key)),
            )
            result = await self._settled(txn)
            if result is None:
                return False
            if result.succeeded:
                return True
            registered, held = result.reads
            if registered is None or registered.create_revision != broker_epoch:
                return False
            recorded = None
            if held is not None:
                ids = msgspec.json.decode(held.value, type=DirectoriesValue).ids
                recorded = Directories(frozenset(ids), held.mod_revision)

    async def _settled(self, txn: Txn) -> TxnResult | None:
        """Commit; None if the store refuses, or has refused before and the pause is not over."""
        key = DIRECTORIES.key(self._broker_id)
        self.is_refused = self.refused.is_waiting(key)
        if self.is_refused:
            return None
        try:
            async with asyncio.timeout(SETTLE_S_MAX):
                result = await settle(self._store, txn)
        except TimeoutError:  # a later image tries the same write again
            self.is_refused = True
            return None
        except StoreRefused as error:
            self.is_refused = True
            self.refused.refused(key, error)
            return None
        self.refused.accepted(key)
        return result
