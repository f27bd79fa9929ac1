"""What must hold after each event: the checker stands beside the simulation, sees all logs and the store, and knows what was committed.

Its numbers are those of ARCHITECTURE.md. Losses are admitted only where an election was unclean, and then only if the topic allows it or
the elected disk lost records in a power loss; what a leader from before such an election still believes is not judged.
"""

from collections.abc import Mapping
from typing import Protocol

from logfleet.control.elections import Answered
from logfleet.metadata import keys
from logfleet.metadata.image import Broker, ClusterImage, Partition
from logfleet.metadata.store import WatchBatch
from logfleet.replication.longest_log import SILENT
from logfleet.replication.partition_state import effective_min_isr
from logfleet.replication.reassignment import is_reassigning, origin, target

from broker_image.tests.sim.kernel import Host, Kernel, SimulationError
from broker_image.tests.sim.permissions import Permissions
from broker_image.tests.sim.replica_log import NO_PRODUCER, Batch, ReplicaLog


class DiskOf(Protocol):
    logs: dict[int, ReplicaLog]


class Watched(Protocol):
    """A broker, as the checker looks into it."""

    id: int
    host: Host
    epoch: int | None

    @property
    def disk(self) -> DiskOf: ...


class PartitionHistory:
    """committed: what any leader has shown to be so, by offset. records: (offset, epoch) -> (value, epoch before it).

    leaders: who began to lead in which leader epoch. unclean_epoch: of the last election that may have lost records, -1 if there was none.
    is_excused: the loss that it brings has not been seen yet.
    """

    def __init__(self) -> None:
        self.committed: list[Batch] = []
        self.values: set[str] = set()
        self.records: dict[tuple[int, int], tuple[str, int]] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        self.unclean_epoch = -1
        self.is_excused = False
        self.state: Partition | None = None


class Checker:
    """answered: how far logs reach, as the controller of that epoch knew when it elected last."""

    def __init__(self, kernel: Kernel, *, is_unclean_enabled: bool) -> None:
        self.brokers: Mapping[int, Watched] = {}
        self.answered: dict[int, Answered] = {}
        self.topic_id = b""
        self._kernel = kernel
        self._is_unclean_enabled = is_unclean_enabled
        self._histories: dict[int, PartitionHistory] = {}
        self._permissions = Permissions(kernel)

    def history(self, index: int) -> PartitionHistory:
        found = self._histories.get(index)
        if found is None:
            found = self._histories[index] = PartitionHistory()
        return found

    def _demand(self, holds: object, text: str, *arguments: object) -> None:
        if not holds:
            raise SimulationError(text % arguments)

    # what brokers do

    def leads(self, index: int, broker: Watched, leader_epoch: int) -> None:
        history = self.history(index)
        leaders = history.leaders
        before = leaders.get(leader_epoch)
        self._demand(
            before is None,
            "I4: partition %s, leader epoch %s: broker %s begins to lead, %s did before",
            index, leader_epoch, broker.id, before,
        )  # fmt: skip
        leaders[leader_epoch] = (broker.id, broker.epoch or 0)
        if history.state is not None and leader_epoch < history.state.leader_epoch:
            return  # a watch that is late; what it shows as committed is judged as of any leader
        if leader_epoch >= history.unclean_epoch:
            self._lost(history, index, broker)
            history.is_excused = False

    def _lost(self, history: PartitionHistory, index: int, broker: Watched) -> None:
        """What was committed and the new leader has not is gone; after an unclean election that is as it must be."""
        kept = self._common(history, broker.disk.logs.get(index))
        if kept < len(history.committed):
            self._demand(
                history.is_excused,
                "I1: partition %s: broker %s leads with %s of %s committed records",
                index, broker.id, kept, len(history.committed),
            )  # fmt: skip
            self._kernel.sometimes("an unclean election lost records")
            for batch in history.committed[kept:]:
                history.values.discard(batch.value)
            del history.committed[kept:]

    def appended(self, index: int, broker: Watched, log: ReplicaLog) -> None:
        """The last record of this log is new there, by its leader or copied from it."""
        batch = log.batches[-1]
        previous = log.batches[-2].epoch if batch.offset else -1
        self._demand(previous <= batch.epoch, "I4: partition %s of %s: epoch %s follows %s", index, broker.id, batch.epoch, previous)  # fmt: skip
        known = self.history(index).records.setdefault(
            (batch.offset, batch.epoch), (batch.value, previous)
        )
        self._demand(
            known == (batch.value, previous),
            "I5: partition %s, offset %s, epoch %s: %s at broker %s is %s elsewhere",
            index, batch.offset, batch.epoch, (batch.value, previous), broker.id, known,
        )  # fmt: skip

    def truncated(self, index: int, broker: Watched, cut: list[Batch], high_watermark: int) -> None:
        if not cut:
            return
        self._kernel.sometimes("a follower truncated its log")
        history = self.history(index)
        offset = cut[0].offset
        if history.unclean_epoch >= 0:
            return
        self._demand(
            offset >= high_watermark,
            "I6: partition %s: broker %s truncates to %s, below its high watermark %s",
            index, broker.id, offset, high_watermark,
        )  # fmt: skip
        state = history.state
        if state is not None and (broker.id, broker.epoch) in state.isr:
            self._demand(
                offset >= len(history.committed) or cut[0] != history.committed[offset],
                "I6: partition %s: broker %s is in the ISR and truncates %s, which is committed",
                index, broker.id, cut[0],
            )  # fmt: skip

    def advanced(
        self, index: int, broker: Watched, log: ReplicaLog, leader_epoch: int, span: range
    ) -> None:
        """The high watermark of a leader has gone over these offsets."""
        history = self.history(index)
        if leader_epoch < history.unclean_epoch:
            return
        for offset in span:
            self._commit(history, index, broker, log.batches[offset])
        if history.state is not None:
            self._hold(history, index, log, span.stop)

    def told(self, index: int, broker: Watched, high_watermark: int, before: int) -> None:
        """What a leader holds for committed, and what it did before in this leader epoch."""
        self._demand(
            high_watermark >= before,
            "I2: partition %s: the high watermark of broker %s goes back from %s to %s",
            index, broker.id, before, high_watermark,
        )  # fmt: skip

    def _commit(self, history: PartitionHistory, index: int, broker: Watched, batch: Batch) -> None:
        if batch.offset < len(history.committed):
            known = history.committed[batch.offset]
            self._demand(known == batch, "I1: partition %s: broker %s shows %s as committed, it was %s", index, broker.id, batch, known)  # fmt: skip
            return
        if batch.producer != NO_PRODUCER:
            self._demand(
                batch.value not in history.values,
                "I10: partition %s: %s is committed twice", index, batch.value,
            )  # fmt: skip
            history.values.add(batch.value)
        history.committed.append(batch)

    def _hold(self, history: PartitionHistory, index: int, log: ReplicaLog, end: int) -> None:
        """Each member of the ISR that the store has holds what is below `end`. One that is down or registers anew is not looked at."""
        assert history.state is not None
        for broker_id, broker_epoch in history.state.isr:
            member = self.brokers[broker_id]
            if member.host.is_up and member.epoch == broker_epoch and end:
                held = member.disk.logs.get(index)
                self._demand(
                    held is not None
                    and held.end_offset >= end
                    and held.batches[end - 1] == log.batches[end - 1],
                    "I3: partition %s: high watermark %s, but broker %s of the ISR has %s records",
                    index, end, broker_id, held.end_offset if held else 0,
                )  # fmt: skip

    # what clients see

    def acked(self, index: int, offset: int, value: str) -> None:
        """A leader answers a produce with acks=all."""
        history = self.history(index)
        if history.unclean_epoch >= 0 and offset >= len(history.committed):
            return
        self._demand(
            offset < len(history.committed) and history.committed[offset].value == value,
            "I1: partition %s: %s was acknowledged at %s, and is not committed there",
            index, value, offset,
        )  # fmt: skip

    def out_of_order(self, index: int, leader_epoch: int, value: str, sequence: int) -> None:
        """A leader refuses a record so. One that was replaced and does not know it lacks what the next one took; its word commits nothing."""
        history = self.history(index)
        if history.state is not None and leader_epoch < history.state.leader_epoch:
            self._kernel.sometimes("a replaced leader took a record for out of order")
            return
        if (
            value in history.values
        ):  # it was on its way for long; the client has its answer by another leader
            self._kernel.sometimes("what came again after more than five others was refused")
            return
        self._demand(
            history.unclean_epoch >= 0,
            "I10: partition %s: %s, sequence %s, is out of order", index, value, sequence,
        )  # fmt: skip

    def consumed(self, index: int, offset: int, batches: tuple[Batch, ...]) -> None:
        """A consumer was given this."""
        history = self.history(index)
        if history.unclean_epoch >= 0:
            return
        for number, batch in enumerate(batches):
            at = offset + number
            self._demand(
                batch.offset == at and at < len(history.committed) and history.committed[at] == batch,
                "I16: partition %s: a consumer got %s at %s, which is not committed",
                index, batch, at,
            )  # fmt: skip

    def went_back(self, index: int, offset: int, end: int) -> None:
        """A leader told a consumer that the offset, which it had been given, is out of range."""
        self._demand(
            self.history(index).unclean_epoch >= 0,
            "I16: partition %s: a consumer at %s was told that the log ends at %s",
            index, offset, end,
        )  # fmt: skip

    # what the store has

    def allowed(
        self, image: ClusterImage, going_down: set[int], *, only_curable: bool = False
    ) -> None:
        """A controller says by this image that these brokers may stop."""
        topic = image.topic_by_id(self.topic_id)
        states = {
            index: self.history(index).state or seen
            for index, seen in enumerate(topic.partitions if topic else ())
        }
        self._permissions.give(image, self.topic_id, going_down, states, only_curable=only_curable)

    def committed_metadata(self, batch: WatchBatch, image: ClusterImage) -> None:
        self._hold_known(image)
        for event in batch.events:
            if event.key.startswith(keys.FENCES):
                self._let_in(image.brokers.get(int(event.key.removeprefix(keys.FENCES))), image)
        if not any(event.key.startswith(keys.PARTITIONS) for event in batch.events):
            return
        topic = image.topic_by_id(self.topic_id)
        for index, after in enumerate(topic.partitions if topic else ()):
            history = self.history(index)
            before, history.state = history.state, after
            if before is not None and before.revision != after.revision:
                self._changed(history, index, before, after, image)

    def _let_in(self, broker: Broker | None, image: ClusterImage) -> None:
        """No partition counts on an earlier registration of a broker that becomes active (KIP-903, KIP-966)."""
        topic = image.topic_by_id(self.topic_id)
        if broker is None or not broker.is_active:
            return
        for index, each in enumerate(topic.partitions if topic else ()):
            self._demand(dict(each.isr).get(broker.id, broker.epoch) == broker.epoch, "I28: partition %s: broker %s is let in as %s, isr %s", index, broker.id, broker.epoch, each.isr)  # fmt: skip
            self._demand(not broker.value.unclean or broker.id not in each.elr, "I28: partition %s: broker %s lost records and is let in, elr %s", index, broker.id, each.elr)  # fmt: skip

    def _hold_known(self, image: ClusterImage) -> None:
        """Nobody is forgotten (UnregisterBroker) whom a partition names."""
        topic = image.topic_by_id(self.topic_id)
        known = image.brokers.keys() | image.fences.keys()
        for index, each in enumerate(topic.partitions if topic else ()):
            self._demand(known >= set(each.replicas), "I21: partition %s: of %s only %s are known", index, each.replicas, sorted(known))  # fmt: skip

    def _changed(
        self,
        history: PartitionHistory,
        index: int,
        before: Partition,
        after: Partition,
        image: ClusterImage,
    ) -> None:
        self._kernel.note(
            "store", "revision %s: partition %s leader %s epoch %s isr %s elr %s%s",
            after.revision, index, after.leader, after.leader_epoch, after.isr, after.elr,
            " recovering" if after.recovering else "",
        )  # fmt: skip
        self._permissions.changed(index, after)
        members, was = set(after.isr_ids), set(before.isr_ids)
        self._demand(after.partition_epoch == before.partition_epoch + 1, "I7: partition %s: partition epoch %s follows %s", index, after.partition_epoch, before.partition_epoch)  # fmt: skip
        self._demand(
            members <= set(after.replicas)
            and len(members) == len(after.isr)
            and not members & set(after.elr)
            and (after.leader in members or not after.has_leader),
            "I7: partition %s: leader %s, replicas %s, isr %s, elr %s",
            index, after.leader, after.replicas, after.isr, after.elr,
        )  # fmt: skip
        self._moves(index, before, after)
        is_new = after.leader_epoch != before.leader_epoch
        self._demand(
            after.leader_epoch == before.leader_epoch + is_new
            and (is_new or after.leader == before.leader),
            "I4: partition %s: leader %s epoch %s follows leader %s epoch %s",
            index, after.leader, after.leader_epoch, before.leader, before.leader_epoch,
        )  # fmt: skip
        if is_new and after.has_leader:
            self._elected(history, index, before, after, image)
        for broker_id, broker_epoch in set(after.isr) - set(before.isr):
            broker = image.brokers.get(broker_id)
            self._demand(
                broker is not None and broker.epoch == broker_epoch and broker.is_active,
                "I7: partition %s: %s joins the ISR, but is not registered and active so (%s)",
                index, (broker_id, broker_epoch), broker,
            )  # fmt: skip
        if members - was and not is_new:
            self._kernel.sometimes("the ISR grew")
        if (members != was or is_new) and not history.is_excused:
            self._hold_committed(history, index, after)
        for broker_id in was - members:
            self._left(image.brokers.get(broker_id), is_leaders=not is_new)
        if len(members) < effective_min_isr(after) <= len(was):
            self._kernel.sometimes("the ISR fell below min ISR")

    def _moves(self, index: int, before: Partition, after: Partition) -> None:
        """What a reassignment does to the replicas (I21, I22)."""
        there, gone = set(after.replicas), set(before.replicas) - set(after.replicas)
        members = set(after.isr_ids)
        self._demand(len(there) == len(after.replicas), "I22: partition %s: replicas %s", index, after.replicas)  # fmt: skip
        self._demand(
            gone <= set(before.adding) or members == there,
            "I21: partition %s: %s have gone, of %s only %s are in sync",
            index, sorted(gone), after.replicas, sorted(members),
        )  # fmt: skip
        held = gone & ({*before.isr_ids, *before.elr} or {before.last_leader})
        self._demand(
            not held or len(members) >= effective_min_isr(after),
            "I21: partition %s: %s have gone, which held what is committed, and %s are left in sync",
            index, sorted(held), sorted(members),
        )  # fmt: skip
        if is_reassigning(before) and is_reassigning(after):
            self._demand(
                set(origin(before)) == set(origin(after)),
                "I21: partition %s: it came from %s, and would go back to %s",
                index, origin(before), origin(after),
            )  # fmt: skip
            if target(before) != target(after):
                self._kernel.sometimes("a reassignment got another target")
        elif is_reassigning(before):
            is_done = set(target(before)) == there
            self._demand(
                is_done or set(origin(before)) == there or members == there,
                "I21: partition %s: from %s to %s, it ended at %s",
                index, origin(before), target(before), after.replicas,
            )  # fmt: skip
            what = "was done" if is_done else "was cancelled"
            self._kernel.sometimes(f"a reassignment {what}")

    def _left(self, broker: Broker | None, *, is_leaders: bool) -> None:
        if broker is not None and broker.is_fenced and broker.value.unclean:
            self._kernel.sometimes("an unclean start was taken out of an ISR before it was let in")
        elif broker is None or broker.is_fenced:
            self._kernel.sometimes("the ISR shrank by the controller")
        elif is_leaders and broker.is_active:
            self._kernel.sometimes("the ISR shrank by its leader")

    def _hold_committed(self, history: PartitionHistory, index: int, state: Partition) -> None:
        for broker_id, broker_epoch in state.isr:
            member = self.brokers[broker_id]
            if member.host.is_up and member.epoch == broker_epoch:
                kept = self._common(history, member.disk.logs.get(index))
                self._demand(
                    kept == len(history.committed),
                    "I3: partition %s: broker %s is in the ISR with %s of %s committed records",
                    index, broker_id, kept, len(history.committed),
                )  # fmt: skip

    def _elected(
        self,
        history: PartitionHistory,
        index: int,
        before: Partition,
        after: Partition,
        image: ClusterImage,
    ) -> None:
        leader = after.leader
        broker = image.brokers.get(leader)
        self._demand(
            broker is not None and (leader, broker.epoch) in after.isr and not broker.is_fenced,
            "I8: partition %s: broker %s is elected, but %s is not registered and active",
            index, leader, dict(after.isr).get(leader),
        )  # fmt: skip
        is_clean = leader in before.isr_ids or leader in before.elr
        if leader in before.elr:
            self._kernel.sometimes("an eligible leader was elected")
        if is_clean:
            return
        last = before.last_leader
        self._kernel.sometimes(
            "the last leader was elected" if leader == last else "a longer log was elected"
        )
        self._reaches_furthest(index, before, dict(after.isr), image)
        logs = [self.brokers[each].disk.logs.get(index) for each in (leader, last)]
        history.unclean_epoch = after.leader_epoch
        history.is_excused = self._is_unclean_enabled or any(log and log.has_lost for log in logs)

    def _reaches_furthest(
        self, index: int, before: Partition, elected: dict[int, int], image: ClusterImage
    ) -> None:
        """Who is elected without a proof that it holds everything has the longest log of all that answered, the last leader among them."""
        assert image.controller is not None
        answered = self.answered.get(image.controller.epoch, {}).get((self.topic_id, index), {})
        there = {each.id: each.epoch for each in image.brokers.values()}
        rivals = [end for member, end in answered.items() if there.get(member[0]) == member[1]]
        (leader,) = elected.items()
        self._demand(
            all(answered.get(leader, SILENT) >= end for end in rivals),
            "I8: partition %s: broker %s is elected, logs reach as far as %s", index, leader, answered,
        )  # fmt: skip
        last = before.last_leader
        has_answered = any(each == last and end != SILENT for (each, _), end in answered.items())
        self._demand(
            self._is_unclean_enabled or leader[0] == last or has_answered,
            "I8: partition %s: broker %s is elected, of isr %s, elr %s, last leader %s",
            index, leader[0], before.isr_ids, before.elr, last,
        )  # fmt: skip

    def _common(self, history: PartitionHistory, log: ReplicaLog | None) -> int:
        """How many of the committed records are in the log, from the first on."""
        count = min(len(history.committed), log.end_offset if log else 0)
        while count and log is not None and log.batches[count - 1] != history.committed[count - 1]:
            count -= 1
        return count
