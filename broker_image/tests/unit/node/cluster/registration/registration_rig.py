"""A registration's machine in each of its states, for tests."""

from collections.abc import Callable
from typing import Any

from logfleet.metadata.image import Broker, ClusterImage, Fence
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue, Endpoint
from logfleet.metadata.store import (
    KeyValue,
    Put,
    StoreError,
    StoreReplaced,
    StoreUnavailable,
    TxnResult,
)
from logfleet.node.cluster.registration.events import (
    Effect,
    Event,
    Failed,
    GrantLease,
    ImageSeen,
    KeyRead,
    LeaseGranted,
    Read,
    Reply,
    Report,
    Request,
    Revoke,
    Revoked,
    Started,
    StopAsked,
    ValueChanged,
    Write,
    Written,
)
from logfleet.node.cluster.registration.machine import BrokerRegistration
from logfleet.node.cluster.registration.states import (
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

KEY = BROKER.key(1)
OWN, FORMER, FOREIGN = 7, 6, 99
EPOCH = BrokerEpoch(50)
VALUE = BrokerValue("me", (Endpoint("PLAINTEXT", "host", 9092),), "a", ("disk",), unclean=True)
OTHER = KeyValue(KEY, BROKER.encode(BrokerValue("other", ())), 40, 40, 1, FOREIGN)


def image(revision: int, epoch: int | None = None, fence: Fence | None = None) -> ClusterImage:
    """epoch: of the registration that it shows, None for none."""
    brokers = {} if epoch is None else {1: Broker(1, BrokerEpoch(epoch), VALUE)}
    return ClusterImage(revision, brokers=brokers, fences={} if fence is None else {1: fence})


def held(
    value: BrokerValue = VALUE, *, created: int = EPOCH, modified: int, lease: int = OWN
) -> KeyValue:
    return KeyValue(KEY, BROKER.encode(value), created, modified, 1, lease)


def lost_to(item: KeyValue | None) -> TxnResult:
    """A transaction whose compares failed, with what it read."""
    return TxnResult(False, 60, (item,))


def put_of(effect: Effect) -> bytes:
    """The registration that this request writes."""
    assert isinstance(effect, Write)
    put = effect.txn.success[0]
    assert isinstance(put, Put)
    return put.value


class Rig:
    """A machine, and what it has asked for. sent: the last request. now_ms: the time."""

    def __init__(self, **arguments: Any) -> None:
        self.machine = BrokerRegistration(1, VALUE, **arguments)
        self.now_ms = 1_000
        self.sent: Request = GrantLease()

    @property
    def state(self) -> type[State]:
        return type(self.machine.state)

    def step(self, event: Event) -> list[Effect]:
        """Effects without the lines for the log."""
        effects: list[Effect] = [
            each for each in self.machine.step(event, self.now_ms) if not isinstance(each, Report)
        ]
        for effect in effects:
            if isinstance(effect, GrantLease | Read | Write | Revoke):
                self.sent = effect
        return effects

    def granted(self, lease: int = OWN) -> list[Effect]:
        return self.step(LeaseGranted(self.sent.number, lease))

    def read(self, item: KeyValue | None = None) -> list[Effect]:
        return self.step(KeyRead(self.sent.number, item))

    def written(self, result: TxnResult) -> list[Effect]:
        return self.step(Written(self.sent.number, result))

    def revoked(self) -> list[Effect]:
        return self.step(Revoked(self.sent.number))

    def failed(self, error: StoreError) -> list[Effect]:
        return self.step(Failed(self.sent.number, error))

    def register(self, lease: int = OWN, epoch: int = EPOCH) -> list[Effect]:
        self.granted(lease)
        self.read()
        return self.written(TxnResult(True, epoch))

    def update(self, **changes: Any) -> list[Effect]:
        return self.step(ValueChanged(changes))


def rig_in(state: type[State], **arguments: Any) -> Rig:
    """A rig whose machine has come to that state."""
    rig = Rig(**arguments)
    if state is New:
        return rig
    rig.step(Started())
    if state is EndingFormer:
        rig.register(FORMER, 30)
        rig.step(ImageSeen(image(45)))
        rig.failed(StoreUnavailable("away"))
    if state is Granting:
        return rig
    rig.granted()
    if state is CheckingLevel:
        return rig
    rig.read()
    if state is Claiming:
        return rig
    if state in {GivingBack, Taken}:
        rig.written(lost_to(OTHER))
        if state is Taken:
            rig.revoked()
        return rig
    if state is EndingFormer:
        rig.written(lost_to(held(created=30, modified=30, lease=FORMER)))
        rig.revoked()
        return rig
    rig.written(TxnResult(True, EPOCH))
    match state.__name__:
        case "Updating":
            rig.update(rack="b")
        case "Ending":
            rig.step(ImageSeen(image(51)))
        case "Stopping":
            rig.step(StopAsked())
        case "Stopped":
            rig.step(StopAsked())
            rig.revoked()
        case "HasFailed":
            rig.update(rack="b")
            rig.failed(StoreReplaced("another"))
    assert rig.state is state
    return rig


ALL_STATES = (
    New,
    Granting,
    CheckingLevel,
    Claiming,
    GivingBack,
    EndingFormer,
    Taken,
    Standing,
    Updating,
    Ending,
    HasFailed,
    Stopping,
    Stopped,
)
WAITING: dict[type[State], Callable[[int], Reply]] = {
    Granting: lambda number: LeaseGranted(number, 8),
    CheckingLevel: lambda number: KeyRead(number, None),
    Claiming: lambda number: Written(number, TxnResult(True, 70)),
    GivingBack: Revoked,
    EndingFormer: Revoked,
    Updating: lambda number: Written(number, TxnResult(True, 70)),
    Ending: Revoked,
    Stopping: Revoked,
}
"""States that wait for a reply, and one that they wait for."""
