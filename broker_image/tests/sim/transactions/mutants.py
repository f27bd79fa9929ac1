"""Rules of transactions, broken one at a time (see `mutants`)."""

from typing import Any

from logfleet.log.producers.states import ProducerStates
from logfleet.log.unstable import OPEN, Unstable
from logfleet.log.verification import Guards
from logfleet.node.transactions.enlisting import Enlisting
from logfleet.transactions import coordinator as coordinating
from logfleet.transactions import ending
from logfleet.transactions.coordinator import TransactionCoordinator
from logfleet.transactions.decision import Decision
from logfleet.transactions.markers import MarkerBook
from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import State, Transaction
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from msgspec.structs import replace

from broker_image.tests.sim.mutant import Mutant
from broker_image.tests.sim.replica import Replica
from broker_image.tests.sim.replica_log import Batch, ReplicaLog
from broker_image.tests.sim.transactions import abort_index
from broker_image.tests.sim.transactions.abort_index import AbortIndex
from broker_image.tests.sim.transactions.marking import MarkerAppends
from broker_image.tests.sim.transactions.shard import Shard


def _nothing(_rule: Any) -> Any:
    return lambda *_, **__: None


def _false(_rule: Any) -> Any:
    return lambda *_, **__: False


def _at_append(rule: Any) -> Any:
    def carry_out(self: Any, turn: Any, transactional_id: str, following: Any, then: Any) -> None:
        if following is None or following.is_decided:
            rule(self, turn, transactional_id, following, then)
        else:
            turn.write([TransactionRecord(transactional_id, following)], lambda *_: None)
            then(turn, ErrorCode.NONE)

    return carry_out


def _decided_at_append(rule: Any) -> Any:
    def carry_out(self: Any, turn: Any, transactional_id: str, following: Any, then: Any) -> None:
        if following is None or not following.is_decided:
            rule(self, turn, transactional_id, following, then)
            return

        def decided(after: Any, error: ErrorCode) -> None:
            then(after, error)

        turn.write([TransactionRecord(transactional_id, following)], decided)
        self._outcome_committed(turn, transactional_id, following)

    return carry_out


def _at_the_first(_rule: Any) -> Any:
    def marked(self: TransactionCoordinator, turn: Any, key: Any, written: Any) -> None:
        name = key.transactional_id
        is_due = name in self._awaiting and name not in self._incomplete
        if written and is_due and self._due_key(key) == key:
            self._complete(turn, name)

    return marked


def _equal_is_late(rule: Any) -> Any:
    def check(self: ProducerStates, marker: Any, version: int) -> Any:
        entry = self.get(marker.producer_id)
        if entry is not None and version >= 2 and marker.epoch == entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return rule(self, marker, version)

    return check


def _twice(rule: Any) -> Any:
    def prepared(self: Transaction, **named: Any) -> Transaction:
        after: Transaction = rule(self, **named)
        if after.state is State.PREPARE_ABORT and after.epoch < 32_766:
            return replace(after, epoch=ProducerEpoch(after.epoch + 1))
        return after

    return prepared


def _forgets_ended(rule: Any) -> Any:
    def first(self: Unstable, high_watermark: int) -> Any:
        while self.queue and self.queue[0].marker != OPEN:
            self.queue.popleft()
        return rule(self, high_watermark)

    return first


def _always_behind_the_marker(rule: Any) -> Any:
    def ended(self: Unstable, first_offset: int, marker_offset: int) -> int:
        rule(self, first_offset, marker_offset)
        return marker_offset + 1

    return ended


def _in_one_segment(rule: Any) -> Any:
    return lambda entries, start, end: (rule(entries, start, end)[0], True)


def _starts_later(rule: Any) -> Any:
    def overlapping(entries: Any, start: int, end: int) -> Any:
        found, is_all = rule(entries, start, end)
        return [each for each in found if each.first_offset >= start], is_all

    return overlapping


def _retry_is_fenced(rule: Any) -> Any:
    def end(stored: Any, request: Any, *others: Any) -> Any:
        decision = rule(stored, request, *others)
        if decision.error is ErrorCode.NONE and decision.following is None:
            return Decision(ErrorCode.PRODUCER_FENCED)
        return decision

    return end


def _to_the_high_watermark(_rule: Any) -> Any:
    def load(self: Shard) -> None:
        if not self.is_closed:
            log = self.replica.log
            for batch in log.read(log.start_offset, self.replica.high_watermark):
                for record in batch.records:
                    self.coordinator.replay(record, batch.offset, None)
            self._start()

    return load


def _at_once(_rule: Any) -> Any:
    def load(self: Shard) -> None:
        if not self.is_closed:
            log = self.replica.log
            for batch in log.read(log.start_offset, log.end_offset):
                for record in batch.records:
                    self.coordinator.replay(record, batch.offset, None)
            self._start()

    return load


def _keeps_the_epoch(rule: Any) -> Any:
    def end(self: ProducerStates, marker: Any, header: Any, offset: int) -> Any:
        entry = self.get(marker.producer_id)
        epoch = marker.epoch if entry is None else entry.epoch
        return rule(self, replace(marker, epoch=epoch), header, offset)

    return end


def _no_markers_on_followers(rule: Any) -> Any:
    def append(self: Replica, batch: Batch) -> None:
        producers: Any = ProducerStates
        kept = producers.end
        if self.leading is None:
            producers.end = _none
        try:
            rule(self, batch)
        finally:
            producers.end = kept

    return append


def _none(*_: object) -> None:
    """No entry for the index."""


def _takes_up_nothing(_rule: Any) -> Any:
    return lambda _self, _begin_turn: iter(())


def _drops_what_was_lost(_rule: Any) -> Any:
    def lost(self: MarkerBook, broker: int) -> None:
        self._in_flight.pop(broker, {})
        self._queued.pop(broker, {})

    return lost


def _commits_for_aborts(rule: Any) -> Any:
    """Only every other partition gets the outcome that was decided."""

    def append(self: MarkerAppends, replica: Replica, marker: Any, version: int) -> Any:
        if replica.index % 2:
            marker = replace(marker, is_commit=True)
        return rule(self, replica, marker, version)

    return append


def _index_without(rule: Any) -> Any:
    def end(self: ProducerStates, marker: Any, header: Any, offset: int) -> Any:
        rule(self, marker, header, offset)

    return end


OF_TRANSACTIONS = (
    Mutant("a partition is not enlisted", Enlisting, "is_needed", _false, seed=5),
    Mutant("a coordinator answers at the append", TransactionCoordinator, "_carry_out", _at_append, seed=5),
    Mutant("markers leave before the decision is committed", TransactionCoordinator, "_carry_out", _decided_at_append, seed=5),
    Mutant("a transaction is complete at its first marker", TransactionCoordinator, "marked", _at_the_first, seed=19),
    Mutant("a new coordinator leaves what was decided", TransactionCoordinator, "take_up", _takes_up_nothing, seed=5),
    Mutant("markers are sent once", MarkerBook, "lost", _drops_what_was_lost, seed=5),
    Mutant("a repeated marker is refused", ProducerStates, "check_marker", _equal_is_late, seed=21),
    Mutant("an abort leaves no entry in the index", ProducerStates, "end", _index_without, seed=13),
    Mutant("a partition gets another outcome", MarkerAppends, "_append", _commits_for_aborts, seed=5),
    Mutant("a marker is answered before it is committed", MarkerAppends, "_await", _nothing, seed=5),
    Mutant("an abort raises the epoch twice", Transaction, "prepared", _twice, seed=16),
    Mutant("no producer id is replaced by another", Transaction, "is_exhausted", lambda _: property(lambda _self: False), seed=5),
    Mutant("a transaction never times out", Transaction, "is_timed_out", _false, seed=16),
    Mutant("an EndTxn that comes again is refused", coordinating, "end", _retry_is_fenced, seed=60),
    Mutant("an EndTxn counts by state in each protocol", ending, "TV2_SINCE", lambda _: 99, seed=5),
    Mutant("a coordinator reads what is committed only", Shard, "_load", _to_the_high_watermark, seed=5),
    Mutant("a marker ends its transaction before it is replicated", Unstable, "first", _forgets_ended, seed=5),
    Mutant("readers go on to the high watermark", Unstable, "first", _nothing, seed=5),
    Mutant("an aborted transaction ends the search for others", Unstable, "ended", _always_behind_the_marker, seed=105),
    Mutant("aborted transactions are searched for in one segment", abort_index, "overlapping", _in_one_segment, seed=13),
    Mutant("aborted transactions count that begin in the answer", abort_index, "overlapping", _starts_later, seed=13),
    Mutant("a truncation leaves the index of aborted transactions", AbortIndex, "clear", _nothing, seed=13),
    Mutant("a truncation leaves the transactions that are open", ReplicaLog, "_count_again", _nothing, seed=23),
    Mutant("a record is appended whatever its guard", Guards, "refusal", _nothing, seed=None),
    Mutant("a guard outlives its transaction", Guards, "marked", _nothing, seed=None),
    Mutant("any marker is appended", ProducerStates, "check_marker", _nothing, seed=None),
    Mutant("a marker leaves its producer the old epoch", ProducerStates, "end", _keeps_the_epoch, seed=None),
    Mutant("a coordinator acts on what it has read, committed or not", Shard, "_load", _at_once, seed=None),
    Mutant("a follower takes no markers", Replica, "append", _no_markers_on_followers, seed=5),
)  # fmt: skip
