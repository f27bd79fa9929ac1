"""How a simulated broker goes on leading while the store does not answer it: the shell of `logfleet.replication.failsafe`."""

from logfleet.replication import failsafe
from logfleet.replication.failsafe import (
    CHECK_S,
    AskPeers,
    Effect,
    Extend,
    Resume,
    SuspendUnfollowed,
)
from logfleet.replication.leader import LeaderReplicas
from logfleet.types import BrokerEpoch, LeaderEpoch

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Future, Process
from broker_image.tests.sim.leading import Leading
from broker_image.tests.sim.messages import IsStoreSilent
from broker_image.tests.sim.node import LEASE_TTL_S, Node


class Lease:
    """The lease of the node's registration."""

    ttl_s = LEASE_TTL_S

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def deadline_s(self) -> float:
        return self._node.deadline_ms / 1_000


class Failsafe:
    """`checking` runs for as long as the process lives."""

    def __init__(self, node: Node, leading: Leading) -> None:
        self._node = node
        self._leading = leading
        self._rules = failsafe.Failsafe()
        self._lease = Lease(node)
        self._epoch: int | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the store has not answered this broker's keepalives for longer than is usual."""
        node = self._node
        return (
            node.is_registered and failsafe.silent_s(node.fleet.kernel.now / 1_000, self._lease) > 0
        )

    def confirms(self, asked: IsStoreSilent) -> bool:
        known = self._node.image.brokers.get(asked.broker)
        stands = known is not None and known.epoch == asked.epoch and not known.is_fenced
        return self.is_silent and stands

    def checking(self) -> Process:
        while True:
            yield int(1_000 * CHECK_S)
            self._check()

    def _check(self) -> None:
        node, now_ms = self._node, self._node.fleet.kernel.now
        epoch = node.epoch if node.is_registered else None
        if epoch != self._epoch:
            self._epoch = epoch
            if epoch is None:
                self._rules.unregistered()
            else:
                self._rules.registered()
        lease = None if epoch is None else self._lease
        peers = failsafe.peers_of(node.image, node.id)
        effects = self._rules.check(now_ms / 1_000, now_ms, lease, peers)
        if any(isinstance(each, Extend) for each in effects):
            node.fleet.kernel.sometimes("most brokers heard nothing of the store")
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        node, kernel = self._node, self._node.fleet.kernel
        match effect:
            case AskPeers(peers):
                for broker_id in peers:
                    kernel.spawn(node.host, "ask", self._asking(broker_id))
            case Resume(since_ms):
                self._resume(since_ms)
            case SuspendUnfollowed(since_ms):
                for after in self._rules.judged(self._suspend(since_ms)):
                    self._carry_out(after)
            case Extend(until_s):
                node.extended_ms = round(1_000 * until_s)

    def _suspend(self, since_ms: int) -> int:
        kernel, suspended = self._node.fleet.kernel, 0
        for replica in self._leading.replicas.values():
            if replica.leading is not None:
                if self._is_followed(replica.leading, since_ms):
                    kernel.sometimes("a leader went on as its followers fetched")
                else:
                    kernel.sometimes("a partition was suspended")
                    replica.suspend()
                    suspended += 1
        return suspended

    def _is_followed(self, replicas: LeaderReplicas, since_ms: int) -> bool:
        def follows(broker_id: int, broker_epoch: BrokerEpoch, _: LeaderEpoch) -> bool:
            follower = replicas.followers.get(broker_id)
            return (
                follower is not None
                and follower.broker_epoch == broker_epoch
                and follower.last_fetch_ms >= since_ms
            )

        return failsafe.is_followed(replicas, follows)

    def _resume(self, since_ms: int | None) -> None:
        for index, partition in naming.numbered(self._node.image):
            replica = self._leading.replicas.get(index)
            kept = None if replica is None else replica.suspended
            if replica is None or kept is None or kept.pending is not None:
                continue
            may_lead = since_ms is None or self._is_followed(kept, since_ms)
            if may_lead and self._node.leads(partition):
                replica.resume(partition)

    def _asking(self, broker_id: int) -> Process:
        node = self._node
        asked_ms, epoch = node.fleet.kernel.now, node.epoch
        if epoch is None:
            return
        question = IsStoreSilent(node.id, epoch)
        answer: Future = node.fleet.net.call(node.host, f"b{broker_id}", question)
        silent = yield answer
        self._rules.peer_answered(broker_id, asked_ms if silent is True else None)
