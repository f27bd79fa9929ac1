"""InitProducerId for idempotent producers: an id that no other producer has (KIP-98).

Each broker takes blocks of ids from the metadata store and gives them out alone. Transactional ids need a transaction
coordinator, which this version does not have: they are refused, finally, instead of being retried for ever.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

import structlog

from logfleet.control.producer_ids import next_block
from logfleet.metadata import keys
from logfleet.metadata.store import MetadataStore, StoreUnavailable
from logfleet.node.cluster.claims import settle
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from logfleet.node.handlers.admin.host import AdminHost

log = structlog.get_logger()

NONE: Final = -1
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
        except (TimeoutError, StoreUnavailable) as error:
            log.warning("producer_ids_not_available", reason=str(error) or "no answer in time")
            return None
        return producer_id

    async def _refill(self) -> None:
        block, txn = next_block(await self._store.get(keys.NEXT_PRODUCER_ID))
        result = await settle(self._store, txn)
        if result.succeeded:
            log.info("producer_ids_taken", first=block.start, count=len(block))
            self._ids = iter(block)


def init_producer_id(
    host: "AdminHost", request: InitProducerIdRequest, _context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """A new id with epoch 0, whatever id the producer had before (Kafka: TransactionCoordinator.handleInitProducerId)."""
    if request.transactional_id is not None:
        error = (
            ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return _refused(error)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    producer_id = host.producer_ids.take()
    if producer_id is None:
        return _from_next_block(host.producer_ids)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _from_next_block(ids: ProducerIds) -> InitProducerIdResponse:
    producer_id = await ids.take_from_next_block()
    if producer_id is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)


HANDLERS: dict[type, Handler[Any]] = {InitProducerIdRequest: init_producer_id}
