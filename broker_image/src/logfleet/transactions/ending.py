"""EndTxn, and aborts that the coordinator decides (KIP-98, KIP-890).

The version of the request decides the protocol, not the finalized feature. Source:
TransactionCoordinator.endTransactionWithTV1 and endTransaction, whose tables these are.
"""

from typing import Final

from logfleet.transactions.decision import NO_ID_LEFT, Decision, TakeProducerId
from logfleet.transactions.state import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    TV2,
    State,
    Transaction,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import EndTxnRequest

FENCED_SINCE: Final = 2
"""Since this version of EndTxn, AddPartitionsToTxn and AddOffsetsToTxn PRODUCER_FENCED exists
(KIP-588).
"""
TV2_SINCE: Final = 5
"""Since this version of EndTxn a client speaks TV2."""


def end(
    stored: Transaction | None,
    request: EndTxnRequest,
    version: int,
    take_producer_id: TakeProducerId,
    wall_ms: int,
) -> Decision:
    """Commit or abort, or answer a repeated request. version: of the request."""
    if stored is None:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if version < TV2_SINCE:
        return _end_by_state(stored, request, wall_ms)
    return _end_by_epoch(stored, request, take_producer_id, wall_ms)


def fence(
    stored: Transaction, take_producer_id: TakeProducerId, wall_ms: int
) -> Transaction | None:
    """The abort of a transaction in progress, with the epoch raised once (KAFKA-19367).

    Neither its producer nor any other gets that epoch. None if a producer id is needed, but there
    is none.
    """
    return _raised(stored, take_producer_id, wall_ms, commit=False)


def _end_by_state(stored: Transaction, request: EndTxnRequest, wall_ms: int) -> Decision:
    """TV0 and TV1: a transaction has no epoch of its own, so a repetition counts by state."""
    if request.producer_id != stored.producer_id:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch != stored.epoch:
        return Decision(ErrorCode.PRODUCER_FENCED)
    if stored.is_decided:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if stored.state is State.ONGOING:
        following = stored.prepared(
            commit=request.committed,
            client_version=0,
            next_producer_id=NO_PRODUCER_ID,
            wall_ms=wall_ms,
        )
        return Decision(ErrorCode.NONE, following)
    if stored.state is not State.EMPTY and stored.is_commit == request.committed:
        return Decision(ErrorCode.NONE)
    return Decision(ErrorCode.INVALID_TXN_STATE)


def _end_by_epoch(
    stored: Transaction, request: EndTxnRequest, take_producer_id: TakeProducerId, wall_ms: int
) -> Decision:
    """TV2: the epoch says whether this transaction is meant or the one before."""
    # Before the pair: after an overflow the producer may have its new id already (KAFKA-18660).
    if stored.is_decided:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    has_overflowed = (
        request.producer_id == stored.previous_producer_id
        and request.producer_epoch == LAST_CLIENT_EPOCH
        and stored.epoch == 0
    )
    if request.producer_id != stored.producer_id and not has_overflowed:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_id == stored.producer_id and request.producer_epoch == stored.epoch:
        return _end_now(stored, request, take_producer_id, wall_ms)
    if stored.state in {State.ONGOING, State.EMPTY}:
        return Decision(ErrorCode.PRODUCER_FENCED)
    is_next_epoch = request.producer_epoch + 1 == stored.epoch
    # TV0 and TV1 leave the epoch as it is: then the next epoch was given to another producer.
    if not (has_overflowed or is_next_epoch) or stored.client_version < TV2:
        return Decision(ErrorCode.PRODUCER_FENCED)
    if stored.is_commit != request.committed:
        return Decision(ErrorCode.INVALID_TXN_STATE)
    return Decision(ErrorCode.NONE, producer_id=stored.producer_id, epoch=stored.epoch)


def _end_now(
    stored: Transaction, request: EndTxnRequest, take_producer_id: TakeProducerId, wall_ms: int
) -> Decision:
    """The producer has the current pair. It may abort although nothing was added."""
    if request.committed and stored.state is not State.ONGOING:
        return Decision(ErrorCode.INVALID_TXN_STATE)
    following = _raised(stored, take_producer_id, wall_ms, commit=request.committed)
    if following is None:
        return Decision(NO_ID_LEFT)
    complete = following.completed(wall_ms)
    return Decision(ErrorCode.NONE, following, complete.producer_id, complete.epoch)


def _raised(
    stored: Transaction, take_producer_id: TakeProducerId, wall_ms: int, *, commit: bool
) -> Transaction | None:
    next_producer_id = take_producer_id() if stored.is_exhausted else NO_PRODUCER_ID
    if next_producer_id is None:
        return None
    return stored.prepared(
        commit=commit, client_version=TV2, next_producer_id=next_producer_id, wall_ms=wall_ms
    )
