"""How a simulated broker goes on leading while the store does not answer it, as `logfleet.node.cluster.failsafe` has it."""

from collections.abc import Callable

from logfleet.node.cluster.failsafe import (
    CHECK_S,
    CONFIRMED_MS,
    EXTENSION_S,
    SETTLING_MS,
    SILENT_SHARE,
)
from logfleet.node.cluster.silent_peers import is_majority

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Future, Process
from broker_image.tests.sim.leading import Leading
from broker_image.tests.sim.messages import IsStoreSilent
from broker_image.tests.sim.node import LEASE_TTL_S, Node
from broker_image.tests.sim.replica import Replica

LEASE_MS = 1_000 * LEASE_TTL_S


class Failsafe:
    """`checking` runs for as long as the process lives."""

    def __init__(self, node: Node, leading: Leading) -> None:
        self._node = node
        self._leading = leading
        self._silent_ms: dict[int, int] = {}
        self._checked_ms = self._counted_from_ms = node.fleet.kernel.now

    @property
    def is_silent(self) -> bool:
        """Whether the store has not answered this broker's keepalives for longer than is usual."""
        node = self._node
        unanswered_ms = node.fleet.kernel.now - (node.deadline_ms - LEASE_MS)
        return node.is_registered and unanswered_ms > SILENT_SHARE * LEASE_MS

    def confirms(self, asked: IsStoreSilent) -> bool:
        known = self._node.image.brokers.get(asked.broker)
        stands = known is not None and known.epoch == asked.epoch and not known.is_fenced
        return self.is_silent and stands

    def checking(self) -> Process:
        while True:
            yield int(1_000 * CHECK_S)
            self._check()

    def _check(self) -> None:
        node, now = self._node, self._node.fleet.kernel.now
        if now - self._checked_ms > 1_000 * EXTENSION_S:
            self._counted_from_ms = now
        self._checked_ms = now
        if self.is_silent:
            self._ask()
        else:
            self._silent_ms.clear()
        if not node.is_registered:
            return
        if now + 2_000 * CHECK_S < node.deadline_ms:
            self._resume(lambda _: True)
            return
        if now - self._counted_from_ms < SETTLING_MS:
            return
        self._judge(max(now - CONFIRMED_MS, self._counted_from_ms))
        node.extended_ms = now + int(1_000 * EXTENSION_S)

    def _judge(self, since_ms: int) -> None:
        kernel = self._node.fleet.kernel
        silent = {each for each, at_ms in self._silent_ms.items() if at_ms >= since_ms}
        if is_majority(silent, self._peers()):
            kernel.sometimes("most brokers heard nothing of the store")
            self._resume(lambda _: True)
            return
        for replica in self._leading.replicas.values():
            if replica.leading is not None:
                if self._is_followed(replica, since_ms):
                    kernel.sometimes("a leader went on as its followers fetched")
                else:
                    kernel.sometimes("a partition was suspended")
                    replica.suspend()
        self._resume(lambda replica: self._is_followed(replica, since_ms))

    def _is_followed(self, replica: Replica, since_ms: int) -> bool:
        known = replica.leading or replica.suspended
        assert known is not None
        if known.has_eligible:
            return False
        followers = known.followers
        others = known.others_in_sync()
        return bool(others) and all(
            broker_id in followers
            and followers[broker_id].broker_epoch == epoch
            and followers[broker_id].last_fetch_ms >= since_ms
            for broker_id, epoch in others
        )

    def _resume(self, may_lead: Callable[[Replica], bool]) -> None:
        image = self._node.image
        for index, partition in naming.numbered(image):
            replica = self._leading.replicas.get(index)
            kept = None if replica is None else replica.suspended
            if replica is None or kept is None or kept.pending is not None:
                continue
            if may_lead(replica) and self._node.leads(partition):
                replica.resume(partition)

    def _peers(self) -> set[int]:
        brokers = self._node.image.brokers.values()
        return {each.id for each in brokers if each.is_active and each.id != self._node.id}

    def _ask(self) -> None:
        for broker_id in self._peers():
            self._node.fleet.kernel.spawn(self._node.host, "ask", self._asking(broker_id))

    def _asking(self, broker_id: int) -> Process:
        node = self._node
        asked_ms, epoch = node.fleet.kernel.now, node.epoch
        if epoch is None:
            return
        question = IsStoreSilent(node.id, epoch)
        answer: Future = node.fleet.net.call(node.host, f"b{broker_id}", question)
        silent = yield answer
        if silent is True:
            self._silent_ms[broker_id] = asked_ms
        else:
            self._silent_ms.pop(broker_id, None)
