"""The transactional ids of one partition of `__transaction_state` that this broker leads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from logfleet.node.coordinators.kind import CoordinatorKind
from logfleet.node.coordinators.shard import CoordinatorShard
from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.coordinator import TransactionCoordinator
from logfleet.transactions.decision import TakeProducerId
from logfleet.transactions.markers import MarkerAnswer, MarkersDue
from logfleet.transactions.records import (
    TRANSACTION_STATE_TOPIC,
    TransactionRecord,
    decode,
    encode,
)
from logfleet.transactions.turn import TransactionTurn

TransactionKind = CoordinatorKind[TransactionRecord, TransactionCoordinator]


def transaction_kind(
    config: TransactionConfig, take_producer_id: TakeProducerId
) -> TransactionKind:
    """Coordinators of transactions with these limits and intervals."""
    return CoordinatorKind(
        topic=TRANSACTION_STATE_TOPIC,
        noun="transaction",
        new_coordinator=lambda: TransactionCoordinator(config, take_producer_id),
        encode=encode,
        decode=decode,
    )


@dataclass(frozen=True, slots=True)
class MarkerEvents:
    """What writes markers subscribes to these.

    on_due: called with transactions whose outcome is committed; report to the shard which
    partitions have the marker (`markers_written`), at once or later. on_closed: called with a shard
    that coordinates no more; its markers are another's to write.
    """

    on_due: list[Callable[["TransactionShard", Sequence[MarkersDue]], None]] = field(
        default_factory=list
    )
    on_closed: list[Callable[["TransactionShard"], None]] = field(default_factory=list)


class TransactionShard(CoordinatorShard[TransactionRecord, TransactionCoordinator]):
    """The ids of one partition. It hands out markers that are due, and removes expired ids."""

    def __init__(self, *args: Any, events: MarkerEvents, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._events = events
        self._is_executing = False

    def execute(self, turn: TransactionTurn) -> None:
        """Do what the turn decided, then hand out the markers that became due.

        Not between the turn's writes: the coordinator gets nothing before a turn is executed whole.
        """
        if self._is_executing:
            super().execute(turn)
            return
        self._is_executing = True
        try:
            super().execute(turn)
        finally:
            self._is_executing = False
        due = self.coordinator.take_markers()
        if due:
            for handle in self._events.on_due:
                handle(self, due)

    def markers_written(self, answer: MarkerAnswer) -> None:
        """Some partitions of a transaction have its marker, or one refuses it for good."""
        if self.is_closed:
            return
        turn = self.turn()
        self.coordinator.marked(turn, answer.key, answer.written)
        if answer.refused is not None:
            partition, error = answer.refused
            self.coordinator.given_up(turn, answer.key, partition, error)
        self.execute(turn)

    def expire_ids(self) -> bool:
        """Remove ids that have not been used for long, one step of it.

        False once all were checked, or if nothing can be written.
        """
        return self.step(self.coordinator.expiry)

    def close(self) -> None:
        """Leadership has ended: refuse what waits; its markers are another's to write."""
        super().close()
        for handle in self._events.on_closed:
            handle(self)
