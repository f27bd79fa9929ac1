"""Producer ids that no other producer has: each broker takes blocks of them from the store.

It keeps a block in reserve, so that new producers get ids while the store does not answer.
"""

import asyncio
from typing import Final

import structlog

from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID
from logfleet.metadata.store import MetadataStore, StoreRefused, StoreUnavailable
from logfleet.node.cluster.producer_id_blocks import next_block
from logfleet.store.claims import settle

log = structlog.get_logger()

TAKE_S_MAX: Final = 5.0
"""Longest time that a producer waits for a block; then it has to try again."""
RESERVE_PAUSE_S: Final = 1.0
"""Pause before the store is asked again for a block in reserve."""


class ProducerIdPool:
    """The ids this broker may give out. The rest of its blocks is lost when it stops."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._ids = iter(range(0))
        self._reserve: range | None = None
        self._reserve_used = asyncio.Event()
        self._taking = asyncio.Lock()

    async def run(self) -> None:
        """Keep a block in reserve, until cancelled."""
        while True:
            self._reserve_used.clear()
            try:
                async with self._taking:
                    self._reserve = await self._block()
            except (StoreUnavailable, StoreRefused) as error:
                log.warning("producer_ids_not_available", reason=str(error))
                await asyncio.sleep(RESERVE_PAUSE_S)
                continue
            await self._reserve_used.wait()

    def take(self) -> int | None:
        """An id, or None if no block is left."""
        producer_id = next(self._ids, None)
        if producer_id is None and self._reserve is not None:
            self._ids, self._reserve = iter(self._reserve), None
            self._reserve_used.set()
            producer_id = next(self._ids)
        return producer_id

    async def take_from_next_block(self) -> int | None:
        """An id; None if the store does not give a block in time."""
        try:
            async with asyncio.timeout(TAKE_S_MAX), self._taking:
                while (producer_id := self.take()) is None:
                    self._ids = iter(await self._block())
        except (TimeoutError, StoreUnavailable, StoreRefused) as error:
            log.warning("producer_ids_not_available", reason=str(error) or "no answer in time")
            return None
        return producer_id

    async def _block(self) -> range:
        """A block that is this broker's alone. Raises StoreUnavailable, StoreRefused."""
        while True:
            block, txn = next_block(await self._store.get(NEXT_PRODUCER_ID.prefix))
            if (await settle(self._store, txn)).succeeded:
                log.info("producer_ids_taken", first=block.start, count=len(block))
                return block
