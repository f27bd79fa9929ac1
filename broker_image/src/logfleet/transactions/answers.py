"""How a coordinator answers once its decision is committed, or could not be; what it logs then.

Each function is the `then` of a write, after `functools.partial` has given it all but the last two
arguments: the turn that follows, and NONE or the error of the write.
"""

from collections.abc import Callable

from logfleet.coordinators.turn import Waiter, answer_to_append_error
from logfleet.transactions import ending, initialising
from logfleet.transactions.decision import Decision
from logfleet.transactions.state import NO_PRODUCER_EPOCH, TopicPartition, Transaction
from logfleet.transactions.turn import TransactionTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
)

Then = Callable[[TransactionTurn, ErrorCode], None]
"""What follows a write: called with a new turn, and NONE or why it was not committed."""


def known_to_version(error: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """The error as clients of this version know it (KIP-588).

    Before `fenced_since` there was no PRODUCER_FENCED, but INVALID_PRODUCER_EPOCH.
    """
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def reply_init(
    version: int, waiter: Waiter, decision: Decision, turn: TransactionTurn, error: ErrorCode
) -> None:
    """Answer an InitProducerId with the pair of the decision, or its error."""
    response = InitProducerIdResponse(producer_epoch=NO_PRODUCER_EPOCH)
    if error is not ErrorCode.NONE:
        response.error_code = answer_to_append_error(error)
    elif decision.error is not ErrorCode.NONE:
        response.error_code = known_to_version(decision.error, version, initialising.FENCED_SINCE)
    else:
        response.producer_id, response.producer_epoch = decision.producer_id, decision.epoch
    turn.reply(waiter, response)


def reply_end(
    version: int, waiter: Waiter, decision: Decision, turn: TransactionTurn, error: ErrorCode
) -> None:
    """Answer an EndTxn: with the pair for the next transaction, or the decision's error."""
    response = EndTxnResponse()
    if error is not ErrorCode.NONE:
        response.error_code = answer_to_append_error(error)
    elif decision.error is not ErrorCode.NONE:
        response.error_code = known_to_version(decision.error, version, ending.FENCED_SINCE)
    else:
        response.producer_id, response.producer_epoch = decision.producer_id, decision.epoch
    turn.reply(waiter, response)


def reply_code(waiter: Waiter, decided: ErrorCode, turn: TransactionTurn, error: ErrorCode) -> None:
    """Answer with one error code; NONE if all is well."""
    turn.reply(waiter, decided if error is ErrorCode.NONE else answer_to_append_error(error))


def reply_rows(
    waiter: Waiter,
    rows: dict[TopicPartition, ErrorCode],
    turn: TransactionTurn,
    error: ErrorCode,
) -> None:
    """Answer with an error for each partition."""
    if error is not ErrorCode.NONE:
        rows = dict.fromkeys(rows, answer_to_append_error(error))
    turn.reply(waiter, rows)


def reply_described(
    waiter: Waiter,
    rows: list[DescribeTransactionsResponse.TransactionState],
    turn: TransactionTurn,
    error: ErrorCode,
) -> None:
    """Answer with the rows of DescribeTransactions."""
    if error is not ErrorCode.NONE:
        code = answer_to_append_error(error)
        rows = [
            DescribeTransactionsResponse.TransactionState(
                transactional_id=row.transactional_id, error_code=code
            )
            for row in rows
        ]
    turn.reply(waiter, rows)


def log_fenced(
    transactional_id: str,
    aborted: Transaction,
    then: Then,
    turn: TransactionTurn,
    error: ErrorCode,
) -> None:
    """Log that a producer has lost its transaction to a newer one, then go on with `then`."""
    if error is ErrorCode.NONE:
        turn.log(
            "transaction_fenced",
            transactional_id=transactional_id,
            producer_id=aborted.producer_id,
            epoch=aborted.last_epoch,
            partitions=len(aborted.partitions),
            why="another producer, or the same one again, asked for an epoch",
        )
    then(turn, error)


def log_timed_out(
    transactional_id: str, stored: Transaction, turn: TransactionTurn, error: ErrorCode
) -> None:
    """Log that a transaction was aborted because it took too long."""
    if error is ErrorCode.NONE:
        turn.log(
            "transaction_timed_out",
            transactional_id=transactional_id,
            producer_id=stored.producer_id,
            epoch=stored.epoch,
            partitions=len(stored.partitions),
            why=f"in progress for longer than its timeout of {stored.timeout_ms} ms",
        )
