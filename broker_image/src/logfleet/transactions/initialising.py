"""InitProducerId: which producer id and epoch a producer gets (KIP-98, KIP-360).

Source: TransactionCoordinator.handleInitProducerId and prepareInitProducerIdTransit, whose order of
checks this follows. It differs from Kafka in two answers, both PRODUCER_FENCED: to a producer that
continues with an epoch of long ago while another's transaction is in progress (Kafka aborts that
transaction), and to one that continues with another epoch than the last that a producer id has
(Kafka answers UNKNOWN_SERVER_ERROR).
"""

from typing import Final

from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.decision import NO_ID_LEFT, Decision, TakeProducerId
from logfleet.transactions.ending import fence
from logfleet.transactions.state import (
    LAST_CLIENT_EPOCH,
    NEVER_MS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    State,
    Transaction,
    new_transaction,
)
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import InitProducerIdRequest

FENCED_SINCE: Final = 4
"""Since this version of InitProducerId PRODUCER_FENCED exists (KIP-588)."""


def refusal(request: InitProducerIdRequest, config: TransactionConfig) -> ErrorCode:
    """Why a request with a transactional id is invalid whatever the state of the id; else NONE."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if request.enable2_pc and not config.is_two_phase_commit_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:
        return ErrorCode.UNSUPPORTED_VERSION
    if not request.enable2_pc and not (0 < request.transaction_timeout_ms <= config.max_timeout_ms):
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def initialise(
    stored: Transaction | None,
    request: InitProducerIdRequest,
    take_producer_id: TakeProducerId,
    wall_ms: int,
) -> Decision:
    """The pair that a producer gets; or why not.

    A transaction in progress is aborted first; the producer retries after CONCURRENT_TRANSACTIONS.
    """
    timeout_ms = NEVER_MS if request.enable2_pc else request.transaction_timeout_ms
    if stored is None:
        producer_id = take_producer_id()
        if producer_id is None:
            return Decision(NO_ID_LEFT)
        return _given(new_transaction(producer_id, timeout_ms, wall_ms))
    if stored.is_decided:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not _may_continue(stored, request):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if stored.state is State.ONGOING:
        following = fence(stored, take_producer_id, wall_ms)
        if following is None:
            return Decision(NO_ID_LEFT)
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, following)
    if stored.is_exhausted:
        return _next_producer_id(stored, request, take_producer_id, timeout_ms, wall_ms)
    return _next_epoch(stored, request, timeout_ms, wall_ms)


def _names_producer(request: InitProducerIdRequest) -> bool:
    """Whether the producer continues with the pair that it has."""
    return request.producer_id != NO_PRODUCER_ID


def _may_continue(stored: Transaction, request: InitProducerIdRequest) -> bool:
    if not _names_producer(request):
        return True
    if request.producer_id != stored.producer_id and not (
        # a repetition: the answer with the new producer id was lost
        request.producer_id == stored.previous_producer_id
        and request.producer_epoch >= LAST_CLIENT_EPOCH
    ):
        return False
    return stored.state is not State.ONGOING or request.producer_epoch in (
        stored.epoch,
        stored.last_epoch,
    )


def _next_producer_id(
    stored: Transaction,
    request: InitProducerIdRequest,
    take_producer_id: TakeProducerId,
    timeout_ms: int,
    wall_ms: int,
) -> Decision:
    if _names_producer(request) and request.producer_epoch != stored.epoch:
        return Decision(ErrorCode.PRODUCER_FENCED)
    producer_id = take_producer_id()
    if producer_id is None:
        return Decision(NO_ID_LEFT)
    return _given(
        stored.with_epoch(
            producer_id,
            ProducerEpoch(0),
            last_epoch=stored.epoch if _names_producer(request) else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            wall_ms=wall_ms,
        )
    )


def _next_epoch(
    stored: Transaction, request: InitProducerIdRequest, timeout_ms: int, wall_ms: int
) -> Decision:
    epoch = ProducerEpoch(stored.epoch + 1)
    if not _names_producer(request):
        last_epoch = NO_PRODUCER_EPOCH
    elif request.producer_epoch == stored.epoch:
        last_epoch = stored.epoch
    elif request.producer_epoch == stored.last_epoch:
        epoch, last_epoch = stored.epoch, stored.last_epoch  # a repetition
    else:
        return Decision(ErrorCode.PRODUCER_FENCED)
    return _given(
        stored.with_epoch(
            stored.producer_id,
            epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            wall_ms=wall_ms,
        )
    )


def _given(following: Transaction) -> Decision:
    return Decision(ErrorCode.NONE, following, following.producer_id, following.epoch)
