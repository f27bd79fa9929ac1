"""A simulated broker as a candidate for controller: the shell of `logfleet.controller.terms`.

Every decision is the machine's. This shell passes on what the simulated store, network and clock
do, and reports to the checker what a controller has decided on.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.unregistering import unregister
from logfleet.controller.changes.election_writes import (
    NO_LOG_ENDS,
    LogEndsByPartition,
    ReplicasToAsk,
)
from logfleet.controller.changes.reassignment_requests import reassign
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.changes.topics import NewTopic, TopicCreation, create_topic, delete_topic
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms import events
from logfleet.controller.terms.candidate import Candidate, Finishing
from logfleet.controller.terms.candidate import Controlling as InTerm
from logfleet.controller.terms.log_ends_query import Ask, LogEndsQuery
from logfleet.controller.terms.longest_logs import CAUSE
from logfleet.controller.terms.operations import Operation, TermDecision
from logfleet.controller.terms.term import TermSettings
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.kinds.brokers import DRAINING, FENCE, FenceValue
from logfleet.metadata.kinds.cluster import ControllerValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Put, StoreUnavailable, TxnResult
from logfleet.wire.refusal import Refusal

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Future, Process
from broker_image.tests.sim.messages import LogEnds
from broker_image.tests.sim.net import Disconnected
from broker_image.tests.sim.node import LEASE_TTL_S, Node

KEEPALIVE_MS = 1_000
BALANCE_S = 3
"""Leadership goes back to preferred replicas sooner than anywhere else."""
SETTLED_MS = 500
LABELS = {
    "decision_repeated": "a controller decided too late",
    "elections_held": "elections were held",
    "log_ends_asked": "brokers were asked how far their logs reach",
    "broker_kept": "a broker had to wait before it left",
}
"""What the machine reports, as the simulation counts it."""


class Controlling:
    """epoch: of the term that it believes in, None outside of one."""

    def __init__(self, node: Node) -> None:
        self.epoch: int | None = None
        self._node = node
        self._store = node.fleet.store
        self._kernel = node.fleet.kernel
        incarnation = f"{node.host.name}-{node.host.life}"
        every_s = BALANCE_S + self._kernel.draw("schedule.balance", BALANCE_S)
        static = {"leader.imbalance.check.interval.seconds": str(every_s)}
        settings = TermSettings(static, settled_ms=SETTLED_MS)
        self._candidate = Candidate(ControllerValue(node.id, incarnation), settings, node.recent)
        self._lease: int | None = None
        self._log_ends: LogEndsByPartition = NO_LOG_ENDS
        self._answers: dict[int, Callable[[object], None]] = {}
        self._requested = self._timers = 0

    def on_image(self) -> None:
        """The node has a newer image."""
        image, generations = self._node.image, self._node.fleet.generations
        changed = changes(self._candidate.image, image, generations)
        self._step(events.ImagePublished(image, changed))

    # what is asked of it

    def reassign(self, index: int, wanted: tuple[int, ...] | None) -> None:
        """As AlterPartitionReassignments asks for it."""

        def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[object]:
            answer = reassign(image, naming.TOPIC, index, wanted, may_change_factor=True)
            return _decision(epoch, [answer] if isinstance(answer, Step) else [])

        self._ask(decide)

    def unregister(self, broker_id: int, answer: Callable[[object], None]) -> None:
        """As UnregisterBroker asks for it.

        answer: gets the refusal, or None once it is written, but not what is in doubt.
        """

        def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[object]:
            steps = unregister(image, broker_id)
            if isinstance(steps, Refusal):
                return TermDecision((), steps)
            return _decision(epoch, steps)

        self._ask(decide, answer)

    def create_again(self, topic_id: bytes) -> None:
        """Delete the topic, or make one with this id if none is there."""
        fleet = self._node.fleet

        def decide(
            image: ClusterImage, epoch: int, layers: BrokerLayers
        ) -> TermDecision[object] | Refusal:
            topic = image.topic(naming.TOPIC)
            is_used = topic_id != naming.topic_id(fleet.generations)
            if is_used or (topic is not None and topic.id == topic_id):
                return TermDecision((), None)  # ids are used once
            if topic is not None:
                return TermDecision((delete_topic(epoch, topic),), None)
            new = NewTopic(
                naming.TOPIC,
                topic_id,
                0,
                assignments=tuple(enumerate(fleet.assignment)),
                configs=fleet.topic_configs(fleet.settings.min_isr),
            )
            made = create_topic(image, epoch, new, layers)
            return TermDecision(made.txns, made) if isinstance(made, TopicCreation) else made

        def answered(answer: object) -> None:
            if isinstance(answer, TopicCreation):
                self._kernel.sometimes("a topic was created again")

        self._ask(decide, answered)

    def _ask(
        self, operation: Operation[object], answer: Callable[[object], None] = lambda _: None
    ) -> None:
        self._requested += 1
        self._answers[self._requested] = answer
        self._step(events.OperationRequested(self._requested, operation))

    # the shell

    def _step(self, event: events.Event) -> None:
        kernel = self._kernel
        effects = self._candidate.step(event, events.Now(kernel.now, kernel.wall_ms))
        if isinstance(event, events.WriteAnswered) and isinstance(event.outcome, TxnResult):
            is_done = any(isinstance(each, to_do.Committed) for each in effects)
            if is_done and not event.outcome.succeeded:
                kernel.sometimes("a controller knew a write by its receipt")
        self._follow_term()
        for effect in effects:
            self._do(effect)

    def _do(self, effect: to_do.Effect) -> None:
        node, host = self._node, self._node.host
        match effect:
            case to_do.Write():
                self._check(effect)
                self._call(
                    self._store.txn(host, effect.txn),
                    partial(events.WriteAnswered, effect.number),
                )
            case to_do.GrantLease():
                self._call(self._store.grant_lease(host, LEASE_TTL_S), self._granted)
            case to_do.RevokeLease(lease):
                self._lease = None
                self._call(self._store.revoke(host, lease), lambda _: events.LeaseRevoked(lease))
            case to_do.ReadReceipts(epoch, prefix):
                self._call(
                    self._store.range(host, prefix),
                    lambda found: events.ReceiptsRead(epoch, found or StoreUnavailable()),
                )
            case to_do.QueryLogEnds(epoch, number, _, asked):
                query = self._querying(epoch, number, asked)
                self._kernel.spawn(host, "ctl.logs", query)
            case to_do.WakeAt(ms):
                self._timers += 1
                if ms is not None:
                    wait_ms = max(ms - self._kernel.now, 0)
                    self._kernel.at(wait_ms, host, "ctl.timer", self._wake, self._timers)
            case to_do.Yield():
                self._kernel.at(0, host, "ctl.turn", self._step, events.TurnCame())
            case to_do.Answer(number, answer):
                self._answers.pop(number)(answer)
            case to_do.NotController(number):
                del self._answers[number]
            case to_do.Report(_, event, facts, error):
                if error is not None:
                    raise error
                node.note("%s %s", event, facts)
                if event in LABELS:
                    self._kernel.sometimes(LABELS[event])
            case to_do.Fail(error):
                raise error
            case to_do.Committed() | to_do.Record() | to_do.Compact():
                pass

    def _call(self, future: Future, then: Callable[[Any], events.Event]) -> None:
        def calling() -> Process:
            value = yield future
            self._step(then(value))

        self._kernel.spawn(self._node.host, "ctl", calling())

    def _granted(self, lease: int | None) -> events.Event:
        if lease is None:
            return events.LeaseGranted(StoreUnavailable("nobody answered"))
        self._lease = lease
        self._kernel.spawn(self._node.host, "ctl.lease", self._keeping(lease))
        return events.LeaseGranted(lease)

    def _keeping(self, lease: int) -> Process:
        while self._lease == lease:
            kept = yield self._store.keep_alive(self._node.host, lease)
            if kept is False and self._lease == lease:
                self._step(events.LeaseLost(lease))
                return
            yield KEEPALIVE_MS

    def _wake(self, timer: int) -> None:
        if timer == self._timers:
            self._step(events.TimePassed())

    def _querying(self, epoch: int, number: int, asked: ReplicasToAsk) -> Process:
        """Ask brokers for the ends of their logs (`controller.running.log_ends`)."""
        kernel, host, net = self._kernel, self._node.host, self._node.fleet.net
        query = LogEndsQuery(asked, kernel.now)
        reported = Future()

        def asking(ask: Ask) -> Process:
            indexes = tuple(naming.number(*each) for each in ask.partitions)
            answer = yield net.call(host, f"b{ask.member[0]}", LogEnds(indexes))
            if not isinstance(answer, Disconnected):
                places = {each: (naming.topic_of(each), naming.index_of(each)) for each in answer}
                ends = [(places[each], end) for each, end in answer.items()]
                query.reported(ask.member, ends, kernel.now)
            query.ended(ask.member, kernel.now)
            reported.resolve()

        while not query.is_over(kernel.now):
            for ask in query.asks(kernel.now):
                kernel.spawn(host, "ctl.ask", asking(ask))
            reported = Future()
            yield kernel.expire(host, reported, query.due_ms - kernel.now, None)
        self._log_ends = query.found
        self._step(events.LogEndsReported(epoch, number, query.found))

    # what the checker learns

    def _follow_term(self) -> None:
        term, fleet = self._candidate.term, self._node.fleet
        epoch = None if term is None else term.epoch
        if epoch == self.epoch:
            return
        if self.epoch is not None:
            del fleet.controllers[self._node.id]
        self.epoch = epoch
        if epoch is not None:
            fleet.controllers[self._node.id] = epoch
            if len(fleet.controllers) > 1:
                self._kernel.sometimes("two brokers believed that they controlled")

    def _check(self, write: to_do.Write) -> None:
        """Report to the checker what a decision rests on, when it is first sent."""
        state = self._candidate.state
        if write.attempt > 1 or not isinstance(state, InTerm | Finishing):
            return
        checker = self._node.fleet.checker
        by_length = write.cause == CAUSE
        checker.answered[state.term.epoch] = self._log_ends if by_length else NO_LOG_ENDS
        for put in write.txn.success:
            if isinstance(put, Put) and put.key.startswith(FENCE.prefix):
                fence = msgspec.json.decode(put.value, type=FenceValue)
                if fence.state == DRAINING:
                    going = {int(put.key.removeprefix(FENCE.prefix))}
                    checker.allowed(self._candidate.image, going, only_curable=True)


def changes(before: ClusterImage, after: ClusterImage, generations: int) -> Changes:
    """What may differ between two images of the one topic's fleet."""
    ids = map(naming.topic_id, range(generations + 1))
    parts = {
        "brokers": (before.brokers, before.fences, before.suspects)
        != (after.brokers, after.fences, after.suspects),
        "broker_configs": before.broker_configs != after.broker_configs,
        "deleted": before.deleted != after.deleted,
        "controller": before.controller != after.controller,
    }
    return Changes(
        everything=not before.revision,
        topics={each for each in ids if before.entries.get(each) is not after.entries.get(each)},
        parts={part for part, is_changed in parts.items() if is_changed},
    )


def _decision(epoch: int, steps: Iterable[Step]) -> TermDecision[object]:
    return TermDecision(pack(epoch, steps), None, in_any_order=True)
