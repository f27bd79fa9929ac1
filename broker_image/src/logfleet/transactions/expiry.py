"""Transactional ids that were not used for long are forgotten.

An id with a transaction in progress, or one that lacks markers, stays. Source:
TransactionStateManager.removeExpiredTransactionalIds.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import AT_REST
from logfleet.transactions.table import TransactionTable
from logfleet.transactions.turn import TransactionTurn
from logfleet.wire.errors import ErrorCode

COST_PER_STEP: Final = 2_000
"""Ids checked in one step, under a microsecond each."""
TOMBSTONE_COST: Final = 20
"""What one that expires costs, in checks."""


class IdExpiry:
    """Checks all ids of a table in rounds; each step is short enough for an event loop."""

    def __init__(self, table: TransactionTable, config: TransactionConfig) -> None:
        self._table = table
        self._config = config
        self._round: Iterator[str] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a round has not ended. Call it after the step's turn was executed."""
        return self._round is not None

    def step(self, turn: TransactionTurn) -> None:
        """Write tombstones for the expired ones among the next ids.

        The first step begins a round. A failed write ends the round; the next round finds the same
        ids.
        """
        if self._round is None:
            self._round = iter(list(self._table.by_id))
        expired: list[TransactionRecord] = []
        cost = 0
        for transactional_id in self._round:
            is_expired = self._is_expired(transactional_id, turn.wall_ms)
            if is_expired:
                expired.append(TransactionRecord(transactional_id, None))
            cost += TOMBSTONE_COST if is_expired else 1
            if cost >= COST_PER_STEP:
                break
        else:
            self._round = None
        if expired:
            turn.write(expired, partial(self._written, len(expired)))

    def _is_expired(self, transactional_id: str, wall_ms: int) -> bool:
        stored = self._table.by_id.get(transactional_id)
        return (
            stored is not None
            and stored.state in AT_REST
            and stored.last_update_ms <= wall_ms - self._config.id_expiration_ms
        )

    def _written(self, ids: int, turn: TransactionTurn, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._round = None
            turn.log("expired_transactional_ids_not_removed", error=error.name)
            return
        turn.log(
            "transactional_ids_expired",
            ids=ids,
            why=f"not used for {self._config.id_expiration_ms} ms",
        )
