"""How a simulated broker stands for controller, and what it does as such: the order of `controller.running.term`, the rules of `logfleet.controller`."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers import fencing, leaving
from logfleet.controller.brokers.unregistering import unregister
from logfleet.controller.brokers.vanishing import HELD_MS_MAX, Hold, hold
from logfleet.controller.changes import election_writes, store_writes
from logfleet.controller.changes.reassignment_requests import reassign
from logfleet.controller.changes.topics import NewTopic, TopicCreation, create_topic, delete_topic
from logfleet.metadata import keys
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.keys import ControllerValue
from logfleet.metadata.packing import Step
from logfleet.metadata.receipts import Receipts
from logfleet.metadata.store import (
    Delete,
    Get,
    LeaseNotFound,
    Put,
    Txn,
    absent,
    created_at,
)
from logfleet.replication.longest_log import SILENT
from logfleet.replication.partition_state import Member
from logfleet.wire.refusal import Refusal

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Future, Process
from broker_image.tests.sim.messages import LogEnds
from broker_image.tests.sim.net import Disconnected
from broker_image.tests.sim.node import Node

LEASE_TTL_S = 3
CATCH_UP_MS = 2_000
ASK_MS_MAX = 2_000
ASK_AGAIN_MS = 1_000
PAUSE_MS = 100
BALANCE_MS = 3_000


class Controlling:
    """term: epoch of the term that it believes in, None outside of one."""

    def __init__(self, node: Node) -> None:
        self.term: int | None = None
        self._receipts = Receipts(0, node.id, ())
        self._node = node
        self._waiting: list[Future] = []
        self._hold: Hold | None = None
        self._operations: deque[Callable[[int], Process]] = deque()

    @property
    def _image(self) -> ClusterImage:
        return self._node.image

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.resolve()

    def _news(self, ms: int | None = None) -> Future:
        """Resolves with the next image, or after that time."""
        news = Future()
        self._waiting.append(news)
        if ms is not None:
            self._node.fleet.kernel.expire(self._node.host, news, ms, None)
        return news

    def standing(self) -> Process:
        """Stand whenever there is no controller, control while elected, for ever."""
        node, store = self._node, self._node.fleet.store
        incarnation = f"{node.host.name}-{node.host.life}"
        value = keys.encode(ControllerValue(node.id, incarnation))
        while True:
            controller = self._image.controller
            if not self._image.revision or node.epoch is None:
                yield self._news()
                continue
            if controller is not None:
                if controller.incarnation == incarnation:  # won by a write whose answer was lost
                    held = created_at(keys.CONTROLLER, controller.epoch)
                    yield from store.settle(node.host, Txn([held], [Delete(keys.CONTROLLER)]))
                yield self._news()
                continue
            lease = yield store.grant_lease(node.host, LEASE_TTL_S)
            if lease is None:
                yield 500
                continue
            put = Put(keys.CONTROLLER, value, lease)
            claim = Txn([absent(put.key)], [put], [Get(put.key)])
            result, _ = yield from store.settle(node.host, claim)
            if not isinstance(result, LeaseNotFound):
                found = None if result.succeeded else result.reads[0]
                if found is None or found.lease == lease:
                    epoch = result.revision if found is None else found.create_revision
                    self.term = epoch
                    node.fleet.kernel.spawn(node.host, "ctl.lease", self._holding(lease, epoch))
                    yield from self._control(epoch)
                    self.term = None
                    del node.fleet.controllers[node.id]
                    node.note("controls no more (epoch %s)", epoch)
            yield store.revoke(node.host, lease)

    def _holding(self, lease: int, epoch: int) -> Process:
        while self.term == epoch:
            kept = yield self._node.fleet.store.keep_alive(self._node.host, lease)
            if kept is False and self.term == epoch:
                self.term = None
                self.wake()
            yield 1_000

    def _control(self, epoch: int) -> Process:
        self._node.note("controls, epoch %s", epoch)
        believing = self._node.fleet.controllers
        believing[self._node.id] = epoch
        if len(believing) > 1:
            self._node.fleet.kernel.sometimes("two brokers believed that they controlled")
        held = None
        while held is None and self._controls(epoch):
            held = yield self._node.fleet.store.range(self._node.host, keys.receipts(self._node.id))
        if held is None:
            return
        self._receipts = Receipts(epoch, self._node.id, held.items)
        self._node.fleet.kernel.spawn(self._node.host, "ctl.balance", self._balancing(epoch))
        self._node.fleet.kernel.spawn(self._node.host, "ctl.logs", self._asking(epoch))
        while self._controls(epoch):
            seen = self._image.revision
            if seen >= epoch and (yield from self._converge(epoch)):
                if self._operations:
                    yield from self._operations.popleft()(epoch)
                elif self._image.revision == seen:
                    yield self._news(HELD_MS_MAX if self._is_held() else None)
            elif self._controls(epoch) and self._image.revision == seen:
                yield self._news(CATCH_UP_MS)

    def _balancing(self, epoch: int) -> Process:
        """Give leadership back to preferred replicas, sooner than anybody would."""
        while True:
            yield BALANCE_MS + self._node.fleet.kernel.draw("schedule.balance", BALANCE_MS)
            topic = self._image.topic(naming.TOPIC)
            if not self._controls(epoch):
                return
            if topic is not None:
                settled = list(election_writes.imbalances(self._image, topic))
                yield from self._write(epoch, election_writes.balance_steps(self._image, settled))

    def reassign(self, index: int, wanted: tuple[int, ...] | None) -> None:
        """As AlterPartitionReassignments asks for it."""
        self._ask(lambda epoch: self._reassign(epoch, index, wanted))

    def _reassign(self, epoch: int, index: int, wanted: tuple[int, ...] | None) -> Process:
        answer = reassign(self._image, naming.TOPIC, index, wanted, may_change_factor=True)
        if isinstance(answer, Step):
            yield from self._write(epoch, [answer])

    def unregister(self, broker_id: int, answer: Callable[[Refusal | None], None]) -> None:
        """As UnregisterBroker asks for it. answer: why not, or None once it is written; what became of a write that is in doubt nobody hears."""
        self._ask(lambda epoch: self._unregister(epoch, broker_id, answer))

    def _unregister(
        self, epoch: int, broker_id: int, answer: Callable[[Refusal | None], None]
    ) -> Process:
        steps = unregister(self._image, broker_id)
        if isinstance(steps, Refusal):
            answer(steps)
        elif (yield from self._write(epoch, steps)):
            answer(None)

    def make_anew(self, topic_id: bytes) -> None:
        """Delete the topic, or make one with this id if none is there."""
        self._ask(partial(self._make_anew, topic_id=topic_id))

    def _make_anew(self, epoch: int, *, topic_id: bytes) -> Process:
        fleet, topic = self._node.fleet, self._image.topic(naming.TOPIC)
        if topic_id != naming.topic_id(fleet.generations):
            return  # it waited here until a topic had been made after that one: ids are used once
        if topic is not None and topic.id == topic_id:
            return
        if topic is not None:
            yield from self._commit([delete_topic(epoch, topic)])
            return
        new = NewTopic(
            naming.TOPIC,
            topic_id,
            0,
            assignments=tuple(enumerate(fleet.assignment)),
            configs=fleet.topic_configs(fleet.settings.min_isr),
        )
        made = create_topic(self._image, epoch, new, BrokerLayers({}, {}))
        if isinstance(made, TopicCreation) and (yield from self._commit(made.txns)):
            fleet.kernel.sometimes("a topic was made anew")

    def _ask(self, operation: Callable[[int], Process]) -> None:
        """Operations are done one at a time, between looks, each on an image that holds everything written before (`Term`)."""
        self._operations.append(operation)
        self.wake()

    def _controls(self, epoch: int) -> bool:
        image = self._image
        replaced = image.controller is None or image.controller.epoch != epoch
        return self.term == epoch and not (image.revision >= epoch and replaced)

    def _is_held(self) -> bool:
        """Whether elections wait for brokers that vanished to register again."""
        node, before = self._node, self._hold
        now = node.fleet.kernel.now
        self._hold = hold(before, node.recent.within(now), self._image.brokers, now)
        if self._hold is not None and before is None:
            node.note("holds elections: %s", self._hold.why)
            node.fleet.kernel.sometimes("elections were held")
        return self._hold is not None and now < self._hold.until_ms

    def _converge(self, epoch: int) -> Process:
        """Fence who is gone, take them out of all partitions, let in who is new. Whether all of it was written, or is held."""
        if self._is_held():
            return True
        if not (yield from self._write(epoch, fencing.fence_steps(self._image))):
            return False
        if self._is_held():
            return True
        image = self._image
        new = fencing.newcomers(image)
        changed = self._elections(epoch)
        written = yield from self._write(epoch, changed)
        if not _is_swept(new, changed, written=written):
            return False
        if new:
            if not (yield from self._write(epoch, fencing.admission_steps(image))):
                return False
            if not (yield from self._write(epoch, self._elections(epoch))):
                return False
        decided: list[Step] = []
        for broker_id, step in leaving.decide(self._image):
            if isinstance(step, Step):
                self._node.fleet.checker.allowed(self._image, {broker_id}, only_curable=True)
                decided.append(step)
            else:
                self._node.fleet.kernel.sometimes("a broker had to wait before it left")
        return (yield from self._write(epoch, decided))

    def _asking(self, epoch: int) -> Process:
        """Ask how far logs reach where nobody may lead cleanly, and elect the longest (`controller.running.longest_logs`)."""
        fleet = self._node.fleet
        while self._controls(epoch):
            image = self._image
            topic = image.topic(naming.TOPIC)
            asked: election_writes.ReplicasToAsk = {}
            if topic is not None and not fencing.newcomers(image):
                asked = election_writes.replicas_to_ask(image, topic, BrokerLayers({}, {}))
            if asked:
                fleet.kernel.sometimes("brokers were asked how far their logs reach")
                answered = yield from self._ask_log_ends(asked)
                self._ask(partial(self._elect_longest, answered=answered))
            yield self._news(ASK_AGAIN_MS if asked else None)

    def _ask_log_ends(self, asked: election_writes.ReplicasToAsk) -> Process:
        """The answers, SILENT for who gave none in time."""
        fleet, host = self._node.fleet, self._node.host
        found = {
            place: dict.fromkeys([(broker.id, broker.epoch) for broker in brokers], SILENT)
            for place, brokers in asked.items()
        }
        until_ms = fleet.kernel.now + ASK_MS_MAX
        while True:
            left: dict[Member, list[int]] = {}
            for (topic_id, index), ends in found.items():
                for member in [each for each in ends if ends[each] == SILENT]:
                    left.setdefault(member, []).append(naming.number(topic_id, index))
            if not left or fleet.kernel.now >= until_ms:
                return found
            calls = {
                member: fleet.net.call(host, f"b{member[0]}", LogEnds(tuple(indexes)))
                for member, indexes in left.items()
            }
            for member, call in calls.items():
                answer = yield call
                if not isinstance(answer, Disconnected):
                    for each, end in answer.items():
                        found[naming.topic_of(each), naming.index_of(each)][member] = end
            yield PAUSE_MS

    def _elect_longest(
        self, epoch: int, *, answered: election_writes.LogEndsByPartition
    ) -> Process:
        yield from self._write(epoch, self._elections(epoch, answered))

    def _elections(
        self, epoch: int, answered: election_writes.LogEndsByPartition = election_writes.NO_LOG_ENDS
    ) -> list[Step]:
        image, fleet = self._image, self._node.fleet
        topic = image.topic(naming.TOPIC)
        if topic is None:
            return []
        steps = election_writes.election_steps(
            image,
            topic,
            BrokerLayers({}, {}),
            may_be_unclean=not fencing.newcomers(image),
            preferred=election_writes.preferences(image, fleet.kernel.wall_ms),
            answered=answered,
        )
        fleet.checker.answered[epoch] = answered
        return list(steps)

    def _write(self, epoch: int, steps: Iterable[Step]) -> Process:
        """Commit them and see them in the image; False if something had changed under the decision."""
        return (yield from self._commit(store_writes.pack(epoch, steps)))

    def _commit(self, txns: Iterable[Txn]) -> Process:
        fleet, receipts, epoch = self._node.fleet, self._receipts, self.term
        for txn in txns:
            receipt = receipts.take()
            result, unanswered = yield from fleet.store.settle(self._node.host, receipt.on(txn))
            was_done = receipt.settled(result, unanswered=unanswered)
            revision = receipt.revision
            receipts.give_back(receipt)
            if not was_done:
                fleet.kernel.sometimes("a controller decided too late")
                return False
            if not result.succeeded:
                fleet.kernel.sometimes("a controller knew a write by its receipt")
            waited = fleet.kernel.now
            while self._image.revision < revision:
                late = fleet.kernel.now - waited > CATCH_UP_MS
                if epoch is None or not self._controls(epoch) or late:
                    return False
                yield self._news(500)
        return True


def _is_swept(new: list[Broker], changed: list[Step], *, written: bool) -> bool:
    """Whether to go on. Newcomers are let in by an image in which nothing is left to change."""
    return written and not (new and changed)
