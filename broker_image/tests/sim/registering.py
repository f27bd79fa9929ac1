"""Carries out what the machine of a simulated broker's registration decides, as `registration.registrar` does for a broker."""

from typing import Protocol

from logfleet.metadata.kinds.brokers import BrokerValue
from logfleet.metadata.store import StoreError, StoreUnavailable
from logfleet.node.cluster.registration.events import (
    Active,
    Effect,
    Event,
    Fail,
    Failed,
    GrantLease,
    KeyRead,
    LeaseGranted,
    LeaseLost,
    Lost,
    MayStop,
    Read,
    Registered,
    Reply,
    Report,
    Request,
    Revoke,
    Revoked,
    Started,
    StopAsked,
    TimePassed,
    Write,
    Written,
)
from logfleet.node.cluster.registration.machine import BrokerRegistration
from logfleet.types import BrokerEpoch

from broker_image.tests.sim.kernel import Process
from broker_image.tests.sim.node import LEASE_TTL_S, Node

KEEPALIVE_MS = 1_000


class Listener(Protocol):
    """What the machine's effects do to a simulated broker."""

    def registered(self, epoch: BrokerEpoch, deadline_ms: int) -> None: ...
    def lost(self, reason: str) -> None: ...
    def active(self, epoch: BrokerEpoch) -> None: ...
    def stop(self) -> None: ...
    def fail(self, error: Exception) -> None: ...


class Registering:
    """machine: decides. Leases are kept alive as `io.etcd.lease` does it."""

    def __init__(self, node: Node, listener: Listener, value: BrokerValue) -> None:
        self._node, self._listener = node, listener
        self.machine = BrokerRegistration(node.id, value)
        self._deadlines: dict[int, int] = {}  # of the leases that are kept alive
        self._due_ms: int | None = None

    def start(self) -> None:
        self._node.fleet.kernel.at(0, self._node.host, "register", self.step, Started())

    def step(self, event: Event) -> None:
        kernel = self._node.fleet.kernel
        for effect in self.machine.step(event, kernel.now):
            self._carry_out(effect)
        due_ms = self.machine.due_ms
        if due_ms is not None and due_ms != self._due_ms:
            kernel.at(max(due_ms - kernel.now, 0), self._node.host, "register", self._due, due_ms)
        self._due_ms = due_ms

    def stop(self) -> None:
        """The process ends in good order: its registration goes, if the store hears of it."""
        for effect in self.machine.step(StopAsked(), self._node.fleet.kernel.now):
            if isinstance(effect, Revoke):
                self._node.fleet.store.revoke(self._node.host, effect.lease)

    def _due(self, due_ms: int) -> None:
        if self._due_ms == due_ms:
            self._due_ms = None
            self.step(TimePassed())

    def _carry_out(self, effect: Effect) -> None:
        node = self._node
        match effect:
            case GrantLease() | Read() | Write() | Revoke():
                node.fleet.kernel.spawn(node.host, "register", self._send(effect))
            case Registered(epoch, lease):
                self._listener.registered(epoch, self._deadlines[lease])
                node.fleet.kernel.spawn(node.host, "lease", self._keeping(lease))
            case Lost(reason):
                self._listener.lost(reason)
            case Active(epoch):
                self._listener.active(epoch)
            case MayStop():
                node.fleet.kernel.at(0, node.host, "stop", self._listener.stop)
            case Fail(error):
                node.fleet.kernel.at(0, node.host, "fail", self._listener.fail, error)
            case Report(_, event, fields):
                node.note("%s %s", event, fields)

    def _send(self, request: Request) -> Process:
        store, host = self._node.fleet.store, self._node.host
        number = request.number
        reply: Reply | None = None
        match request:
            case GrantLease():
                sent_ms = self._node.fleet.kernel.now
                lease = yield store.grant_lease(host, LEASE_TTL_S)
                if lease is not None:
                    self._deadlines[lease] = sent_ms + 1000 * LEASE_TTL_S
                    reply = LeaseGranted(number, lease)
            case Read(key):
                read = yield store.range(host, key)
                if read is not None:
                    held = next((each for each in read.items if each.key == key), None)
                    reply = KeyRead(number, held)
            case Write(txn):
                result = yield store.txn(host, txn)
                is_error = isinstance(result, StoreError)
                reply = Failed(number, result) if is_error else Written(number, result)
            case Revoke(lease):
                self._deadlines.pop(lease, None)
                if (yield store.revoke(host, lease)):
                    reply = Revoked(number)
        self.step(reply or Failed(number, StoreUnavailable()))

    def _keeping(self, lease: int) -> Process:
        kernel, node = self._node.fleet.kernel, self._node
        while True:
            yield KEEPALIVE_MS
            sent_ms = kernel.now
            kept = yield node.fleet.store.keep_alive(node.host, lease)
            if lease not in self._deadlines:
                return
            if kept is False:
                self.step(LeaseLost(lease))
                return
            if kept:
                node.deadline_ms = self._deadlines[lease] = sent_ms + 1000 * LEASE_TTL_S
