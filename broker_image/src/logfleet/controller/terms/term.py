"""One term: a broker's work from its election as controller until it is replaced.

Whenever the image has changed, the term converges the cluster (fences, elections, half-made
topics); in between it carries out operations one at a time, each decided on an image that holds
everything written before. Every write compares the controller epoch, so a term that has ended
without noticing changes nothing. What lost a conflict is decided again by a newer image.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.vanishing import RecentBrokers
from logfleet.controller.changes.election_writes import SETTLED_MS
from logfleet.controller.terms.balance import Balance
from logfleet.controller.terms.convergence import Convergence, ElectionHold
from logfleet.controller.terms.effects import (
    Answer,
    Compact,
    Emit,
    NotController,
    ReadReceipts,
    Report,
)
from logfleet.controller.terms.events import (
    Compacted,
    Event,
    ImagePublished,
    LogEndsReported,
    Now,
    OperationRequested,
    OperationWithdrawn,
    ReceiptsRead,
    TurnCame,
)
from logfleet.controller.terms.longest_logs import LongestLogs
from logfleet.controller.terms.operations import (
    OUTCOME_UNKNOWN,
    NotControllerError,
    Operation,
    TermDecision,
)
from logfleet.controller.terms.slices import Turns
from logfleet.controller.terms.writes import ConflictError, Outbox, Settled, TermWrites
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.kinds.cluster import receipts_of
from logfleet.metadata.receipts import Receipts, check_with_receipt
from logfleet.metadata.store import Snapshot, StoreRefused, StoreUnavailable
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

ATTEMPTS_MAX: Final = 10
"""Number of times that an operation is decided again because the cluster changed meanwhile."""
CATCH_UP_MS_MAX: Final = 2_000
"""Longest wait for the image to show the change that a decision conflicted with."""
HISTORY_MS: Final = 600_000
"""The controller compacts revisions that are older.

A broker that was away for longer reads everything again.
"""
OTHER_CONTROLLER: Final = "another controller was elected"


class Phase(Enum):
    STARTING = "until the image shows this broker's election"
    LOADING = "until the receipts of this broker's last term are read"
    IDLE = "until something is due"
    CONVERGING = "a pass of convergence is under way"
    OPERATING = "writes what an operation decided"
    CATCHING_UP = "until the image shows what a write conflicted with"
    ENDED = "does nothing any more"


NEXT: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.STARTING: frozenset({Phase.LOADING, Phase.ENDED}),
    Phase.LOADING: frozenset({Phase.IDLE, Phase.ENDED}),
    Phase.IDLE: frozenset({Phase.CONVERGING, Phase.OPERATING, Phase.ENDED}),
    Phase.CONVERGING: frozenset({Phase.IDLE, Phase.CATCHING_UP, Phase.ENDED}),
    Phase.OPERATING: frozenset({Phase.IDLE, Phase.CATCHING_UP, Phase.ENDED}),
    Phase.CATCHING_UP: frozenset({Phase.IDLE, Phase.ENDED}),
    Phase.ENDED: frozenset(),
}


class TermSettings(msgspec.Struct, frozen=True):
    """static: the broker's server.properties, for defaults that the cluster does not set.

    settled_ms: for how long a preferred replica must be able to lead before it is elected.
    """

    static: Mapping[str, str] = {}
    history_ms: int = HISTORY_MS
    settled_ms: int = SETTLED_MS


class _Request(msgspec.Struct):
    """An operation, and who gets its answer: a request by its number, or a part of the term.

    decided: how often it was decided. decision: the last one, while it is being written.
    """

    operation: Operation[object]
    asker: int | Balance | LongestLogs
    decided: int = 0
    decision: TermDecision[object] | None = None


class Term:
    """The term of broker `broker_id`, begun by the create revision `epoch` of the controller's key.

    ended: a sentence why it has ended, or the error by which it failed; None while it goes on.
    has_converged: the cluster was at least once in a state where nothing was left to do.
    """

    def __init__(
        self,
        epoch: int,
        broker_id: int,
        settings: TermSettings,
        image: ClusterImage,
        now: Now,
        *,
        recent: RecentBrokers,
        outbox: Outbox,
        emit: Emit,
    ) -> None:
        self.epoch = epoch
        self.phase = Phase.STARTING
        self.ended: str | Exception | None = None
        self.has_converged = False
        self._broker_id = broker_id
        self._settings = settings
        self._outbox = outbox
        self._emit = emit
        self._image = image
        self._news = Changes(everything=True)
        """What has changed since the last pass of convergence began."""
        self._due = Changes()
        """What convergence has to check."""
        self._waiting: deque[_Request] = deque()
        self._current: _Request | None = None
        self._finishing: str | None = None
        """Why the term is over, while its current operation is being completed."""
        self._conflict_revision = self._caught_up_ms = 0
        self._turns = Turns(emit)
        self._writes = TermWrites(outbox, epoch, Receipts(epoch, broker_id, ()), emit)
        static = settings.static
        self._hold = ElectionHold(epoch, recent, emit)
        self._convergence = Convergence(epoch, static, self._hold, self._turns, emit)
        self._balance = Balance(
            epoch, static, settings.settled_ms, turns=self._turns, emit=emit, now_ms=now.ms
        )
        self._longest_logs = LongestLogs(epoch, static, self._turns, emit)
        self._history_revision = image.revision
        self._compact_ms: int | None = now.ms + settings.history_ms

    @property
    def due_ms(self) -> int | None:
        """When the term has something to do, though nothing else happens."""
        times: list[int | None] = []
        if self.phase is Phase.CATCHING_UP:
            times.append(self._caught_up_ms)
        if self.phase is Phase.IDLE:
            times.append(self._hold.due_ms)
        if self.phase is not Phase.ENDED and self._finishing is None:
            times += (self._compact_ms, self._balance.due_ms, self._longest_logs.due_ms)
        return min((each for each in times if each is not None), default=None)

    # --- what happens

    def step(self, event: Event | Settled, now: Now) -> None:
        """Raises what a rule raises that was not made for the cluster's state; `fail` follows."""
        match event:
            case ImagePublished(image, changes):
                self._image = image
                self._news.add(changes)
                self._longest_logs.changed(changes)
                self._writes.shown(image)
            case Settled():
                self._writes.settled(event)
            case OperationRequested(number, operation):
                self._waiting.append(_Request(operation, number))
            case OperationWithdrawn(number):
                self._waiting = deque(each for each in self._waiting if each.asker != number)
            case ReceiptsRead(epoch, outcome) if epoch == self.epoch:
                self._receipts_read(outcome)
            case LogEndsReported(epoch, number, found) if epoch == self.epoch:
                if isinstance(found, Exception):
                    self.fail(found)
                else:
                    self._longest_logs.reported(number, found)
            case Compacted(epoch, error) if epoch == self.epoch:
                self._compacted(error, now.ms)
            case TurnCame():
                self._turn_came(now)
            case _:
                pass
        self._advance(now)

    def finish(self, reason: str) -> None:
        """The term is over: complete the current operation, and refuse the waiting ones.

        The current one's write may be applied already; sent to the next controller, it would be
        refused because of its own success. Nothing is written that a new controller does not
        expect: the writes still compare the epoch.
        """
        if self._current is None:
            self._end(reason)
        elif self._finishing is None:
            self._finishing = reason
            self._refuse_waiting()

    def fail(self, error: Exception) -> None:
        """The term cannot go on.

        A current operation whose write is not in flight is known not to be done.
        """
        self._end(error, is_unknown=self.phase is Phase.OPERATING)

    def stop(self) -> None:
        """The broker stops: what becomes of the current operation is unknown."""
        self._end("the broker stops", is_unknown=True)

    def _receipts_read(self, outcome: Snapshot | Exception) -> None:
        if self.phase is not Phase.LOADING:
            return
        if isinstance(outcome, Exception):
            self.fail(outcome)
            return
        receipts = Receipts(self.epoch, self._broker_id, outcome.items)
        self._writes = TermWrites(self._outbox, self.epoch, receipts, self._emit)
        self._enter(Phase.IDLE)

    def _compacted(self, error: Exception | None, now_ms: int) -> None:
        if isinstance(error, StoreUnavailable | StoreRefused):
            self._emit(Report("warning", "metadata_compaction_delayed", {"reason": str(error)}))
        elif error is not None:
            self.fail(error)
        self._history_revision = self._image.revision
        self._compact_ms = now_ms + self._settings.history_ms

    def _turn_came(self, now: Now) -> None:
        self._turns.came()
        if self.phase is Phase.CONVERGING:
            self._convergence.elect(self._writes)
        if self._finishing is None:
            self._balance.turn_came(now.ms)
            self._longest_logs.turn_came()

    # --- what is done next

    def _advance(self, now: Now) -> None:
        """Go on until something has to be waited for."""
        goes_on = True
        while goes_on:
            if self._finishing is None and self.phase is not Phase.ENDED:
                self._advance_beside(now.ms)
            goes_on = self._go_on(now)

    def _advance_beside(self, now_ms: int) -> None:
        """Balancing, elections of the longest log and compaction do not wait for the phases."""
        for part in (self._balance, self._longest_logs):
            part.advance(self._image, now_ms)
            if part.operation is not None:
                self._waiting.append(_Request(part.operation, part))
                part.operation = None
        if self._compact_ms is not None and now_ms >= self._compact_ms:
            self._compact_ms = None
            self._emit(Compact(self.epoch, self._history_revision))

    def _go_on(self, now: Now) -> bool:
        """Whether there was something to do."""
        match self.phase:
            case Phase.STARTING if self._image.revision >= self.epoch:
                self._enter(Phase.LOADING)
                self._emit(ReadReceipts(self.epoch, receipts_of(self._broker_id)))
                return True
            case Phase.IDLE:
                return self._begin_next(now)
            case Phase.CONVERGING:
                return self._converge(now)
            case Phase.OPERATING:
                return self._operate(now)
            case Phase.CATCHING_UP:
                return self._catch_up(now.ms)
            case _:
                return False

    def _begin_next(self, now: Now) -> bool:
        self._due.add(self._news)
        self._news = Changes()
        if self._due != Changes() and not self._hold.lasts(self._image, now.ms):
            self._enter(Phase.CONVERGING)
            self._conflict_revision = self._image.revision
            self._convergence.begin(self._image, self._due, self._writes)
            return True
        self.has_converged = True
        if self._current is None:
            if not self._waiting:
                return False
            self._current = self._waiting.popleft()
        self._decide(self._current, now)
        return True

    def _converge(self, now: Now) -> bool:
        if not self._convergence.has_written(self._writes):
            return False
        error = self._writes.error
        if error is not None:
            self._convergence.give_up()
            self._failed(error, now)
            return True
        self._convergence.advance(self._image, self._writes, now)
        if self._convergence.is_over:
            if self._convergence.is_complete:
                self._due = Changes()
            self._enter(Phase.IDLE)
        return True

    def _decide(self, request: _Request, now: Now) -> None:
        """Begin to write what it decides, or answer it.

        It is refused if deciding fails, or no controller could commit it: every controller after
        this one would fail in the same way.
        """
        if request.decided == ATTEMPTS_MAX:
            often = f"The cluster changed {ATTEMPTS_MAX} times while this was being decided"
            self._answer(Refusal(ErrorCode.REQUEST_TIMED_OUT, f"{often}; try again."), now)
            return
        request.decided += 1
        image = self._image
        layers = BrokerLayers(self._settings.static, image.configs_of_broker(None).values)
        try:
            decision = request.operation(image, self.epoch, layers)
            if isinstance(decision, TermDecision):
                for txn in decision.txns:
                    check_with_receipt(txn)
        except Exception as error:  # noqa: BLE001  a fault of one operation must not end the term
            self._emit(Report("error", "decision_failed", {"epoch": self.epoch}, error))
            message = f"The controller could not do this: {error}"
            decision = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        if isinstance(decision, Refusal):
            self._answer(decision, now)
            return
        request.decision = decision
        self._conflict_revision = image.revision
        self._enter(Phase.OPERATING)
        in_order = not decision.in_any_order
        self._writes.begin(image, decision.txns, decision.cause, in_order=in_order)

    def _operate(self, now: Now) -> bool:
        if not self._writes.are_done:
            return False
        error, request = self._writes.error, self._current
        assert request is not None
        assert request.decision is not None
        if error is None:
            self._enter(Phase.IDLE)
            self._answer(request.decision.answer, now)
        elif isinstance(error, StoreRefused):
            facts = {"epoch": self.epoch, "reason": str(error)}
            self._emit(Report("warning", "decision_refused", facts))
            self._enter(Phase.IDLE)
            message = f"The metadata store refuses to write this: {error}"
            self._answer(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message), now)
        else:
            self._failed(error, now)
        return True

    def _answer(self, answer: object, now: Now) -> None:
        """The current operation has its answer."""
        request, self._current = self._current, None
        assert request is not None
        if isinstance(request.asker, int):
            self._emit(Answer(request.asker, answer))
        else:
            request.asker.answered(now.ms)
        if self._finishing is not None:
            self._end(self._finishing)

    def _failed(self, error: Exception, now: Now) -> None:
        """A write failed: decide again if another change came first, else the term is over."""
        if isinstance(error, ConflictError):
            facts = {"revision": self._conflict_revision, "epoch": self.epoch}
            self._emit(Report("info", "decision_repeated", facts))
            self._caught_up_ms = now.ms + CATCH_UP_MS_MAX
            self._enter(Phase.CATCHING_UP)
        elif isinstance(error, NotControllerError):
            self._end(self._finishing or OTHER_CONTROLLER)
        else:
            self._end(error)

    def _catch_up(self, now_ms: int) -> bool:
        """Whether the image is newer than the outdated one, or has not become so in time."""
        if self._image.revision <= self._conflict_revision:
            if now_ms < self._caught_up_ms:
                return False
            facts = {"revision": self._conflict_revision}
            self._emit(Report("warning", "metadata_loader_behind", facts))
        self._enter(Phase.IDLE)
        return True

    def _end(self, ended: str | Exception, *, is_unknown: bool = False) -> None:
        """is_unknown: the current operation may have been done."""
        if self.phase is Phase.ENDED:
            return
        self._refuse_waiting()
        current, self._current = self._current, None
        if current is not None and isinstance(current.asker, int):
            number = current.asker
            self._emit(Answer(number, OUTCOME_UNKNOWN) if is_unknown else NotController(number))
        self._outbox.drop()
        self.ended = ended
        self._enter(Phase.ENDED)

    def _refuse_waiting(self) -> None:
        for request in self._waiting:
            if isinstance(request.asker, int):
                self._emit(NotController(request.asker))
        self._waiting.clear()

    def _enter(self, phase: Phase) -> None:
        assert phase in NEXT[self.phase], f"{self.phase} to {phase}"
        self.phase = phase
