"""The operator of the fleet: all brokers are replaced zone by zone, some are emptied, forgotten, and begin again with another disk.

What is done next is decided by the operator's own rules (`clusters.rollout`, `clusters.may_i`) and by the brokers' (`balance`,
`controller.brokers.unregistering`), from what is there at each look. Of the operator nothing but what stands in Kubernetes outlives its process.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

import msgspec
from logfleet.balance.load import BrokerLoad, Load, PartitionLoad
from logfleet.balance.planner import plan
from logfleet.balance.waves import next_moves
from logfleet.controller.brokers.readiness import not_ready, out_of_sync
from logfleet.metadata.image import ClusterImage
from logfleet.node.decisions import may_i_answer as brokers_word
from logfleet.replication.reassignment_steps import is_reassigning, target
from logfleet.resources.cluster import ClusterResource
from logfleet.types import BrokerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal
from logfleet_operator.clusters import may_i, rollout
from logfleet_operator.clusters.observed import ObservedCluster, Pod
from logfleet_operator.clusters.rollout import DeletePod, EvictPod
from logfleet_operator.names import BASE_LABEL, BROKER, COMPONENT_LABEL, ZONE_LABEL, Manifest

from broker_image.tests.sim import naming
from broker_image.tests.sim.broker import SimBroker
from broker_image.tests.sim.kernel import Future, Host, Process
from broker_image.tests.sim.node import Fleet

LOOK_MS = 400
LATE_MS = 300
"""Between a look and what is done about it."""
FRESH_MS = 1_000
AWAY_MS = 300
ANSWER_MS = 3_000
RANGE = 100
"""Broker ids of a StatefulSet, as the operator has them."""
CLUSTER = msgspec.convert(
    {
        "apiVersion": "logfleet.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "f", "namespace": "n"},
        "spec": {
            "pools": [{"name": "p", "replicas": 3, "storage": {"size": "1Gi"}}],
            "metadata": {},
        },
    },
    ClusterResource,
)


class Operating:
    """The operator, and what Kubernetes keeps for it: revisions of pods, and marks on the volume claims of brokers that are to be emptied."""

    def __init__(self, fleet: Fleet, brokers: Mapping[int, SimBroker]) -> None:
        self.host = Host("operator")
        self._fleet, self._kernel, self._brokers = fleet, fleet.kernel, brokers
        self._draining: set[int] = set()
        self._revision = 0
        self._revisions = dict.fromkeys(brokers, 0)
        self._ends: dict[int, int] = {}  # pods that were deleted: the life in which they were
        self._ready_since: dict[int, int] = {}
        self._is_at_work = False
        self._answered: list[ClusterImage] = []  # what brokers saw that answered, at this look
        self._zones: dict[str, list[SimBroker]] = {}
        for broker in brokers.values():
            self._zones.setdefault(broker.rack, []).append(broker)

    # what is asked of it

    def roll(self) -> None:
        """Every pod is to be of another revision."""
        self._revision += 1
        self.start()

    def drain(self, broker_id: int) -> None:
        self._draining.add(broker_id)
        self.start()

    def die(self, ms: int) -> None:
        """Its process; another one begins after that time."""
        self._kernel.kill(self.host)
        self._is_at_work = False
        self._kernel.at(ms, self._fleet.store.host, "operator", self.start)

    def start(self) -> None:
        if not self._is_at_work:
            self._is_at_work = True
            self._kernel.spawn(self.host, "operate", self._working())

    @property
    def is_done(self) -> bool:
        return self._has_rolled and not self._draining

    @property
    def waits_for_the_lost(self) -> bool:
        """All that is left is to empty brokers of what has no leader, which no waiting cures."""
        partitions = self._fleet.partitions_in(self._fleet.store.image)
        held = [each for each in partitions if not self._draining.isdisjoint(each.replicas)]
        return self._has_rolled and bool(held) and not any(each.has_leader for each in held)

    @property
    def _has_rolled(self) -> bool:
        old = [each for each in self._revisions.values() if each != self._revision]
        return not old and not self._ends

    def state(self) -> str:
        return f"revision {self._revision}: {self._revisions}, draining {sorted(self._draining)}"

    def _working(self) -> Process:
        while not self.is_done:
            yield LOOK_MS + self._kernel.draw("operate.pause", LOOK_MS)
            self._see_new_pods()
            yield from self._roll()
            for broker_id in sorted(self._draining):
                yield from self._empty(broker_id)
        self._is_at_work = False

    # a roll

    def _roll(self) -> Process:
        observed = self._observed()
        self._answered.clear()
        leave = asyncio.run(may_i.ask(self, CLUSTER, observed))
        sets = [name for _, name in observed.objects]
        planned = rollout.plan_rollout(dataclasses.replace(observed, leave=leave), BROKER, sets)
        if planned is None or not planned.actions:
            return
        going = [self._broker_of(action.name) for action in planned.actions]
        is_asked = all(self._is_ready(each) for each in going)
        images = self._answered or ([self._asked(going).image] if is_asked else [])
        yield 1 + self._kernel.draw("operate.late", LATE_MS)
        gone = set()
        for broker, action in zip(going, planned.actions, strict=True):
            if not self._carry_out(broker, action):
                break
            gone.add(broker.id)
        if is_asked and gone:
            self._fleet.checker.allowed(images[-1], gone, only_curable=len(gone) == 1)
        if len(gone) > 1:
            self._kernel.sometimes("several brokers of a zone were replaced together")

    def _carry_out(self, broker: SimBroker, action: EvictPod | DeletePod) -> bool:
        """Whether Kubernetes does it: the budget lets one be evicted beside others that are all ready."""
        others = [each for each in self._brokers.values() if each is not broker]
        if action.uid != str(broker.host.life) or broker.id in self._ends:
            return False
        if isinstance(action, EvictPod) and not all(self._is_ready(each) for each in others):
            return False
        self._kernel.note("operator", "replaces %s", broker.host.name)
        self._ends[broker.id] = broker.host.life if broker.host.is_up else -1
        broker.leave(AWAY_MS)
        return True

    def _see_new_pods(self) -> None:
        """Pods that were deleted and are there again, of the revision that is wanted."""
        for broker_id, life in list(self._ends.items()):
            broker = self._brokers[broker_id]
            if broker.host.is_up and broker.host.life != life:
                del self._ends[broker_id]
                self._revisions[broker_id] = self._revision
                self._ready_since.pop(broker_id, None)
                if self._has_rolled:
                    self._kernel.sometimes("all brokers were replaced")

    def _observed(self) -> ObservedCluster:
        objects = {("StatefulSet", f"f-{zone}"): self._stateful_set(zone) for zone in self._zones}
        pods = [
            self._pod(broker, f"f-{zone}-{ordinal}")
            for zone, members in self._zones.items()
            for ordinal, broker in enumerate(members)
            if broker.host.is_up or broker.id not in self._ends
        ]
        return ObservedCluster(objects, {}, tuple(pods), (), ())

    def _stateful_set(self, zone: str) -> Manifest:
        base = RANGE * list(self._zones).index(zone)
        labels = {ZONE_LABEL: zone, COMPONENT_LABEL: BROKER, BASE_LABEL: str(base)}
        status = {"observedGeneration": 1, "updateRevision": str(self._revision)}
        metadata = {"name": f"f-{zone}", "generation": 1, "labels": labels}
        return {
            "metadata": metadata,
            "spec": {"replicas": len(self._zones[zone])},
            "status": status,
        }

    def _pod(self, broker: SimBroker, name: str) -> Pod:
        is_ready = self._is_ready(broker)
        if not is_ready:
            self._ready_since.pop(broker.id, None)
        since = self._ready_since.setdefault(broker.id, self._kernel.now) if is_ready else 0
        return Pod(
            name,
            uid=str(broker.host.life),
            component=BROKER,
            revision=str(self._revisions[broker.id]),
            ready=is_ready,
            deleting=broker.id in self._ends,
            stuck="",
            node=broker.host.name,
            host_ip="",
            fresh=is_ready and self._kernel.now - since < FRESH_MS,
        )

    def _broker_of(self, pod: str) -> SimBroker:
        _, zone, ordinal = pod.split("-")
        return self._zones[zone][int(ordinal)]

    def _is_ready(self, broker: SimBroker) -> bool:
        """As its /readyz says."""
        topic = broker.image.topic(naming.TOPIC)
        if not broker.host.is_up or broker.host.is_paused or broker.epoch is None or topic is None:
            return False
        me = broker.image.brokers.get(broker.id)
        return not_ready(me, BrokerEpoch(broker.epoch), out_of_sync(topic, broker.id)) is None

    def _asked(self, going: Sequence[SimBroker]) -> SimBroker:
        """Who would be asked about these, where nobody was: one that stays."""
        ready = [each for each in self._brokers.values() if self._is_ready(each)]
        return min(ready, key=lambda each: (each in going, each.rack, each.id))

    def _numbered(self, number: int) -> SimBroker:
        """By the id that the operator gives it: base of its set, and ordinal."""
        zone, ordinal = divmod(number, RANGE)
        return list(self._zones.values())[zone][ordinal]

    # what brokers answer (`clusters.may_i.Deciders`)

    async def may_stop(
        self, addresses: Sequence[str], brokers: Sequence[int]
    ) -> may_i.MayIAnswer | None:
        for address in addresses:
            image = self._broker_of(address.partition(".")[0]).image
            ids = [str(self._numbered(each).id) for each in brokers]
            try:
                answer = brokers_word.answer(image, ids, [])
            except brokers_word.WrongMayIRequest:
                continue
            self._answered.append(image)
            return msgspec.convert(msgspec.to_builtins(answer), may_i.MayIAnswer)
        return None

    async def serving(self, _bootstrap: str) -> frozenset[int] | None:
        ready = [each for each in self._brokers.values() if self._is_ready(each)]
        if not ready:
            return None
        image = ready[self._kernel.draw("operate.asked", len(ready))].image
        active = {each.id for each in image.brokers.values() if not each.is_fenced}
        return frozenset(
            RANGE * number + ordinal
            for number, members in enumerate(self._zones.values())
            for ordinal, broker in enumerate(members)
            if broker.id in active
        )

    # emptying

    def _empty(self, broker_id: int) -> Process:
        broker, controller = self._brokers[broker_id], self._fleet_controller()
        if controller is None:
            return
        if broker.is_gone:
            yield from self._forget(broker, controller)
            return
        partitions = self._fleet.partitions_in(controller.image)
        if any(broker_id in each.replicas for each in partitions):
            self._move_away(broker_id, controller)
        elif partitions:
            self._kernel.sometimes("a broker was emptied")
            broker.is_gone = True
            broker.leave(AWAY_MS)

    def _move_away(self, broker_id: int, controller: SimBroker) -> None:
        image = controller.image
        partitions = self._fleet.partitions_in(image)
        load = Load(
            tuple(
                BrokerLoad(
                    each.id, each.rack, None, each.id not in self._draining, each.id == broker_id
                )
                for each in image.brokers.values()
                if not each.is_fenced or each.id == broker_id
            ),
            tuple(
                PartitionLoad(naming.TOPIC, index, target(each))
                for index, each in enumerate(partitions)
            ),
        )
        planned = plan(load)
        can_move = any(partitions[each.index].has_leader for each in planned.moves)
        if not can_move and planned.unmet and len(image.brokers) == len(self._brokers):
            self._kernel.sometimes("a broker could not be emptied, and stays")
            self._draining.discard(broker_id)
        for move in next_moves(planned.moves, ()):
            if not is_reassigning(partitions[move.index]):
                controller.controlling.reassign(move.index, move.after)

    def _forget(self, broker: SimBroker, controller: SimBroker) -> Process:
        answer = Future()
        controller.controlling.unregister(broker.id, answer.resolve)
        refusal = yield self._kernel.expire(self.host, answer, ANSWER_MS, False)
        unknown = ErrorCode.BROKER_ID_NOT_REGISTERED
        if refusal is None or (isinstance(refusal, Refusal) and refusal.error is unknown):
            self._kernel.sometimes("a broker was forgotten, and began again")
            broker.restart()
        elif any(
            broker.id in each.replicas for each in self._fleet.partitions_in(controller.image)
        ):
            self._kernel.sometimes("a broker that had gone was given replicas, and came back")
        else:
            return
        broker.is_gone = False
        self._draining.discard(broker.id)
        broker.start_in(0)

    def _fleet_controller(self) -> SimBroker | None:
        believing = self._fleet.controllers
        return self._brokers[max(believing, key=believing.__getitem__)] if believing else None
