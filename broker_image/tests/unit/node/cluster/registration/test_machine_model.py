"""A registration's machine in any order of events: answers that are late or lost, leases that end between, fences, stops."""

import contextlib
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.brokers import (
    ACTIVE,
    BROKER,
    DRAINING,
    FENCE,
    FENCED,
    BrokerValue,
    FenceValue,
)
from logfleet.metadata.store import (
    Delete,
    LeaseNotFound,
    Put,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    WatchBatch,
    absent,
)
from logfleet.node.cluster.registration.events import (
    Active,
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
    Registered,
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
from logfleet.node.cluster.registration.machine import BrokerRegistration
from logfleet.node.cluster.registration.states import Standing, Stopped, Taken
from logfleet.types import BrokerEpoch

KEY, FENCE_KEY = BROKER.key(1), FENCE.key(1)
VALUE = BrokerValue("me", (), unclean=True)
OTHER = BROKER.encode(BrokerValue("other", ()))
PICK = st.integers(0, 5)
RACKS = st.sampled_from("abc")
STATES = st.sampled_from([FENCED, ACTIVE, DRAINING])
TAKEN_MS_MAX = 10**9
"""Longer than a test: IdTaken has tests of its own."""


class RegistrationModel(RuleBasedStateMachine):
    """store: as it is. requests: sent and not answered. proposals: writes that may be done later."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Keyspace()
        self.history: list[ClusterImage] = [ClusterImage()]
        self.seen = 0
        self.machine = BrokerRegistration(1, VALUE, taken_ms_max=TAKEN_MS_MAX)
        self.now_ms = 0
        self.requests: list[Request] = []
        self.proposals: list[Txn] = []
        self.registered: Registered | None = None
        self.epochs: set[int] = set()
        self.shown_active: set[int] = set()
        self.may_stop = self.is_leaving = self.is_stopped = False
        self.foreign = self.store.grant()
        for key, value in ((BROKER.key(2), OTHER), (FENCE.key(2), None)):
            epoch = BrokerEpoch(self.store.revision)
            put = Put(key, value or FENCE.encode(FenceValue(epoch, ACTIVE)))
            self.commit(Txn(success=(put,)))
        self.step(Started())

    # --- the store

    def apply(self, batch: WatchBatch | None) -> None:
        if batch is None:
            return
        self.store.apply(batch)
        builder = ImageBuilder(self.history[-1])
        for event in batch.events:
            builder.add(event)
        image, _ = builder.build(batch.revision)
        self.history.append(image)

    def commit(self, txn: Txn) -> TxnResult:
        result, batch = self.store.evaluate(txn)
        self.apply(batch)
        return result

    def commit_own(self, txn: Txn) -> TxnResult:
        """A write of this broker: it never changes the key of another process."""
        before = self.store.get(KEY)
        result = self.commit(txn)
        after = self.store.get(KEY)
        if before is not None and after is not None and after != before:
            assert before.lease == after.lease, "it wrote over another registration"
            assert before.create_revision == after.create_revision
        return result

    # --- the shell

    def step(self, event: Event) -> None:
        for effect in self.machine.step(event, self.now_ms):
            match effect:
                case GrantLease() | Read() | Write() | Revoke():
                    assert not (self.is_stopped and not isinstance(effect, Revoke))
                    self.requests.append(effect)
                case Registered(epoch, lease):
                    assert self.registered is None, "two registrations at once"
                    there = self.store.get(KEY)
                    assert there is None or there.lease == lease or there.create_revision != epoch
                    self.registered = effect
                    assert epoch not in self.epochs
                    self.epochs.add(epoch)
                case Lost():
                    assert self.registered is not None
                    self.registered = None
                case Active(epoch):
                    assert epoch in self.epochs, "another process's"
                    assert epoch in self.shown_active, "no image shows that"
                case MayStop():
                    assert self.is_leaving
                    self.may_stop = True
                case Fail(error):
                    raise error

    def take(self, pick: int) -> Request:
        return self.requests.pop(pick % len(self.requests))

    def carry_out(self, request: Request) -> Any:
        """The reply of a store that answers."""
        number = request.number
        match request:
            case GrantLease():
                return LeaseGranted(number, self.store.grant())
            case Read(key):
                return KeyRead(number, self.store.get(key))
            case Write(txn):
                try:
                    return Written(number, self.commit_own(txn))
                except LeaseNotFound as error:
                    return Failed(number, error)
            case Revoke(lease):
                self.end(lease)
                return Revoked(number)

    def end(self, lease: int) -> None:
        self.store.end(lease)
        self.apply(self.store.without_lease(lease))

    def is_writing(self) -> bool:
        return any(isinstance(each, Write) for each in self.requests)

    # --- what may happen

    @precondition(lambda self: self.requests)
    @rule(pick=PICK)
    def answer(self, pick: int) -> None:
        self.step(self.carry_out(self.take(pick)))

    @precondition(lambda self: self.requests)
    @rule(pick=PICK)
    def unavailable(self, pick: int) -> None:
        self.step(Failed(self.take(pick).number, StoreUnavailable("away")))

    @precondition(lambda self: self.is_writing())
    @rule(is_done=st.booleans(), may_come_later=st.booleans(), is_repeated=st.booleans())
    def lose_answer(self, *, is_done: bool, may_come_later: bool, is_repeated: bool) -> None:
        write = next(each for each in self.requests if isinstance(each, Write))
        self.requests.remove(write)
        if is_done:
            self.carry_out(write)
        elif may_come_later:
            self.proposals.append(write.txn)
        self.step(Failed(write.number, UnknownOutcome("no answer")))
        if is_repeated:
            self.time_passes(3_000)

    @precondition(lambda self: type(self.machine.state) is Standing)
    @rule(rack=RACKS, is_done=st.booleans(), may_come_later=st.booleans(), state=STATES)
    def change_without_answer(
        self, rack: str, *, is_done: bool, may_come_later: bool, state: str
    ) -> None:
        """The controller decides something before the write is repeated."""
        self.change(rack)
        if self.is_writing():
            self.lose_answer(is_done=is_done, may_come_later=may_come_later, is_repeated=False)
            self.decide(state)
            self.time_passes(3_000)
            self.answer(0)

    @precondition(lambda self: self.requests)
    @rule(pick=PICK)
    def answer_twice(self, pick: int) -> None:
        reply = self.carry_out(self.take(pick))
        self.step(reply)
        self.step(reply)

    @precondition(lambda self: self.proposals)
    @rule(pick=PICK)
    def commit_late(self, pick: int) -> None:
        txn = self.proposals.pop(pick % len(self.proposals))
        with contextlib.suppress(LeaseNotFound):
            self.commit_own(txn)

    @rule(steps=st.integers(1, 3))
    def see_image(self, steps: int) -> None:
        newest = len(self.history) - 1
        if self.seen < newest:
            self.seen = min(self.seen + steps, newest)
            image = self.history[self.seen]
            if 1 in image.fences:
                self.shown_active.add(image.fences[1].broker_epoch)
            self.step(ImageSeen(image))

    @rule()
    def all_goes_well(self) -> None:
        """For a while: what was asked is answered, and what was written is shown."""
        for _ in range(6):
            while self.requests:
                self.answer(0)
            self.see_image(3)

    @rule(ms=st.sampled_from([1, 50, 200, 3_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.step(TimePassed())

    @rule(rack=RACKS)
    def change(self, rack: str) -> None:
        self.step(ValueChanged({"rack": rack}))

    @rule(is_told=st.booleans())
    def lease_ends(self, *, is_told: bool) -> None:
        lease = self.machine.state.lease
        if lease and self.store.has_lease(lease):
            self.end(lease)
            if is_told:
                self.step(LeaseLost(lease))

    @rule(state=STATES)
    def decide(self, state: str) -> None:
        """The controller makes a registration active, or fences or drains one that was active."""
        there, fence = self.store.get(KEY), self.store.get(FENCE_KEY)
        if there is None:
            return
        if state != ACTIVE and (
            fence is None
            or msgspec.json.decode(fence.value, type=FenceValue).broker_epoch
            != there.create_revision
        ):
            return
        value = FENCE.encode(FenceValue(BrokerEpoch(there.create_revision), state))
        self.commit(Txn(success=(Put(FENCE_KEY, value),)))

    @precondition(lambda self: self.store.get(KEY) is None)
    @rule()
    def another_takes_the_id(self) -> None:
        self.commit(Txn((absent(KEY),), (Put(KEY, OTHER, self.foreign),)))

    @precondition(lambda self: self.store.get(KEY) is not None)
    @rule()
    def another_releases_the_id(self) -> None:
        there = self.store.get(KEY)
        if there is not None and there.lease == self.foreign:
            self.commit(Txn(success=(Delete(KEY),)))

    @precondition(lambda self: self.registered and not self.is_leaving)
    @rule()
    def leave(self) -> None:
        self.is_leaving = True
        self.step(LeaveAsked(5_000))

    @precondition(lambda self: len(self.epochs) > 3 and not self.is_stopped)
    @rule()
    def stop(self) -> None:
        self.is_stopped = True
        self.registered = None
        self.step(StopAsked())

    # --- what must hold

    @invariant()
    def it_is_registered_when_it_says_so(self) -> None:
        state = self.machine.state
        standing = isinstance(state, Standing)
        assert standing == (self.registered is not None)
        if isinstance(state, Standing):
            assert self.registered == Registered(state.epoch, state.lease)
            image = self.history[self.seen]
            if image.revision >= state.epoch:
                assert image.brokers[1].epoch == state.epoch
                assert image.brokers[1].state != FENCED

    @invariant()
    def something_is_due_or_awaited(self) -> None:
        state = self.machine.state
        waits = self.requests or self.machine.due_ms is not None
        assert waits or type(state) in {Standing, Taken, Stopped}

    @invariant()
    def its_disk_is_clean_once_an_image_shows_that_it_was_active(self) -> None:
        assert self.machine.value.unclean == self.epochs.isdisjoint(self.shown_active)

    def teardown(self) -> None:
        """All is answered and shown: it comes to rest."""
        while self.proposals:
            self.commit_late(0)
        self.another_releases_the_id()
        for _ in range(20):
            self.all_goes_well()
            self.now_ms += 3_000
            self.step(TimePassed())
        state = self.machine.state
        if self.is_stopped:
            assert isinstance(state, Stopped)
            return
        assert self.may_stop or not self.is_leaving
        assert type(state) is Standing
        there = self.store.get(KEY)
        assert there is not None
        assert (there.create_revision, there.lease) == (state.epoch, state.lease)
        value = msgspec.json.decode(there.value, type=BrokerValue)
        wanted = self.machine.value
        assert value == msgspec.structs.replace(wanted, previous_epoch=value.previous_epoch)


RegistrationModel.TestCase.settings = settings(max_examples=200, stateful_step_count=60)
TestRegistration = RegistrationModel.TestCase
