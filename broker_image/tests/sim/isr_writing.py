"""How a simulated broker writes the ISRs of what it leads: the shell of `logfleet.replication.isr_proposals`."""

from collections.abc import Callable, Mapping

from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.metadata.store import Txn, TxnResult
from logfleet.replication import isr_write
from logfleet.replication.isr_proposals import (
    CheckAll,
    Ended,
    IsrProposals,
    Proposal,
    Reply,
    Send,
    Settled,
    State,
    Write,
)
from logfleet.replication.isr_write import Lost
from logfleet.replication.leader import IsrChange, LeaderReplicas
from logfleet.types import BrokerEpoch

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Process
from broker_image.tests.sim.node import Node
from broker_image.tests.sim.replica import Replica

LABELS = {
    State.DROPPED: "an ISR change was given up before it was sent",
    State.LOST: "an ISR change came too late",
}


class Led:
    """A partition in one leader epoch that this broker leads."""

    def __init__(self, replica: Replica, replicas_state: LeaderReplicas) -> None:
        self.replica = replica
        self.replicas_state = replicas_state
        self.leader_epoch = replica.leader_epoch
        self.topic_id = naming.topic_of(replica.index)
        self.index = naming.index_of(replica.index)

    @property
    def is_leading(self) -> bool:
        return self.replica.leading is self.replicas_state

    def isr_change(
        self, now_ms: int, is_eligible: Callable[[int, BrokerEpoch], bool]
    ) -> IsrChange | None:
        return self.replica.ends.isr_change(now_ms, is_eligible)

    def isr_won(self, revision: int) -> None:
        """The change was written. This may be known only after it stopped leading."""
        if self.is_leading:
            self.replica.ends.isr_won(revision)
        else:
            self.replicas_state.won(revision)

    def isr_lost(self, state: PartitionValue | None, revision: int) -> bool:
        if self.is_leading:
            return self.replica.ends.isr_lost(state, revision)
        return self.replicas_state.lost(state, revision)


class IsrWriting:
    def __init__(self, node: Node, replicas: Mapping[int, Replica]) -> None:
        self._node = node
        self._replicas = replicas
        self._led: dict[int, Led] = {}
        self._proposals: IsrProposals[Led] = IsrProposals(node.fleet.settings.lag_max_ms)
        self._writes: dict[Proposal[Led], Write[Led]] = {}
        self._image = ClusterImage()
        self._alarm_ms = -1

    def check(self, replica: Replica) -> None:
        assert replica.leading is not None
        led = self._led.get(replica.index)
        if led is None or led.replicas_state is not replica.leading:
            led = self._led[replica.index] = Led(replica, replica.leading)
        if self._proposals.check(led):
            self._node.fleet.kernel.at(0, self._node.host, "isr", self.step)

    def step(self) -> None:
        """As after each event and each image."""
        node, kernel = self._node, self._node.fleet.kernel
        if node.image.revision > self._image.revision:
            self._image = node.image
        me = None
        if node.is_registered and node.epoch is not None:
            me = (node.id, BrokerEpoch(node.epoch))
        for effect in self._proposals.step(kernel.now, self._image, me):
            match effect:
                case Send(write):
                    for proposal in write.proposals.values():
                        if self._writes.get(proposal, write) is not write:
                            kernel.sometimes("an ISR change was written again, alone")
                        self._writes[proposal] = write
                    kernel.spawn(node.host, "isr.write", self._sending(write))
                case CheckAll():
                    for replica in self._replicas.values():
                        if replica.leading is not None and replica.leading.followers:
                            self.check(replica)
                case Ended(led):
                    led.replica.stop()
                case Settled(proposal):
                    self._writes.pop(proposal, None)
                    self._happened(proposal.state)
        if self._alarm_ms != self._proposals.wake_ms:
            self._alarm_ms = self._proposals.wake_ms
            delay_ms = max(0, self._alarm_ms - kernel.now)
            kernel.at(delay_ms, node.host, "isr.soon", self._alarm, self._alarm_ms)

    def _happened(self, state: State) -> None:
        if state in LABELS:
            self._node.fleet.kernel.sometimes(LABELS[state])

    def _alarm(self, at_ms: int) -> None:
        if at_ms == self._alarm_ms:
            self._alarm_ms = -1
            self.step()

    def _sending(self, write: Write[Led]) -> Process:
        node = self._node
        for proposal in write.proposals.values():
            isr, index = proposal.change.state.isr, proposal.partition.replica.index
            node.note("writes isr %s of partition %s", isr, index)
        reply = yield from self._attempt(write.txn)
        if self._shows_an_end(write, reply):
            # a broker applies images later than it sees them
            self._image = node.fleet.store.image
        self._proposals.replied(write, reply)
        self.step()

    def _attempt(self, txn: Txn) -> Process:
        return (yield self._node.fleet.store.txn(self._node.host, txn))

    @staticmethod
    def _shows_an_end(write: Write[Led], reply: Reply) -> bool:
        """Whether by this reply one of the leader epochs has ended."""
        if not isinstance(reply, TxnResult):
            return False
        changes = {key: each.change for key, each in write.proposals.items()}
        return any(
            isinstance(outcome, Lost)
            and (
                outcome.state is None
                or outcome.state.leader_epoch != write.proposals[key].partition.leader_epoch
            )
            for key, outcome in isr_write.read_answer(write.txn, reply, changes).items()
        )
