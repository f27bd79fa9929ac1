"""InitProducerId: the producer id and epoch of a producer (KIP-98, KIP-360).

Idempotent producers get an id that no other producer has. A transactional id has its pair from its
coordinator; below the feature level of transactions it is refused for good, so that clients do not
retry for ever.
"""

from collections.abc import Awaitable
from typing import Any, Final

from logfleet.auth.operations import Operation
from logfleet.controller.brokers.feature_level import transactions_allowed
from logfleet.node.cluster.producer_id_pool import ProducerIdPool
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.coordinator import NO_TRANSACTIONS
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.handlers.transactions import may
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import InitProducerIdRequest, InitProducerIdResponse

NONE: Final = -1


def init_producer_id(
    rooms: Rooms, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """Without a transactional id: a new id with epoch 0, whatever id the producer had before.

    Source: TransactionCoordinator.handleInitProducerId.
    """
    if request.transactional_id is not None:
        return _of_transactional_id(rooms, request, request.transactional_id, context)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    producer_id = rooms.control.producer_ids.take()
    if producer_id is None:
        return _from_next_block(rooms.control.producer_ids)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _of_transactional_id(
    rooms: Rooms, request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if not transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    if not transactions_allowed(rooms.metadata.image):
        return _refused(NO_TRANSACTIONS)
    if not may(Operation.WRITE, transactional_id, context):
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    version = context.api_version
    waiter = rooms.transactions.coordinators.ask(
        transactional_id,
        lambda coordinator, turn, waiter: coordinator.init(turn, request, version, waiter),
        _refused,
    )
    return waiter.result(context.peer, _refused(ErrorCode.NOT_COORDINATOR))


async def _from_next_block(ids: ProducerIdPool) -> InitProducerIdResponse:
    producer_id = await ids.take_from_next_block()
    if producer_id is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)


HANDLERS: dict[type, Handler[Any]] = {InitProducerIdRequest: init_producer_id}
