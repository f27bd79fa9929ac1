"""The coordinator of transactions on a simulated broker, while it leads the partition of their log.

The coordinator is the product's; this is its shell, in the order of `node.coordinators.shard` and `runtime`.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from logfleet.coordinators.turn import Write
from logfleet.transactions.coordinator import TransactionCoordinator
from logfleet.transactions.markers import MarkerAnswer, MarkersDue
from logfleet.transactions.records import TransactionRecord, decode, encode
from logfleet.transactions.state import NO_PRODUCER_EPOCH
from logfleet.transactions.table import TransactionTable
from logfleet.transactions.turn import TransactionTurn
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.kernel import Future
from broker_image.tests.sim.messages import Produced
from broker_image.tests.sim.replica import Replica
from broker_image.tests.sim.replica_log import Batch

WRITE_MS = 3_000
"""request.timeout.ms of the coordinator's own writes."""
LOAD_MS = 60


class Pending(msgspec.Struct, eq=False):
    """A write that is in the log, and not committed."""

    write: Write[TransactionRecord]


class Shard:
    """is_loaded: it takes requests. is_closed: it does not any more, nor will it."""

    def __init__(
        self,
        replica: Replica,
        coordinator: TransactionCoordinator,
        on_due: Callable[["Shard", list[MarkersDue]], None],
    ) -> None:
        self.replica = replica
        self.coordinator = coordinator
        self.leader_epoch = replica.leader_epoch
        self.is_loaded = self.is_closed = False
        self._kernel, self._host = replica.node.fleet.kernel, replica.node.host
        self._on_due = on_due
        self._epoch_start = replica.log.end_offset
        self._pending: list[Pending] = []
        self._armed_ms: int | None = None
        self._is_executing = False
        delay_ms = self._kernel.draw("txn.load", LOAD_MS)
        self._kernel.at(delay_ms, self._host, "load", self._load)

    # life

    def _load(self) -> None:
        """Read up to where this leadership began, and go on once all of that is committed."""
        if self.is_closed:
            return
        replica, log = self.replica, self.replica.log
        end = max(self._epoch_start, replica.high_watermark)
        for batch in log.read(log.start_offset, end):
            for record in batch.records:
                self.coordinator.replay(record, batch.offset, None)
        if self._epoch_start <= replica.high_watermark:
            self._start()
        else:
            self._kernel.sometimes("a coordinator waited until what it had read was committed")
            self._await(self._epoch_start, self._read)

    def _read(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE and not self.is_closed:
            self._start()

    def _start(self) -> None:
        if self.coordinator.table.decided:
            self._kernel.sometimes("a coordinator went on with markers of another")
        for turn in self.coordinator.take_up(self.turn):
            self.execute(turn)
            if self.is_closed:
                return
        self.is_loaded = True

    def close(self) -> None:
        """Leadership has ended: what waits is refused."""
        self.is_closed = True
        self.is_loaded = False
        turn = self.turn()
        self.coordinator.unload(turn)
        self.execute(turn)
        pending, self._pending = self._pending, []
        for each in pending:
            self._finish(each, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # turns

    def turn(self) -> TransactionTurn:
        return TransactionTurn(self._kernel.now, self._kernel.wall_ms)

    def ask(self, question: Callable[[TransactionTurn, Future], None]) -> Future:
        """What the coordinator answers in the end."""
        turn, waiter = self.turn(), Future()
        question(turn, waiter)
        self.execute(turn)
        return waiter

    def execute(self, turn: TransactionTurn) -> None:
        """Do what the turn decided, then hand out the markers that became due."""
        if self._is_executing:
            self._carry_out(turn)
            return
        self._is_executing = True
        self._carry_out(turn)
        self._is_executing = False
        due = self.coordinator.take_markers()
        if due:
            self._on_due(self, due)

    def _carry_out(self, turn: TransactionTurn) -> None:
        for line in turn.log_lines:
            self.replica.node.note("%s %s", line.event, line.fields)
        for reply in turn.replies:
            waiter: Any = reply.waiter
            waiter.resolve(reply.response)
        for write in turn.writes:
            self._write(write)
        self._arm()

    def _write(self, write: Write[TransactionRecord]) -> None:
        error = self._append(write) if write.records else ErrorCode.NONE
        if error is ErrorCode.NONE and self.is_closed:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        pending = Pending(write)
        if error is not ErrorCode.NONE:
            self._finish(pending, error)
        elif not self._pending and self.replica.log.end_offset <= self.replica.high_watermark:
            self._finish(pending, ErrorCode.NONE)
        else:
            self._pending.append(pending)
            self._await(self.replica.log.end_offset, lambda error: self._waited(pending, error))
            self._kernel.at(
                WRITE_MS, self._host, "write", self._waited, pending, ErrorCode.REQUEST_TIMED_OUT
            )

    def _append(self, write: Write[TransactionRecord]) -> ErrorCode:
        """Append and apply, by one step: the state equals the log at any moment."""
        replica, leading = self.replica, self.replica.leading
        if self.is_closed or leading is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not leading.is_at_min_isr:
            self._kernel.sometimes("a coordinator could not write below min ISR")
            return ErrorCode.NOT_ENOUGH_REPLICAS
        records = tuple(map(_as_read, write.records))
        value = "; ".join(map(_text, records))
        replica.append(Batch(replica.log.end_offset, replica.leader_epoch, value, records=records))
        for record in records:
            self.coordinator.apply(record)
        replica.ends.appended(1)
        return ErrorCode.NONE

    def _await(self, end_offset: int, then: Callable[[ErrorCode], None]) -> None:
        """Go on once all below is committed, or with an error if leadership ends before."""

        def waited(answer: Produced) -> None:
            self._kernel.at(0, self._host, "committed", then, answer.error)

        last = self.replica.log.at(end_offset - 1)
        self.replica.wait(last.offset, last.value, waited)

    def _waited(self, pending: Pending, error: ErrorCode) -> None:
        if pending in self._pending:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self._kernel.sometimes("a coordinator's write was not committed in time")
            self._pending.remove(pending)
            self._finish(pending, error)

    def _finish(self, pending: Pending, error: ErrorCode) -> None:
        turn = self.turn()
        pending.write.then(turn, error)
        self.execute(turn)

    def differs_from_replay(self) -> str | None:
        """How the state differs from the one that a replay of the log gives (I34)."""
        table, log = TransactionTable(), self.replica.log
        for batch in log.read(log.start_offset, log.end_offset):
            for record in batch.records:
                table.apply(record)
        live = {
            name: msgspec.structs.replace(stored, last_epoch=NO_PRODUCER_EPOCH)
            for name, stored in self.coordinator.table.by_id.items()
        }
        return None if live == table.by_id else f"{live}, and not {table.by_id}"

    # markers and time

    def markers_written(self, answer: MarkerAnswer) -> None:
        """Some partitions of a transaction have its marker, or one refuses it for good."""
        if self.is_closed:
            return
        turn = self.turn()
        self.coordinator.marked(turn, answer.key, answer.written)
        if answer.refused is not None:
            self._kernel.sometimes(f"a marker was refused: {answer.refused[1].name}")
            self.coordinator.given_up(turn, answer.key, *answer.refused)
        self.execute(turn)

    def _arm(self) -> None:
        due_ms = self.coordinator.next_deadline_ms()
        if due_ms is not None and (self._armed_ms is None or due_ms < self._armed_ms):
            self._armed_ms = due_ms
            delay_ms = max(1, due_ms - self._kernel.now)
            self._kernel.at(delay_ms, self._host, "tick", self._tick, due_ms)

    def _tick(self, due_ms: int) -> None:
        if self._armed_ms == due_ms:
            self._armed_ms = None
        if not self.is_closed:
            turn = self.turn()
            self.coordinator.tick(turn)
            self.execute(turn)


def _as_read(record: TransactionRecord) -> TransactionRecord:
    """What a coordinator finds that reads the log."""
    key, value = encode(record)
    return decode(memoryview(key), None if value is None else memoryview(value))


def _text(record: TransactionRecord) -> str:
    stored = record.transaction
    if stored is None:
        return f"{record.transactional_id} expired"
    return f"{record.transactional_id} {stored.state.wire_name} {stored.producer_id}/{stored.epoch}"
