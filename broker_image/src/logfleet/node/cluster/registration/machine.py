"""The machine of a broker's registration: events in, effects out."""

from typing import Any, Final

import msgspec

from logfleet.controller.brokers.feature_level import cannot_join
from logfleet.controller.brokers.leaving import may_exit
from logfleet.metadata import attempts
from logfleet.metadata.attempts import Attempts, GrowingPause
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.kinds.cluster import FEATURES
from logfleet.metadata.store import (
    KeyValue,
    LeaseNotFound,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TxnResult,
    UnknownOutcome,
)
from logfleet.node.cluster.registration import writes
from logfleet.node.cluster.registration.errors import IdTaken, LevelTooHigh
from logfleet.node.cluster.registration.events import (
    Accepted,
    Active,
    Effect,
    Event,
    Fail,
    Failed,
    GrantLease,
    ImageSeen,
    KeyRead,
    LeaseGranted,
    LeaseLost,
    LeaveAsked,
    Lost,
    MayStop,
    Read,
    Refused,
    Registered,
    Reply,
    Report,
    Request,
    Revoke,
    Revoked,
    Started,
    StopAsked,
    TimePassed,
    ValueChanged,
    Write,
    Written,
)
from logfleet.node.cluster.registration.states import (
    NO_LEASE,
    PREVIOUS_STATES,
    CheckingLevel,
    Claiming,
    Ending,
    EndingFormer,
    GivingBack,
    Granting,
    HasFailed,
    New,
    Standing,
    State,
    Stopped,
    Stopping,
    Taken,
    Updating,
)
from logfleet.types import BrokerEpoch

TAKEN_MS_MAX: Final = 60_000
"""Longest time that a broker waits for an id that another process holds.

Kafka: initial.broker.registration.timeout.ms.
"""
UNAVAILABLE_PAUSE_MS: Final = 200
"""Short: a store that is unavailable has already tried for seconds."""


class BrokerRegistration:
    """The registration of one broker process.

    Call `step` with every event, in the order in which they happen; carry out the effects in their
    order before the next call. At `due_ms` an event is due, `TimePassed` if there is no other; a
    late one is harmless. After `Lost` the broker must lead nothing before anything else happens.
    A request is sent once; the machine repeats it. `ImageSeen` comes with growing revisions.

    value: what it registers with. taken_ms_max: how long it waits for an id that is taken.
    epoch: the broker epoch of the last registration, 0 before the first.
    """

    def __init__(
        self, broker_id: int, value: BrokerValue, *, taken_ms_max: int = TAKEN_MS_MAX
    ) -> None:
        self.epoch = BrokerEpoch(0)
        self._broker_id = broker_id
        self._key = BROKER.key(broker_id)
        self._value = value
        self._taken_ms_max = taken_ms_max
        self._state: State = New()
        self._now_ms = 0
        self._image = ClusterImage()
        self._effects: list[Effect] = []
        # the request of the present state: its number while a reply is due, else when to repeat it
        self._request: Request | None = None
        self._numbers = self._awaited = 0
        self._repeat_ms: int | None = None
        self._attempts = Attempts()
        self._refused: GrowingPause | None = None
        self._former_lease = NO_LEASE
        self._taken_until_ms: int | None = None
        self._leave: LeaveAsked | None = None
        self._leave_until_ms = 0
        # broker epochs of this process since the last one that was active
        self._epochs: set[BrokerEpoch] = set()

    @property
    def state(self) -> State:
        return self._state

    @property
    def value(self) -> BrokerValue:
        """What the broker registers with from now on."""
        return self._value

    @property
    def due_ms(self) -> int | None:
        """When `step` must be called at the latest, None if only an event can change anything."""
        waits = [self._repeat_ms]
        if self._leave is not None:
            waits.append(self._leave_until_ms)
        if isinstance(self._state, Taken):
            waits.append(self._taken_until_ms)
        return min((each for each in waits if each is not None), default=None)

    def step(self, event: Event, now_ms: int) -> tuple[Effect, ...]:
        """What to do after this event. now_ms: monotonic."""
        self._now_ms = now_ms
        match event:
            case LeaseGranted() | KeyRead() | Written() | Revoked() | Failed():
                self._replied(event)
            case Started():
                self._grant()
            case LeaseLost(lease):
                if isinstance(self._state, Standing) and self._state.lease == lease:
                    self._lose("the lease has ended")
            case ImageSeen(image):
                self._image = image
                self._check_image()
                self._check_active()
            case ValueChanged(changes):
                self._change_value(**changes)
            case LeaveAsked():
                self._announce(event)
            case StopAsked():
                self._stop()
            case TimePassed():
                pass
        self._check_time()
        self._check_leaving()
        effects, self._effects = self._effects, []
        return tuple(effects)

    # --- requests

    def _enter(self, state: State) -> None:
        """Change the state. The request of the last one is forgotten: its reply changes nothing."""
        before, after = type(self._state), type(state)
        assert before in PREVIOUS_STATES[after], f"{before.__name__} to {after.__name__}"
        self._state = state
        self._request, self._awaited, self._repeat_ms = None, 0, None
        self._attempts = Attempts()

    def _send(self, request: Request) -> None:
        self._numbers += 1
        self._awaited, self._repeat_ms = self._numbers, None
        self._request = request
        self._effects.append(msgspec.structs.replace(request, number=self._numbers))

    def _repeat_after(self, pause_ms: int) -> None:
        self._repeat_ms = self._now_ms + pause_ms

    def _report(self, level: str, event: str, **fields: object) -> None:
        self._effects.append(Report(level, event, fields))

    def _fail(self, error: Exception) -> None:
        self._enter(HasFailed(lease=self._state.lease))
        self._effects.append(Fail(error))

    def _replied(self, reply: Reply) -> None:
        if reply.number != self._awaited:
            return
        self._awaited = 0
        if isinstance(reply, Failed):
            self._failed(reply.error)
        else:
            self._accept(reply)

    def _accept(self, reply: Reply) -> None:
        """The reply that the state waits for."""
        state = self._state
        match state, reply:
            case Granting(), LeaseGranted(lease=lease):
                self._check_level(lease)
            case CheckingLevel(), KeyRead(held=held):
                self._claim(held)
            case Claiming() as claiming, Written(result=result):
                self._claimed(claiming, result)
            case GivingBack(held=held), Revoked():
                self._gave_back(held)
            case EndingFormer(), Revoked():
                self._former_lease = NO_LEASE
                self._grant()
            case Updating() as updating, Written(result=result):
                self._updated(updating, result)
            case Ending(lease=lease), Revoked():
                self._former_lease = lease
                self._grant()
            case Stopping(), Revoked():
                self._enter(Stopped())
            case _:
                raise AssertionError(f"{reply} while {state}")

    def _failed(self, error: StoreError) -> None:
        """The request failed, or its outcome is unknown."""
        state = self._state
        match state, error:
            case ((Claiming() | Updating()), (UnknownOutcome() | StoreUnavailable()) as unanswered):
                # it may be applied later: only a definite reply to the same write settles it
                pause_ms = self._attempts.failed(unanswered)
                self._report(
                    "warning",
                    "metadata_write_repeated",
                    reason=str(error),
                    pause_s=pause_ms / 1000,
                )
                self._repeat_after(pause_ms)
            case (
                (GivingBack() | Ending() | Stopping()),
                StoreUnavailable(),
            ):  # it expires by itself
                self._accept(Revoked(0))
            case ((Granting() | CheckingLevel() | EndingFormer()), StoreUnavailable()):
                self._report("warning", "metadata_store_unavailable", reason=str(error))
                self._repeat_after(UNAVAILABLE_PAUSE_MS)
            case Claiming(), LeaseNotFound():  # the store was away for longer than the lease lives
                self._grant()
            case Updating(), LeaseNotFound():
                self._lose("the lease has ended")
            case Updating(), StoreRefused() as refusal:
                self._refused = self._refused or GrowingPause(attempts.REFUSED_MS)
                self._effects.append(Refused(self._key, refusal))
                self._repeat_after(self._refused.next_ms())
            case _:
                self._fail(error)

    def _check_time(self) -> None:
        if self._repeat_ms is not None and self._now_ms >= self._repeat_ms:
            assert self._request is not None
            self._send(self._request)
        if isinstance(self._state, Taken):
            assert self._taken_until_ms is not None
            if self._now_ms >= self._taken_until_ms:
                holder = writes.holder(self._state.held)
                message = f"broker id {self._broker_id} is held by another process, {holder}"
                self._fail(IdTaken(message))

    # --- registering

    def _grant(self) -> None:
        self._enter(Granting())
        self._send(GrantLease())

    def _check_level(self, lease: int) -> None:
        self._enter(CheckingLevel(lease=lease))
        self._send(Read(FEATURES.prefix))

    def _claim(self, features: KeyValue | None) -> None:
        """Create the registration, if the cluster's feature level allows it.

        features: that key as it was read.
        """
        value, lease = self._value, self._state.lease
        reason = cannot_join(writes.features_of(features), value.level)
        if reason:
            self._fail(LevelTooHigh(reason))
            return
        self._enter(Claiming(lease=lease, value=value))
        self._send(Write(writes.claim_txn(self._broker_id, value, lease, features)))

    def _claimed(self, state: Claiming, result: TxnResult) -> None:
        if result.succeeded:
            self._register(state, BrokerEpoch(result.revision))
            return
        held = result.reads[0]
        if held is None:  # the feature level was written meanwhile
            self._check_level(state.lease)
        elif held.lease == state.lease:  # an unanswered attempt was applied
            self._register(state, BrokerEpoch(held.create_revision))
        else:
            self._enter(GivingBack(lease=state.lease, held=held))
            self._send(Revoke(state.lease))

    def _gave_back(self, held: KeyValue) -> None:
        if self._former_lease != NO_LEASE and held.lease == self._former_lease:
            self._enter(EndingFormer())
            self._send(Revoke(held.lease))
            return
        self._enter(Taken(held=held))
        if self._taken_until_ms is None:
            self._taken_until_ms = self._now_ms + self._taken_ms_max
            self._report(
                "warning", "broker_id_taken", broker=self._broker_id, holder=writes.holder(held)
            )
        self._check_time()
        self._check_image()

    def _register(self, state: Claiming, epoch: BrokerEpoch) -> None:
        self._enter(
            Standing(lease=state.lease, epoch=epoch, revision=int(epoch), written=state.value)
        )
        self.epoch = epoch
        self._epochs.add(epoch)
        self._taken_until_ms, self._refused = None, None
        self._report("info", "broker_registered", broker=self._broker_id, epoch=epoch)
        self._effects.append(Registered(epoch, state.lease))
        self._check_image()
        self._check_active()
        self._write_update()

    # --- while it stands

    def _check_image(self) -> None:
        """Act on what the last image shows of this broker's key; it may be older than that."""
        state = self._state
        if isinstance(state, Standing):
            reason = writes.ended_in(self._image, self._broker_id, state.epoch)
            if reason:
                self._lose(reason)
        elif isinstance(state, Taken) and self._image.revision >= state.held.create_revision:
            broker = self._image.brokers.get(self._broker_id)
            if broker is None or broker.epoch != state.held.create_revision:
                self._grant()

    def _check_active(self) -> None:
        """`fence/ID` names a broker epoch only after the controller made that registration active.

        The controller may be away for long, and registrations may end early.
        """
        fence = self._image.fences.get(self._broker_id)
        if fence is not None and fence.broker_epoch in self._epochs:
            epoch = fence.broker_epoch
            self._epochs = {each for each in self._epochs if each > epoch}
            self._effects.append(Active(epoch))
            self._change_value(unclean=False, previous_epoch=epoch)

    def _lose(self, reason: str) -> None:
        lease = self._state.lease
        self._enter(Ending(lease=lease))
        self._report("error", "broker_registration_lost", broker=self._broker_id, reason=reason)
        self._effects.append(Lost(reason))
        self._send(Revoke(lease))

    def _change_value(self, **changes: Any) -> None:
        self._value = msgspec.structs.replace(self._value, **changes)
        self._write_update()

    def _write_update(self) -> None:
        """Write the value into the registration, if that stands and has another one.

        A change of `previous_epoch` alone matters to the next registration only.
        """
        state, value = self._state, self._value
        if type(state) is not Standing:
            return
        if value == msgspec.structs.replace(state.written, previous_epoch=value.previous_epoch):
            return
        self._enter(
            Updating(
                lease=state.lease,
                epoch=state.epoch,
                revision=state.revision,
                written=state.written,
                value=value,
            )
        )
        self._send(Write(writes.update_txn(self._key, value, state.lease, state.revision)))

    def _updated(self, state: Updating, result: TxnResult) -> None:
        if self._refused is not None:
            self._refused = None
            self._effects.append(Accepted(self._key))
        revision, written = result.revision, state.value
        if not result.succeeded:
            held = result.reads[0]
            if held is None or held.create_revision != state.epoch:
                self._lose("the registration is gone")
                return
            # an unanswered attempt was applied
            revision, written = held.mod_revision, writes.value_of(held)
        self._enter(
            Standing(lease=state.lease, epoch=state.epoch, revision=revision, written=written)
        )
        self._write_update()

    # --- leaving

    def _announce(self, leave: LeaveAsked) -> None:
        if not isinstance(self._state, Standing) or self._is_last():
            self._effects.append(MayStop(""))
            return
        self._leave, self._leave_until_ms = leave, self._now_ms + leave.ms_max
        self._report("info", "broker_leaving", broker=self._broker_id)
        self._change_value(leaving=True)

    def _check_leaving(self) -> None:
        if self._leave is None:
            return
        if may_exit(self._image, self._broker_id) or self._is_last():
            cause = "it has nothing more to hand over"
        elif self._now_ms >= self._leave_until_ms:
            seconds = self._leave.ms_max / 1000
            cause = f"others did not take over its partitions within {seconds:.0f} s"
        else:
            return
        self._leave = None
        self._report("info", "broker_left", broker=self._broker_id, reason=cause)
        self._effects.append(MayStop(cause))

    def _is_last(self) -> bool:
        """Whether no broker stays: all that are there are leaving."""
        return all(
            broker.id == self._broker_id or broker.value.leaving or broker.is_fenced
            for broker in self._image.brokers.values()
        )

    def _stop(self) -> None:
        lease = self._state.lease
        if isinstance(self._state, Stopping | Stopped):
            return
        self._leave = None
        if lease == NO_LEASE:
            self._enter(Stopped())
        else:
            self._enter(Stopping(lease=lease))
            self._send(Revoke(lease))
