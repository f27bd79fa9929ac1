"""InitProducerId for idempotent producers: an id that no other producer has (KIP-98).

Transactional ids need a transaction coordinator, which this version does not have: the refusal is
final, so that clients do not retry for ever.
"""

from collections.abc import Awaitable
from typing import Any, Final

from logfleet.node.cluster.producer_id_pool import ProducerIdPool
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.coordinator import NO_TRANSACTIONS
from logfleet.node.handlers.rooms import Rooms
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import InitProducerIdRequest, InitProducerIdResponse

NONE: Final = -1


def init_producer_id(
    rooms: Rooms, request: InitProducerIdRequest, _context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """A new id with epoch 0, whatever id the producer had before.

    Source: TransactionCoordinator.handleInitProducerId.
    """
    if request.transactional_id is not None:
        return _refused(NO_TRANSACTIONS if request.transactional_id else ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    producer_id = rooms.control.producer_ids.take()
    if producer_id is None:
        return _from_next_block(rooms.control.producer_ids)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _from_next_block(ids: ProducerIdPool) -> InitProducerIdResponse:
    producer_id = await ids.take_from_next_block()
    if producer_id is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)


HANDLERS: dict[type, Handler[Any]] = {InitProducerIdRequest: init_producer_id}
