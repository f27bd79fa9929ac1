"""The coordinator of the transactional ids in one partition of `__transaction_state`.

`logfleet.coordinators.coordinator` describes its life. A decision changes the state when its record
is appended, so that memory never differs from the log. Every answer, refusals too, waits until all
that was appended before it is committed; so do the markers of a transaction. A state that Kafka
keeps as "pending" does not exist (ADR 17).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from logfleet.coordinators.coordinator import Coordinator
from logfleet.coordinators.timers import Deadline, Timers
from logfleet.coordinators.turn import Waiter
from logfleet.transactions import answers, initialising
from logfleet.transactions.adding import Addition, add, verify
from logfleet.transactions.answers import Then
from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.decision import Decision, TakeProducerId
from logfleet.transactions.ending import end, fence
from logfleet.transactions.expiry import IdExpiry
from logfleet.transactions.initialising import initialise
from logfleet.transactions.listing import Wanted, described, listed_as
from logfleet.transactions.markers import MarkerKey, MarkersDue
from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import TopicPartition, Transaction
from logfleet.transactions.table import TransactionTable
from logfleet.transactions.turn import TransactionTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsResponse,
)

COST_PER_TICK: Final = 2_000
"""Transactions whose timeout is checked in one turn, under a microsecond each."""
ABORT_COST: Final = 100
"""What the abort of one costs, in checks."""
COMPLETED_PER_TICK: Final = 20
TAKEN_UP_PER_TURN: Final = 20
"""Transactions completed, or taken up, in one turn: each may write a record."""
COMPLETE_AGAIN_MS: Final = 50
"""Pause until a transaction is completed again whose record could not be written."""


class TransactionCoordinator(Coordinator[TransactionRecord]):
    """All transactional ids of one partition.

    After each turn was executed, call `take_markers`. table: to be read only. expiry: a walk that
    forgets unused ids; it is due every transaction.remove.expired.transaction.cleanup.interval.ms.
    """

    def __init__(self, config: TransactionConfig, take_producer_id: TakeProducerId) -> None:
        self._config = config
        self._take_producer_id = take_producer_id
        self.table = TransactionTable()
        self._awaiting: dict[str, set[TopicPartition]] = {}
        self._incomplete: dict[str, None] = {}
        self._markers: list[MarkersDue] = []
        self._timed_out_round: Iterator[str] | None = None
        self._timers: Timers[TransactionTurn] = Timers()
        self._check_deadline = Deadline(self._check_timeouts)
        self._complete_deadline = Deadline(self._complete_again)
        self.expiry = IdExpiry(self.table, config)

    # -- records of the log

    def apply(self, record: TransactionRecord) -> None:
        """Apply a record of the log. Nothing else changes the stored state."""
        self.table.apply(record)
        if record.transaction is None or not record.transaction.is_decided:
            self._awaiting.pop(record.transactional_id, None)
            self._incomplete.pop(record.transactional_id, None)

    def take_up(self, begin_turn: Callable[[], TransactionTurn]) -> Iterator[TransactionTurn]:
        """All is committed: markers of every transaction with an outcome are due again."""
        table = self.table
        decided = iter(list(table.decided))
        while some := list(islice(decided, TAKEN_UP_PER_TURN)):
            turn = begin_turn()
            for transactional_id in some:
                self._outcome_committed(turn, transactional_id, table.by_id[transactional_id])
            yield turn
        if table.by_id:
            turn = begin_turn()
            self._timers.schedule(self._check_deadline, turn.now_ms)
            turn.log(
                "transactions_loaded",
                ids=len(table.by_id),
                in_progress=len(table.ongoing),
                without_markers=len(table.decided),
            )
            yield turn

    def unload(self, turn: TransactionTurn) -> None:
        """This broker is no longer the coordinator. What waits is answered by its write's error."""
        if self.table.by_id:
            turn.log("transactions_unloaded", ids=len(self.table.by_id))
        self.table.clear()
        self._awaiting.clear()
        self._incomplete.clear()
        self._markers.clear()
        self._timed_out_round = None
        self._timers.clear()

    # -- requests of producers

    def init(
        self, turn: TransactionTurn, request: InitProducerIdRequest, version: int, waiter: Waiter
    ) -> None:
        """Handle an InitProducerId with a transactional id. Replies an InitProducerIdResponse."""
        reply = partial(answers.reply_init, version, waiter)
        error = initialising.refusal(request, self._config)
        if error is not ErrorCode.NONE:
            reply(Decision(error), turn, ErrorCode.NONE)
            return
        transactional_id = request.transactional_id
        assert transactional_id is not None
        stored = self.table.by_id.get(transactional_id)
        decision = initialise(stored, request, self._take_producer_id, turn.wall_ms)
        then = partial(reply, decision)
        if decision.following is not None and decision.following.is_decided:
            then = partial(answers.log_fenced, transactional_id, decision.following, then)
        self._carry_out(turn, transactional_id, decision.following, then)

    def add(self, turn: TransactionTurn, asked: Addition, waiter: Waiter) -> None:
        """Add partitions to a transaction, and begin it if none is in progress.

        Replies an ErrorCode, PRODUCER_FENCED whatever the request's version. Whether the partitions
        exist is the caller's to check (`adding.refused_rows`).
        """
        if not asked.transactional_id:
            turn.reply(waiter, ErrorCode.INVALID_REQUEST)
            return
        stored = self.table.by_id.get(asked.transactional_id)
        decision = add(stored, asked, turn.wall_ms)
        self._carry_out(
            turn,
            asked.transactional_id,
            decision.following,
            partial(answers.reply_code, waiter, decision.error),
        )
        if decision.following is not None and self._check_deadline.at_ms is None:
            self._schedule_check(turn)

    def verify(self, turn: TransactionTurn, asked: Addition, waiter: Waiter) -> None:
        """Verify that partitions are in the transaction in progress.

        Replies a dict[TopicPartition, ErrorCode].
        """
        if not asked.transactional_id:
            rows = dict.fromkeys(asked.partitions, ErrorCode.INVALID_REQUEST)
            turn.reply(waiter, rows)
            return
        rows = verify(self.table.by_id.get(asked.transactional_id), asked)
        turn.write([], partial(answers.reply_rows, waiter, rows))

    def end(
        self, turn: TransactionTurn, request: EndTxnRequest, version: int, waiter: Waiter
    ) -> None:
        """Handle an EndTxn. Replies an EndTxnResponse once the outcome is committed.

        The markers follow; until all are written, the id's other requests get
        CONCURRENT_TRANSACTIONS.
        """
        reply = partial(answers.reply_end, version, waiter)
        if not request.transactional_id:
            reply(Decision(ErrorCode.INVALID_REQUEST), turn, ErrorCode.NONE)
            return
        stored = self.table.by_id.get(request.transactional_id)
        decision = end(stored, request, version, self._take_producer_id, turn.wall_ms)
        self._carry_out(
            turn, request.transactional_id, decision.following, partial(reply, decision)
        )

    # -- markers

    @property
    def is_idle(self) -> bool:
        """Whether no transaction lacks markers or the record that it is complete."""
        return not self._awaiting and not self._incomplete

    @property
    def unmarked(self) -> int:
        """Transactions with a committed outcome that lack a marker, whether or not it still comes.

        None comes to a partition that has refused it (`given_up`).
        """
        return sum(transactional_id not in self._incomplete for transactional_id in self._awaiting)

    @property
    def uncompleted(self) -> int:
        """Transactions with all markers, whose last record could not be written yet."""
        return len(self._incomplete)

    def take_markers(self) -> list[MarkersDue]:
        """The markers that became due since the last call."""
        due, self._markers = self._markers, []
        return due

    def marked(
        self, turn: TransactionTurn, key: MarkerKey, written: Iterable[TopicPartition]
    ) -> None:
        """Partitions have the marker of a transaction, or are gone; after the last it is complete.

        Answers to an earlier attempt change nothing.
        """
        transactional_id = key.transactional_id
        awaiting = self._awaiting.get(transactional_id)
        if awaiting is None or transactional_id in self._incomplete or self._due_key(key) != key:
            return
        awaiting.difference_update(written)
        if not awaiting:
            self._complete(turn, transactional_id)

    def given_up(
        self, turn: TransactionTurn, key: MarkerKey, partition: TopicPartition, error: ErrorCode
    ) -> None:
        """A partition refuses the marker for good: a newer coordinator is at work."""
        turn.log(
            "transaction_markers_refused",
            transactional_id=key.transactional_id,
            producer_id=key.producer_id,
            epoch=key.epoch,
            partition=f"{partition.topic}-{partition.partition}",
            error=error.name,
            why="the partition knows a newer coordinator or transaction of this producer",
        )

    # -- time

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms()

    def tick(self, turn: TransactionTurn) -> None:
        """Abort some transactions that have timed out, or complete some that could not be."""
        self._timers.expire_until(turn.now_ms, turn, 1)

    # -- administration

    def describe(
        self, turn: TransactionTurn, transactional_ids: Sequence[str], waiter: Waiter
    ) -> None:
        """Replies a list of DescribeTransactionsResponse.TransactionState."""
        rows = [
            described(each, self.table.by_id.get(each), self._awaiting.get(each))
            for each in transactional_ids
        ]
        turn.write([], partial(answers.reply_described, waiter, rows))

    def listed(
        self, wanted: Wanted, wall_ms: int
    ) -> Iterator[ListTransactionsResponse.TransactionState | None]:
        """One item per id: its row if it is wanted, else None, so that a caller can pause.

        Ids may change during the iteration. Answer after `settle`.
        """
        for transactional_id in list(self.table.by_id):
            stored = self.table.by_id.get(transactional_id)
            is_wanted = stored is not None and wanted.matches(transactional_id, stored, wall_ms)
            yield listed_as(transactional_id, stored) if stored and is_wanted else None

    def settle(self, turn: TransactionTurn, waiter: Waiter) -> None:
        """Replies an ErrorCode: NONE once all that was appended before is committed."""
        turn.write([], partial(answers.reply_code, waiter, ErrorCode.NONE))

    # -- inside

    def _due_key(self, key: MarkerKey) -> MarkerKey | None:
        """The key of the markers that are due for the same id."""
        stored = self.table.by_id.get(key.transactional_id)
        if stored is None or not stored.is_decided:
            return None
        return MarkerKey(key.transactional_id, stored.producer_id, stored.epoch)

    def _carry_out(
        self,
        turn: TransactionTurn,
        transactional_id: str,
        following: Transaction | None,
        then: Then,
    ) -> None:
        """Store the following state, if any; continue once everything is committed."""
        if following is None:
            turn.write([], then)
            return
        if following.is_decided:
            then = partial(self._decided, transactional_id, following, then)
        turn.write([TransactionRecord(transactional_id, following)], then)

    def _decided(
        self,
        transactional_id: str,
        following: Transaction,
        then: Then | None,
        turn: TransactionTurn,
        error: ErrorCode,
    ) -> None:
        """The record with an outcome is committed, or not yet, or was not written.

        Markers may go out only once it is committed, however long that takes.
        """
        if then is not None:
            then(turn, error)
        if error is ErrorCode.NONE:
            self._outcome_committed(turn, transactional_id, following)
        elif error is ErrorCode.REQUEST_TIMED_OUT:
            turn.write([], partial(self._decided, transactional_id, following, None))

    def _outcome_committed(
        self, turn: TransactionTurn, transactional_id: str, decided: Transaction
    ) -> None:
        if not decided.partitions:
            self._complete(turn, transactional_id)
            return
        self._awaiting[transactional_id] = set(decided.partitions)
        self._markers.append(
            MarkersDue(
                MarkerKey(transactional_id, decided.producer_id, decided.epoch),
                decided.is_commit,
                decided.client_version,
                decided.partitions,
            )
        )

    def _complete(self, turn: TransactionTurn, transactional_id: str) -> None:
        """All markers are written. The id may be used as soon as the record is appended."""
        self._incomplete[transactional_id] = None
        complete = self.table.by_id[transactional_id].completed(turn.wall_ms)
        turn.write([TransactionRecord(transactional_id, complete)], self._completed)

    def _completed(self, turn: TransactionTurn, error: ErrorCode) -> None:
        """Schedule what is left; `apply` has removed what was appended."""
        if not self._incomplete:
            return
        if error is ErrorCode.NONE:
            self._timers.schedule(self._complete_deadline, turn.now_ms)
        elif self._complete_deadline.at_ms is None:
            self._timers.schedule(self._complete_deadline, turn.now_ms + COMPLETE_AGAIN_MS)

    def _complete_again(self, turn: TransactionTurn) -> None:
        for transactional_id in list(islice(self._incomplete, COMPLETED_PER_TICK)):
            self._complete(turn, transactional_id)

    def _schedule_check(self, turn: TransactionTurn) -> None:
        self._timers.schedule(self._check_deadline, turn.now_ms + self._config.abort_interval_ms)

    def _check_timeouts(self, turn: TransactionTurn) -> None:
        """One step of a round over the transactions in progress."""
        if self._timed_out_round is None:
            self._timed_out_round = iter(list(self.table.ongoing))
        cost = 0
        for transactional_id in self._timed_out_round:
            stored = self.table.by_id.get(transactional_id)
            is_timed_out = stored is not None and stored.is_timed_out(turn.wall_ms)
            if stored is not None and is_timed_out:
                self._abort_timed_out(turn, transactional_id, stored)
            cost += ABORT_COST if is_timed_out else 1
            if cost >= COST_PER_TICK:
                self._timers.schedule(self._check_deadline, turn.now_ms)
                return
        self._timed_out_round = None
        if self.table.ongoing:
            self._schedule_check(turn)

    def _abort_timed_out(
        self, turn: TransactionTurn, transactional_id: str, stored: Transaction
    ) -> None:
        following = fence(stored, self._take_producer_id, turn.wall_ms)
        if following is not None:  # else in the next round
            then = partial(answers.log_timed_out, transactional_id, stored)
            self._carry_out(turn, transactional_id, following, then)
