"""Producer ids that no other producer has: each broker takes blocks of them from the metadata store and gives them out alone."""

import asyncio
from typing import Final

import structlog

from logfleet.control.producer_ids import next_block
from logfleet.metadata import keys
from logfleet.metadata.store import MetadataStore, StoreRefused, StoreUnavailable
from logfleet.node.cluster.claims import settle

log = structlog.get_logger()

TAKE_S_MAX: Final = 5.0
"""How long a producer waits for a block; then it is told to try again."""


class ProducerIds:
    """The ids this broker may give out. What is left of a block when it stops is lost."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._ids = iter(range(0))
        self._taking = asyncio.Lock()

    def take(self) -> int | None:
        """An id, or None if the block is used up."""
        return next(self._ids, None)

    async def take_from_next_block(self) -> int | None:
        """An id; None if the store does not give a block in time."""
        try:
            async with asyncio.timeout(TAKE_S_MAX), self._taking:
                while (producer_id := self.take()) is None:
                    await self._refill()
        except (TimeoutError, StoreUnavailable, StoreRefused) as error:
            log.warning("producer_ids_not_available", reason=str(error) or "no answer in time")
            return None
        return producer_id

    async def _refill(self) -> None:
        block, txn = next_block(await self._store.get(keys.NEXT_PRODUCER_ID))
        result = await settle(self._store, txn)
        if result.succeeded:
            log.info("producer_ids_taken", first=block.start, count=len(block))
            self._ids = iter(block)
