"""Adding partitions to a transaction, and verifying that they are in it (KIP-98, KIP-890).

Source: TransactionCoordinator.handleAddPartitionsToTransaction and
handleVerifyPartitionsInTransaction.
"""

from collections.abc import Callable, Iterable

import msgspec

from logfleet.transactions.decision import Decision
from logfleet.transactions.state import State, TopicPartition, Transaction
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode


class Addition(msgspec.Struct, frozen=True):
    """Partitions of a producer's transaction, to add or to verify.

    client_version: TV2 if they are added with the records (AddPartitionsToTxn v4 and later), else
    0. Verifying does not use it.
    """

    transactional_id: str
    producer_id: int
    epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]
    client_version: int = 0


def add(stored: Transaction | None, asked: Addition, wall_ms: int) -> Decision:
    """Begin a transaction, or add to the one in progress."""
    if stored is None:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Before the pair: after an overflow the producer may have its new id already (KAFKA-18660).
    if stored.is_decided:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    error = _check_producer(stored, asked)
    if error is not ErrorCode.NONE:
        return Decision(error)
    if stored.state is State.ONGOING and asked.partitions <= stored.partitions:
        return Decision(ErrorCode.NONE)
    return Decision(
        ErrorCode.NONE,
        stored.with_partitions(
            asked.partitions, client_version=asked.client_version, wall_ms=wall_ms
        ),
    )


def verify(stored: Transaction | None, asked: Addition) -> dict[TopicPartition, ErrorCode]:
    """NONE for each partition that is in the transaction in progress."""
    error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if stored is not None:
        error = _check_producer(stored, asked)
        if error is ErrorCode.NONE and stored.is_decided:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is ErrorCode.NONE:
            return {
                partition: ErrorCode.NONE
                if partition in stored.partitions
                else ErrorCode.TRANSACTION_ABORTABLE
                for partition in asked.partitions
            }
    return dict.fromkeys(asked.partitions, error)


def refused_rows(
    partitions: Iterable[TopicPartition], refusal: Callable[[TopicPartition], ErrorCode]
) -> dict[TopicPartition, ErrorCode]:
    """The rows of a request that adds nothing because some of its partitions are refused.

    refusal: why a partition cannot be added, or NONE. Empty if none is refused; else the others get
    OPERATION_NOT_ATTEMPTED. Source: KafkaApis.handleAddPartitionsToTxnRequest.
    """
    rows = {partition: refusal(partition) for partition in partitions}
    if all(error is ErrorCode.NONE for error in rows.values()):
        return {}
    return {
        partition: ErrorCode.OPERATION_NOT_ATTEMPTED if error is ErrorCode.NONE else error
        for partition, error in rows.items()
    }


def _check_producer(stored: Transaction, asked: Addition) -> ErrorCode:
    if asked.producer_id != stored.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if asked.epoch != stored.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE
