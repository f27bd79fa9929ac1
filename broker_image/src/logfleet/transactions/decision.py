"""What a request about a transactional id leads to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logfleet.transactions.state import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode

TakeProducerId = Callable[[], int | None]
"""A producer id that no other producer has; None while there is none (see ProducerIdPool.take)."""

NO_ID_LEFT: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""The answer if a producer id is needed and there is none, as Kafka's; clients retry."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a request, due once everything before it is committed.

    following: the state to store, None if it does not change. producer_id, epoch: for the answer.
    """

    error: ErrorCode
    following: Transaction | None = None
    producer_id: int = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
