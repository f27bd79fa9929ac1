"""Candidates for controller over a store in memory; the test decides what is answered, and how."""

from collections.abc import Callable
from typing import TypeVar

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.vanishing import RecentBrokers
from logfleet.controller.changes.store_writes import controls
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms import events
from logfleet.controller.terms.candidate import Candidate
from logfleet.controller.terms.operations import TermDecision
from logfleet.controller.terms.term import TermSettings
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes, ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.kinds.cluster import CONTROLLER, ControllerValue
from logfleet.metadata.store import (
    LeaseNotFound,
    Put,
    StoreRefused,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    absent,
)
from logfleet.replication.longest_log import SILENT
from logfleet.telemetry.decisions import Decision

E = TypeVar("E")
ANSWERED = (
    to_do.Write,
    to_do.GrantLease,
    to_do.RevokeLease,
    to_do.ReadReceipts,
    to_do.Compact,
    to_do.QueryLogEnds,
    to_do.Yield,
)
"""Effects that lead to an event."""
FATES = ("done", "lost before", "lost after", "late", "away", "refused")


class World:
    """The store, its image and the clock."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.image = ClusterImage()
        self.changes: list[Changes] = []
        self.now_ms = 0
        self.late: list[Txn] = []
        """What a member of the store holds, and may still apply."""

    def commit(self, txn: Txn) -> TxnResult:
        result, batch = self.keyspace.evaluate(txn)
        if batch is not None:
            self._apply(batch)
        return result

    def end_lease(self, lease: int) -> None:
        self.keyspace.end(lease)
        batch = self.keyspace.without_lease(lease)
        if batch is not None:
            self._apply(batch)

    def _apply(self, batch) -> None:
        self.keyspace.apply(batch)
        builder = ImageBuilder(self.image)
        for event in batch.events:
            builder.add(event)
        self.image, changes = builder.build(batch.revision)
        self.changes.append(changes)

    def register(self, broker_id: int, **fields) -> None:
        value = BROKER.encode(BrokerValue(f"i{broker_id}", (), **fields))
        self.commit(Txn(success=(Put(BROKER.key(broker_id), value),)))

    def vanish(self, broker_id: int) -> None:
        self.commit(Txn(success=(BROKER.delete(broker_id),)))

    def depose(self) -> None:
        self.commit(Txn(success=(CONTROLLER.delete(None),)))


class Node:
    """One candidate. pending: effects without their event. answers: by request."""

    def __init__(self, world: World, broker_id: int, **settings) -> None:
        self.world = world
        self.id = broker_id
        self.recent = RecentBrokers()
        value = ControllerValue(broker_id, f"i{broker_id}")
        self.candidate = Candidate(value, TermSettings(**settings), self.recent)
        self.pending: list[to_do.Effect] = []
        self.reports: list[to_do.Report] = []
        self.decisions: list[Decision] = []
        self.answers: dict[int, object] = {}
        self.wake_ms: int | None = None
        self.leases: set[int] = set()
        self._seen = 0

    @property
    def logged(self) -> list[str]:
        """What it logged."""
        return [report.event for report in self.reports]

    def one(self, kind: type[E]) -> E:
        """The only pending effect of that kind."""
        (found,) = [each for each in self.pending if isinstance(each, kind)]
        return found

    def step(self, event: events.Event) -> tuple[to_do.Effect, ...]:
        effects = self.candidate.step(event, events.Now(self.world.now_ms, self.world.now_ms))
        for effect in effects:
            match effect:
                case to_do.WakeAt(ms):
                    self.wake_ms = ms
                case to_do.Answer(number, answer):
                    assert number not in self.answers, "answered twice"
                    self.answers[number] = answer
                case to_do.NotController(number):
                    assert number not in self.answers, "answered twice"
                    self.answers[number] = effect
                case to_do.Report():
                    self.reports.append(effect)
                case to_do.Record(decision):
                    self.decisions.append(decision)
                case to_do.Fail(error):
                    raise error
            if isinstance(effect, ANSWERED):
                self.pending.append(effect)
        return effects

    def publish(self) -> None:
        """Its image is the newest one."""
        changes = Changes(everything=not self._seen)
        for each in self.world.changes[self._seen :]:
            changes.add(each)
        self._seen = len(self.world.changes)
        if changes.everything or changes.brokers:
            self.recent.record(self.world.image.brokers, self.world.now_ms)
        self.step(events.ImagePublished(self.world.image, changes))

    def tick(self) -> None:
        """If its timer is due, it goes off."""
        if self.wake_ms is not None and self.wake_ms <= self.world.now_ms:
            self.wake_ms = None
            self.step(events.TimePassed())

    def request(self, number: int, operation) -> None:
        self.step(events.OperationRequested(number, operation))

    def answer(self, effect: to_do.Effect, fate: str = "done") -> None:
        """The event of a pending effect. fate: of a write, one of FATES."""
        self.pending.remove(effect)
        world = self.world
        match effect:
            case to_do.Write(number, txn):
                self.step(events.WriteAnswered(number, self._write(txn, fate)))
            case to_do.GrantLease():
                lease = world.keyspace.grant()
                self.leases.add(lease)
                self.step(events.LeaseGranted(lease))
            case to_do.RevokeLease(lease):
                world.end_lease(lease)
                self.step(events.LeaseRevoked(lease))
            case to_do.ReadReceipts(epoch, prefix):
                self.step(events.ReceiptsRead(epoch, world.keyspace.range(prefix)))
            case to_do.Compact(epoch):
                self.step(events.Compacted(epoch))
            case to_do.QueryLogEnds(epoch, number, _, asked):
                found = {
                    place: {(each.id, each.epoch): SILENT for each in brokers}
                    for place, brokers in asked.items()
                }
                self.step(events.LogEndsReported(epoch, number, found))
            case to_do.Yield():
                self.step(events.TurnCame())

    def _write(self, txn: Txn, fate: str) -> TxnResult | Exception:
        match fate:
            case "lost before":
                return UnknownOutcome("not done")
            case "late":
                self.world.late.append(txn)
                return UnknownOutcome("not done yet")
            case "away":
                return StoreUnavailable("away")
            case "refused":
                return StoreRefused("permission denied")
        try:
            result = self.world.commit(txn)
        except LeaseNotFound as error:
            return error
        return UnknownOutcome("done") if fate == "lost after" else result

    def settle(self, *, publish: bool = True) -> None:
        """Answer everything, and what that leads to, until nothing is left to do."""
        for _ in range(1_000):
            if publish and self.candidate.image is not self.world.image:
                self.publish()
            elif self.pending:
                self.answer(self.pending[0])
            else:
                return
        raise AssertionError(f"it does not come to rest: {self.pending[:3]}, {self.logged[-5:]}")


def put(key: str, *compares, answer: object = "done") -> Callable[..., TermDecision[object]]:
    """An operation that writes a key once."""

    def decide(_image: ClusterImage, epoch: int, _layers: BrokerLayers) -> TermDecision[object]:
        txn = Txn((controls(epoch), absent(key), *compares), (Put(key, b"1"),))
        return TermDecision((txn,), answer)

    return decide
