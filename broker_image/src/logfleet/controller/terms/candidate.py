"""Election of the controller: every broker campaigns, one wins, the others wait for its key to go.

The key `ctl` lives under a lease; its create revision is the controller epoch that all writes of a
term compare. The lease only tells when to try again: the compares, not time, ensure that there is
one controller.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from logfleet.controller.brokers.vanishing import RecentBrokers
from logfleet.controller.terms.effects import (
    Effect,
    Fail,
    GrantLease,
    NotController,
    Record,
    Report,
    RevokeLease,
    WakeAt,
)
from logfleet.controller.terms.events import (
    Event,
    ImagePublished,
    LeaseGranted,
    LeaseLost,
    LeaseRevoked,
    Now,
    OperationRequested,
    Stopped,
    TimePassed,
    WriteAnswered,
)
from logfleet.controller.terms.term import Term, TermSettings
from logfleet.controller.terms.writes import Outbox, Settled
from logfleet.metadata.image import ClusterImage, Controller
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.kinds.cluster import CONTROLLER, ControllerValue
from logfleet.metadata.store import (
    Get,
    LeaseNotFound,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    Txn,
    TxnResult,
    absent,
    created_at,
)
from logfleet.telemetry.decisions import Decision, Kind

PAUSE_MS: Final = 2_000
"""Pause before the next campaign if the store was away, or refused something."""
FAILED_PAUSE_MS_MAX: Final = 60_000
"""Longest pause after a failed term.

The first is PAUSE_MS, and each is twice as long as the one before (as Kubernetes' crash loop
back-off), until a term has converged, or ended otherwise. Other brokers campaign meanwhile.
"""


class Watching(msgspec.Struct, frozen=True):
    """There is a controller, or no image yet."""


class Releasing(msgspec.Struct, frozen=True):
    """Deletes the key of an election that it won by a write whose answer was lost (KAFKA-13407).

    Nobody would act on it.
    """

    write: int
    epoch: int


class Released(msgspec.Struct, frozen=True):
    """Until the image shows that the key is gone."""

    epoch: int


class Leasing(msgspec.Struct, frozen=True):
    """Asks for a lease."""


class Claiming(msgspec.Struct, frozen=True):
    """Writes the controller's key."""

    lease: int
    write: int


class Defeated(msgspec.Struct, frozen=True):
    """Another broker was first: until the image shows it."""

    lease: int
    revision: int


class Controlling(msgspec.Struct, frozen=True):
    lease: int
    term: Term


class Finishing(msgspec.Struct, frozen=True):
    """The term is over, and its current operation is being completed."""

    lease: int
    term: Term


class Revoking(msgspec.Struct, frozen=True):
    """Gives up its lease. pause_ms: for how long it does not campaign after that."""

    lease: int
    pause_ms: int


class Pausing(msgspec.Struct, frozen=True):
    until_ms: int


class Gone(msgspec.Struct, frozen=True):
    """Not a candidate any more."""


State = (
    Watching
    | Releasing
    | Released
    | Leasing
    | Claiming
    | Defeated
    | Controlling
    | Finishing
    | Revoking
    | Pausing
    | Gone
)
NEXT: Final[Mapping[type, frozenset[type]]] = {
    Watching: frozenset({Releasing, Leasing, Gone}),
    Releasing: frozenset({Released, Pausing, Gone}),
    Released: frozenset({Watching, Gone}),
    Leasing: frozenset({Claiming, Pausing, Gone}),
    Claiming: frozenset({Controlling, Defeated, Revoking, Gone}),
    Defeated: frozenset({Revoking, Gone}),
    Controlling: frozenset({Finishing, Gone}),
    Finishing: frozenset({Revoking, Gone}),
    Revoking: frozenset({Watching, Pausing, Gone}),
    Pausing: frozenset({Watching, Gone}),
    Gone: frozenset(),
}


class Candidate:
    """Campaigns for controller and, once elected, runs a term.

    value: this process, as in its broker registration. recent: the brokers of the last images.
    failed_terms: count of terms that ended by a fault of the controller, not of the store.
    """

    def __init__(
        self, value: ControllerValue, settings: TermSettings, recent: RecentBrokers
    ) -> None:
        self.failed_terms = 0
        self.state: State = Watching()
        self.image = ClusterImage()
        self._value = value
        self._settings = settings
        self._recent = recent
        self._effects: list[Effect] = []
        self._outbox = Outbox(self._effects.append)
        self._failed_pause_ms = PAUSE_MS
        self._lost_lease = 0
        """The last lease that was reported as lost."""
        self._wake_ms: int | None = None

    @property
    def term(self) -> Term | None:
        """The present term, if this broker is the controller."""
        return self.state.term if isinstance(self.state, Controlling) else None

    def step(self, event: Event, now: Now) -> tuple[Effect, ...]:
        """What has to be done about an event. See `logfleet.controller.terms`."""
        match event:
            case ImagePublished(image):
                self.image = image
            case TimePassed():
                self._wake_ms = None
                self._outbox.retry(now.ms)
            case LeaseLost(lease):
                self._lost_lease = lease
        if isinstance(event, WriteAnswered):
            settled = self._outbox.answered(event.number, event.outcome, now.ms)
            if settled is not None:
                self._settled(settled, now)
        else:
            self._happened(event, now)
        self._advance(now)
        self._set_timer()
        effects = tuple(self._effects)
        self._effects.clear()
        return effects

    # --- what happens

    def _happened(self, event: Event, now: Now) -> None:
        match self.state, event:
            case _, Stopped() if not isinstance(self.state, Gone):
                self._stop()
            case Leasing(), LeaseGranted(outcome):
                self._granted(outcome, now)
            case Revoking(lease, pause_ms), LeaseRevoked(revoked, error) if revoked == lease:
                self._revoked(error, pause_ms, now)
            case Controlling(_, term), _:
                self._step_term(term, event, now)
            case _, OperationRequested(number):
                self._effects.append(NotController(number))
            case Finishing(_, term), _:
                self._step_term(term, event, now)

    def _settled(self, settled: Settled, now: Now) -> None:
        """A write has its definite answer."""
        match self.state:
            case Releasing(write, epoch) if write == settled.number:
                if isinstance(settled.outcome, Exception):
                    self._delay(settled.outcome, 0, now)
                else:
                    self._enter(Released(epoch))
            case Claiming(lease, write) if write == settled.number:
                self._claimed(lease, settled.outcome, now)
            case Controlling(_, term) | Finishing(_, term):
                self._step_term(term, settled, now)

    def _granted(self, outcome: int | Exception, now: Now) -> None:
        if isinstance(outcome, Exception):
            self._delay(outcome, 0, now)
            return
        put = CONTROLLER.put(None, self._value, outcome)
        claim = Txn((absent(put.key),), (put,), (Get(put.key),))
        self._enter(Claiming(outcome, self._outbox.send(claim)))

    def _claimed(self, lease: int, outcome: TxnResult | Exception, now: Now) -> None:
        """The key is this broker's if it has the lease of this campaign.

        Its create revision is then the epoch: the write may have been applied by an attempt that
        got no answer.
        """
        if isinstance(outcome, LeaseNotFound):  # the store was away for longer than the lease lives
            self._revoke(lease)
            return
        if isinstance(outcome, Exception):
            self._delay(outcome, lease, now)
            return
        epoch = outcome.revision
        if not outcome.succeeded:
            (held,) = outcome.reads
            assert held is not None, "its compare just failed"
            if held.lease != lease:
                self._enter(Defeated(lease, held.mod_revision))
                return
            epoch = held.create_revision
        self._begin_term(lease, epoch, now)

    def _begin_term(self, lease: int, epoch: int, now: Now) -> None:
        cause = "there was no controller, and it was the first to campaign"
        facts = {"broker": self._value.broker, "epoch": epoch}
        self._effects.append(Report("info", "controller_elected", facts))
        self._record(Kind.CONTROLLER_ELECTED, cause, epoch)
        term = Term(
            epoch,
            self._value.broker,
            self._settings,
            self.image,
            now,
            recent=self._recent,
            outbox=self._outbox,
            emit=self._effects.append,
        )
        self._enter(Controlling(lease, term))
        self._step_term(term, ImagePublished(self.image, Changes()), now)

    def _revoked(self, error: Exception | None, pause_ms: int, now: Now) -> None:
        if error is not None and not isinstance(error, StoreUnavailable):  # then it expires
            self._delay(error, 0, now)
        elif pause_ms:
            self._enter(Pausing(now.ms + pause_ms))
        else:
            self._enter(Watching())

    def _stop(self) -> None:
        state = self.state
        if isinstance(state, Controlling | Finishing):
            state.term.stop()
        if isinstance(state, Claiming | Defeated | Controlling | Finishing):
            self._effects.append(RevokeLease(state.lease))
        self._outbox.drop()
        self._enter(Gone())

    # --- what is done next

    def _advance(self, now: Now) -> None:
        """Go on until something has to be waited for."""
        while self._go_on(now):
            pass

    def _go_on(self, now: Now) -> bool:
        """Whether there was something to do."""
        image, controller = self.image, self.image.controller
        match self.state:
            case Watching() if image.revision and controller is None:
                self._enter(Leasing())
                self._effects.append(GrantLease())
            case Watching() if controller is not None and self._is_me(controller):
                self._release(controller.epoch)
            case Released(epoch) if controller is None or controller.epoch != epoch:
                self._enter(Watching())
            case Defeated(lease, revision) if image.revision >= revision:
                self._revoke(lease)
            case Pausing(until_ms) if now.ms >= until_ms:
                self._enter(Watching())
            case Controlling(lease, term):
                return self._check_term(lease, term)
            case Finishing(lease, term) if term.ended is not None:
                self._end_term(lease, term, term.ended, now)
            case _:
                return False
        return True

    def _release(self, epoch: int) -> None:
        self._effects.append(Report("warning", "idle_controller_resigns", {"epoch": epoch}))
        held = created_at(CONTROLLER.prefix, epoch)
        write = self._outbox.send(Txn((held,), (CONTROLLER.delete(None),)))
        self._enter(Releasing(write, epoch))

    def _check_term(self, lease: int, term: Term) -> bool:
        """Whether the term is over: it has ended by itself, or was replaced, or its lease ended."""
        if term.ended is None:
            if lease == self._lost_lease:
                term.finish("the lease has ended")
            elif _replaced(self.image, term.epoch):
                term.finish("it was replaced")
            else:
                return False
        self._enter(Finishing(lease, term))
        return True

    def _end_term(self, lease: int, term: Term, ended: str | Exception, now: Now) -> None:
        if isinstance(ended, StoreUnavailable | StoreRefused | StoreReplaced):
            self._record(Kind.CONTROLLER_RESIGNED, str(ended), term.epoch)
            self._delay(ended, lease, now)
        elif isinstance(ended, Exception):
            self._term_failed(term, ended)
            self._revoke(lease, self._failed_pause_ms)
            self._failed_pause_ms = min(2 * self._failed_pause_ms, FAILED_PAUSE_MS_MAX)
        else:
            self._failed_pause_ms = PAUSE_MS
            facts = {"broker": self._value.broker, "epoch": term.epoch, "reason": ended}
            self._effects.append(Report("warning", "controller_resigned", facts))
            self._record(Kind.CONTROLLER_RESIGNED, ended, term.epoch)
            self._revoke(lease)

    def _term_failed(self, term: Term, error: Exception) -> None:
        """What no rule was made for would fail under every controller.

        If brokers ended by it, they would do so one after the other; serving records needs no
        controller.
        """
        self.failed_terms += 1
        self._record(Kind.CONTROLLER_RESIGNED, f"it failed: {error}", term.epoch)
        if term.has_converged:
            self._failed_pause_ms = PAUSE_MS
        facts = {
            "broker": self._value.broker,
            "epoch": term.epoch,
            "pause_s": self._failed_pause_ms / 1000,
        }
        self._effects.append(Report("critical", "controller_term_failed", facts, error))

    def _delay(self, error: Exception, lease: int, now: Now) -> None:
        """Campaign again after a pause: what the store refuses to one, another may be allowed.

        lease: to be revoked first, 0 for none. Other errors end the broker.
        """
        pause_ms = PAUSE_MS
        if isinstance(error, StoreUnavailable | StoreRefused):
            self._effects.append(
                Report("warning", "controller_election_delayed", {"reason": str(error)})
            )
        else:
            self._effects.append(Fail(error))
        if lease:
            self._revoke(lease, pause_ms)
        else:
            self._enter(Pausing(now.ms + pause_ms))

    def _revoke(self, lease: int, pause_ms: int = 0) -> None:
        self._effects.append(RevokeLease(lease))
        self._enter(Revoking(lease, pause_ms))

    def _step_term(self, term: Term, event: Event | Settled, now: Now) -> None:
        try:
            term.step(event, now)
        except Exception as error:  # noqa: BLE001  the cluster's state, which a rule was not made for
            term.fail(error)

    def _set_timer(self) -> None:
        times = [self._outbox.due_ms]
        match self.state:
            case Pausing(until_ms):
                times.append(until_ms)
            case Controlling(_, term) | Finishing(_, term):
                times.append(term.due_ms)
        due_ms = min((each for each in times if each is not None), default=None)
        if due_ms != self._wake_ms:
            self._wake_ms = due_ms
            self._effects.append(WakeAt(due_ms))

    def _is_me(self, controller: Controller) -> bool:
        return controller.incarnation == self._value.incarnation

    def _record(self, kind: Kind, cause: str, epoch: int) -> None:
        facts = {"epoch": epoch}
        self._effects.append(Record(Decision(kind, cause, broker=self._value.broker, facts=facts)))

    def _enter(self, state: State) -> None:
        allowed = NEXT[type(self.state)]
        assert type(state) in allowed, f"{type(self.state).__name__} to {type(state).__name__}"
        self.state = state


def _replaced(image: ClusterImage, epoch: int) -> bool:
    """Whether the image, if not older than the term, shows another controller or none."""
    return image.revision >= epoch and (image.controller is None or image.controller.epoch != epoch)
