"""The state of one transactional id, and how it changes.

An id has at most one transaction at a time. `Transaction` is what its record in
`__transaction_state` holds; each change returns another `Transaction`. Source: Kafka's
TransactionMetadata and TransactionState.
"""

from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from logfleet.types import ProducerEpoch

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NOT_BEGUN: Final = -1
"""Start time of an id without a transaction."""
EPOCH_MAX: Final = ProducerEpoch(2**15 - 1)
"""Only the markers of the last transaction of a producer id have it; no client gets it."""
LAST_CLIENT_EPOCH: Final = ProducerEpoch(EPOCH_MAX - 1)
"""After this epoch a producer gets another producer id."""
NEVER_MS: Final = 2**31 - 1
"""Timeout of a transaction that takes part in two-phase commit: it has none (KIP-939)."""

TV2: Final = 2
"""Version of the protocol in which each transaction has its own epoch (KIP-890).

A request's version decides it; 0 stands for the protocol before, of which version 1 is part.
"""


class TopicPartition(NamedTuple):
    """One partition by its topic's name."""

    topic: str
    partition: int


class State(IntEnum):
    """The states of a transactional id, by their numbers in its record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def wire_name(self) -> str:
        """Its name in requests and responses, as "PrepareCommit"."""
        return self.name.title().replace("_", "")


AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is in progress."""
DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided; some partitions may lack their marker."""
PREDECESSORS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: AT_REST,
    State.ONGOING: AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
}
"""State -> the states before it. Kafka's Dead and PrepareEpochFence are never in the log."""


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """One transactional id. Times are wall clock, in milliseconds.

    epoch: in a Prepare state that of the markers, which TV2 has raised by one already.
    partitions: of the transaction in progress; empty once it is complete. previous_producer_id:
    that of the state before. next_producer_id: in a Prepare state, the producer id that follows
    because no epoch is left; else -1. client_version: the protocol of the client that last changed
    the transaction. last_epoch: the epoch before, for a repeated request; not in the log, so -1
    after a failover.
    """

    producer_id: int
    epoch: ProducerEpoch
    timeout_ms: int
    state: State
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NOT_BEGUN
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH

    @property
    def is_exhausted(self) -> bool:
        """Whether no further epoch may be given to a client."""
        return self.epoch >= LAST_CLIENT_EPOCH

    @property
    def is_decided(self) -> bool:
        """Whether the outcome is decided and the transaction not complete."""
        return self.state in DECIDED

    @property
    def is_commit(self) -> bool:
        """Whether the outcome that was decided is a commit."""
        return self.state is State.PREPARE_COMMIT or self.state is State.COMPLETE_COMMIT

    def is_timed_out(self, wall_ms: int) -> bool:
        """Whether a transaction is in progress for longer than its timeout."""
        return (
            self.state is State.ONGOING
            and self.timeout_ms != NEVER_MS
            and self.start_ms + self.timeout_ms < wall_ms
        )

    # -- changes

    def with_epoch(
        self,
        producer_id: int,
        epoch: ProducerEpoch,
        *,
        last_epoch: ProducerEpoch,
        timeout_ms: int,
        wall_ms: int,
    ) -> "Transaction":
        """After InitProducerId: no transaction, and this pair for the producer."""
        return self._changed(
            State.EMPTY,
            wall_ms,
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NOT_BEGUN,
        )

    def with_partitions(
        self, added: AbstractSet[TopicPartition], *, client_version: int, wall_ms: int
    ) -> "Transaction":
        """In progress, with more partitions; begun now if none was in progress."""
        return self._changed(
            State.ONGOING,
            wall_ms,
            partitions=self.partitions | added,
            start_ms=wall_ms if self.state in AT_REST else self.start_ms,
            client_version=client_version,
        )

    def prepared(
        self, *, commit: bool, client_version: int, next_producer_id: int, wall_ms: int
    ) -> "Transaction":
        """The outcome is decided. TV2 raises the epoch.

        next_producer_id: required by TV2 if the epoch is exhausted, else -1.
        """
        epoch, last_epoch = self.epoch, self.last_epoch
        if client_version >= TV2:
            assert (next_producer_id != NO_PRODUCER_ID) == self.is_exhausted
            # An epoch of 32767 in the log is another broker's fault; the abort must go through.
            epoch, last_epoch = min(ProducerEpoch(self.epoch + 1), EPOCH_MAX), self.epoch
        return self._changed(
            State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            wall_ms,
            epoch=epoch,
            last_epoch=last_epoch,
            next_producer_id=next_producer_id,
            client_version=client_version,
            # Only an abort by TV2 ends a transaction that was never begun.
            start_ms=wall_ms if self.state in AT_REST else self.start_ms,
        )

    def completed(self, wall_ms: int) -> "Transaction":
        """All partitions have their marker."""
        if self.next_producer_id == NO_PRODUCER_ID or self.client_version < TV2:
            producer_id, epoch = self.producer_id, self.epoch
        else:
            producer_id, epoch = self.next_producer_id, ProducerEpoch(0)
        return self._changed(
            State.COMPLETE_COMMIT if self.is_commit else State.COMPLETE_ABORT,
            wall_ms,
            producer_id=producer_id,
            epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def _changed(self, state: State, wall_ms: int, **changes: object) -> "Transaction":
        assert self.state in PREDECESSORS[state], f"{self.state.name} to {state.name}"
        return msgspec.structs.replace(
            self,
            state=state,
            last_update_ms=wall_ms,
            previous_producer_id=self.producer_id,
            **changes,
        )


def new_transaction(producer_id: int, timeout_ms: int, wall_ms: int) -> Transaction:
    """The state of an id that was unknown: epoch 0 of its producer id."""
    return Transaction(
        producer_id,
        ProducerEpoch(0),
        timeout_ms,
        State.EMPTY,
        wall_ms,
        previous_producer_id=producer_id,
    )
