"""Partitions that broker 1 leads, and the machine that writes their ISRs, on a store in memory."""

from collections.abc import Callable

import msgspec
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds import topics
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import TxnResult
from logfleet.replication.ends import NoEffects, ReplicaEnds
from logfleet.replication.isr_proposals import (
    Effect,
    Ended,
    IsrProposals,
    Reply,
    Send,
    Settled,
    Write,
)
from logfleet.replication.leader import IsrChange, LeaderReplicas
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

from broker_image.tests.unit.replication.store_rig import Store

TOPIC = bytes(15) + b"1"
UUID = uuids.to_text(TOPIC)
LAG_MAX_MS = 10_000
ME = 1


class Led:
    """A partition in one leader epoch of broker 1."""

    def __init__(self, index: int, replicas_state: LeaderReplicas, ends: ReplicaEnds) -> None:
        self.topic_id = TOPIC
        self.index = index
        self.replicas_state = replicas_state
        self.ends = ends
        self.ends.lead(replicas_state, NoEffects())
        self.is_leading = True

    def append(self, end_offset: int) -> None:
        """Append one batch, up to the offset."""
        self.ends.extended(end_offset)
        self.ends.written(end_offset, self.ends.truncations)
        self.ends.appended(1)

    def isr_change(
        self, now_ms: int, is_eligible: Callable[[int, BrokerEpoch], bool]
    ) -> IsrChange | None:
        return self.ends.isr_change(now_ms, is_eligible)

    def isr_won(self, revision: int) -> None:
        self.ends.isr_won(revision)

    def isr_lost(self, state: PartitionValue | None, revision: int) -> bool:
        return self.ends.isr_lost(state, revision)

    @property
    def isr(self) -> list[int]:
        return [broker_id for broker_id, _ in self.replicas_state.state.isr]


class Leader:
    """Broker 1 of three, which are active. image: what it has seen of the store.

    writes: sent, and not replied to. effects: of all steps so far. on_step: called with those of
    each step.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.members = {each: self.store.start(each) for each in (1, 2, 3)}
        self.me: Member | None = self.members[ME]
        self.image = ClusterImage()
        self.now_ms = 0
        self.machine: IsrProposals[Led] = IsrProposals(LAG_MAX_MS)
        self.writes: list[Write[Led]] = []
        self.effects: list[Effect[Led]] = []
        self.on_step: Callable[[list[Effect[Led]]], None] = lambda _: None

    @staticmethod
    def key(index: int = 0) -> str:
        return PARTITION.key((TOPIC, index))

    def create(self, *isr: int, partitions: int = 1) -> None:
        """Partitions of brokers 1 to 3, with this ISR."""
        members = tuple(self.members[each] for each in isr)
        state = PartitionValue((1, 2, 3), members, ME, LeaderEpoch(5), PartitionEpoch(3), 1)
        self.store.put(topics.TOPIC.key("topic"), TopicValue(UUID))
        for index in range(partitions):
            self.store.put(self.key(index), state)
        self.store.put(READY.key(TOPIC), ReadyValue(partitions))
        self.see()

    def see(self) -> None:
        """The newest image arrives."""
        self.image = self.store.image

    def stored(self, index: int = 0) -> tuple[PartitionValue, int]:
        item = self.store.keyspace.get(self.key(index))
        assert item is not None
        return msgspec.json.decode(item.value, type=PartitionValue), item.mod_revision

    def lead(self, index: int = 0) -> Led:
        state, revision = self.stored(index)
        ends = ReplicaEnds()
        replicas = LeaderReplicas(
            ME, state, revision, ends=ends, lag_max_ms=LAG_MAX_MS, now_ms=self.now_ms
        )
        return Led(index, replicas, ends)

    def fetch(self, led: Led, broker_id: int, offset: int = 0) -> None:
        """That broker has everything below the offset."""
        led.ends.fetched(*self.members[broker_id], offset, 0, now_ms=self.now_ms)
        if led.replicas_state.isr_change_due:
            self.machine.check(led)

    def step(self) -> list[Effect[Led]]:
        effects = self.machine.step(self.now_ms, self.image, self.me)
        self.effects += effects
        self.writes += [each.write for each in effects if isinstance(each, Send)]
        for effect in effects:
            if isinstance(effect, Ended):
                effect.partition.is_leading = False
        self.on_step(effects)
        return effects

    def pass_ms(self, ms: int) -> list[Effect[Led]]:
        """Step as often as the machine asks for it; return the effects."""
        until_ms, effects = self.now_ms + ms, self.step()
        while self.machine.wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, self.machine.wake_ms)
            effects += self.step()
        self.now_ms = until_ms
        return effects

    def commit(self, write: Write[Led]) -> TxnResult:
        return self.store.commit(write.txn)

    def reply(self, write: Write[Led], reply: Reply) -> list[Effect[Led]]:
        self.writes.remove(write)
        self.machine.replied(write, reply)
        return self.step()

    def answer(self, write: Write[Led]) -> list[Effect[Led]]:
        """The store carries it out, and replies."""
        return self.reply(write, self.commit(write))


def settled(effects: list[Effect[Led]]) -> list[tuple[int, str]]:
    """Each settled proposal: the partition's index, and the last state."""
    return [
        (each.proposal.partition.index, each.proposal.state.value)
        for each in effects
        if isinstance(each, Settled)
    ]
