"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from logfleet.transactions.patterns import BadPattern, Pattern
from logfleet.transactions.state import State, TopicPartition, Transaction
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATES_BY_NAME: Final = {state.wire_name: state for state in State}
NEVER_STORED: Final = frozenset({"Dead", "PrepareEpochFence"})
"""States that Kafka knows and no stored transaction has; filters may name them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters of a ListTransactions; each that is empty lets everything pass.

    unknown_states: names in the filter that no state has, for the response. duration_ms: only
    transactions that are in progress for longer; ids without one count as such. -1: no filter.
    """

    states: frozenset[str] = frozenset()
    unknown_states: tuple[str, ...] = ()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    pattern: Pattern | None = None

    def matches(self, transactional_id: str, stored: Transaction, wall_ms: int) -> bool:
        """Source: TransactionStateManager.listTransactionStates."""
        if self.producer_ids and stored.producer_id not in self.producer_ids:
            return False
        if self.states and stored.state.wire_name not in self.states:
            return False
        if self.duration_ms >= 0 and wall_ms - stored.start_ms <= self.duration_ms:
            return False
        return self.pattern is None or self.pattern.matches(transactional_id)


def wanted_by(request: ListTransactionsRequest) -> Wanted | ErrorCode:
    """The filters of a request; INVALID_REGULAR_EXPRESSION for a pattern that is not allowed."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = Pattern(request.transactional_id_pattern)
        except BadPattern:
            return ErrorCode.INVALID_REGULAR_EXPRESSION
    known = STATES_BY_NAME.keys() | NEVER_STORED
    return Wanted(
        states=frozenset(request.state_filters),
        unknown_states=tuple(name for name in request.state_filters if name not in known),
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        pattern=pattern,
    )


def listed_as(
    transactional_id: str, stored: Transaction
) -> ListTransactionsResponse.TransactionState:
    """The row of an id in the list."""
    return ListTransactionsResponse.TransactionState(
        transactional_id=transactional_id,
        producer_id=stored.producer_id,
        transaction_state=stored.state.wire_name,
    )


def described(
    transactional_id: str, stored: Transaction | None, awaiting: Iterable[TopicPartition] | None
) -> DescribeTransactionsResponse.TransactionState:
    """awaiting: the partitions that lack their marker; None if no marker is due yet."""
    row = DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id)
    if not transactional_id:
        row.error_code = ErrorCode.INVALID_REQUEST
    elif stored is None:
        row.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    else:
        row.transaction_state = stored.state.wire_name
        row.transaction_timeout_ms = stored.timeout_ms
        row.transaction_start_time_ms = stored.start_ms
        row.producer_id = stored.producer_id
        row.producer_epoch = stored.epoch
        row.topics = _topics(stored.partitions if awaiting is None else awaiting)
    return row


def _topics(partitions: Iterable[TopicPartition]) -> list[DescribeTransactionsResponse.TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [
        DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
        for topic, indexes in topics.items()
    ]
