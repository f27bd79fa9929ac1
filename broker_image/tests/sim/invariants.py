"""What must hold after each event: the checker sees all logs and the store, and knows what was committed.

Its numbers are those of docs/internals/invariants.md. Only an unclean election may lose records: any of them if the topic allows
that, else those that the elected broker's disk lost in a power loss. Below what the election kept, it judges earlier leaders.
"""

from collections.abc import Mapping

from logfleet.controller.changes.election_writes import LogEndsByPartition
from logfleet.metadata.image import Broker, ClusterImage, Partition
from logfleet.metadata.kinds.brokers import BROKER, FENCE
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.store import WatchBatch
from logfleet.replication.longest_log import SILENT
from logfleet.replication.partition_state import Member, effective_min_isr
from logfleet.replication.reassignment_steps import is_reassigning, origin, target
from logfleet.types import BrokerEpoch

from broker_image.tests.sim import naming
from broker_image.tests.sim.history import PartitionHistory
from broker_image.tests.sim.kernel import Kernel, SimulationError
from broker_image.tests.sim.messages import Produce
from broker_image.tests.sim.permissions import Permissions
from broker_image.tests.sim.reach import reaches_as_far
from broker_image.tests.sim.replica_log import NO_PRODUCER, Batch, ReplicaLog
from broker_image.tests.sim.watched import Watched


class Checker:
    """answered: how far logs reach, as the controller of that epoch knew when it elected last.

    renumbered: values that a producer sends under another id, so that they may be there twice.
    """

    def __init__(self, kernel: Kernel, *, is_unclean_enabled: bool) -> None:
        self.brokers: Mapping[int, Watched] = {}
        self.answered: dict[int, LogEndsByPartition] = {}
        self.renumbered: set[str] = set()
        self._kernel = kernel
        self._is_unclean_enabled = is_unclean_enabled
        self.histories: dict[int, PartitionHistory] = {}
        self._permissions = Permissions(kernel)

    def history(self, index: int) -> PartitionHistory:
        found = self.histories.get(index)
        if found is None:
            found = self.histories[index] = PartitionHistory()
        return found

    def _demand(self, holds: object, text: str, *arguments: object) -> None:
        if not holds:
            raise SimulationError(text % arguments)

    # what brokers do

    def leads(self, index: int, broker: Watched, leader_epoch: int) -> None:
        history = self.history(index)
        before = history.leaders.get(leader_epoch)
        self._demand(
            before is None,
            "I4: partition %s, leader epoch %s: broker %s begins to lead, %s did before",
            index, leader_epoch, broker.id, before,
        )  # fmt: skip
        history.leaders[leader_epoch] = (broker.id, broker.epoch or 0)
        if history.is_deleted:
            return
        is_late = history.state is not None and leader_epoch < history.state.leader_epoch
        if is_late and not history.awaits(leader_epoch):
            return  # what it shows as committed is judged as of any leader
        self._lost(history, index, broker)

    def _lost(self, history: PartitionHistory, index: int, broker: Watched) -> None:
        """What was committed and the new leader lacks is gone, which only an unclean election excuses."""
        log = broker.disk.logs.get(index)
        kept = history.kept_in(log)
        if kept < len(history.committed):
            self._demand(
                history.may_lose is not None and kept >= history.may_lose,
                "I1: partition %s: broker %s leads with %s of %s committed records",
                index, broker.id, kept, len(history.committed),
            )  # fmt: skip
            self._kernel.sometimes("an unclean election lost records")
        if history.may_lose is not None:
            history.cut(kept, 0 if log is None else log.start_offset)
            history.may_lose = None
            if log is not None:
                log.lost_from = None

    def appended(self, index: int, broker: Watched, log: ReplicaLog) -> None:
        """The last record of this log is new there, by its leader or copied from it."""
        history, batch = self.history(index), log.at(log.end_offset - 1)
        previous = log.at(batch.offset - 1).epoch if batch.offset > log.base else -1
        self._demand(previous <= batch.epoch, "I4: partition %s of %s: epoch %s follows %s", index, broker.id, batch.epoch, previous)  # fmt: skip
        known, before = history.records.setdefault(
            (batch.offset, batch.epoch), (batch.value, previous)
        )
        is_alone = batch.offset <= max(log.base, history.deleted)  # no replica shows what is below
        self._demand(
            known == batch.value and (is_alone or before == previous),
            "I5: partition %s, offset %s, epoch %s: %s at broker %s is %s elsewhere",
            index, batch.offset, batch.epoch, (batch.value, previous), broker.id, (known, before),
        )  # fmt: skip

    def truncated(self, index: int, broker: Watched, cut: list[Batch], high_watermark: int) -> None:
        if not cut:
            return
        self._kernel.sometimes("a follower truncated its log")
        history = self.history(index)
        offset = cut[0].offset
        below = [batch for batch in cut if batch.offset < high_watermark]
        self._demand(
            not below or (offset >= history.least_kept and not any(map(history.is_committed, below))),
            "I6: partition %s: broker %s truncates to %s, below its high watermark %s",
            index, broker.id, offset, high_watermark,
        )  # fmt: skip
        state = history.state
        if state is not None and (broker.id, broker.epoch) in state.isr:
            self._demand(
                not history.is_committed(cut[0]),
                "I6: partition %s: broker %s is in the ISR and truncates %s, which is committed",
                index, broker.id, cut[0],
            )  # fmt: skip

    def advanced(
        self, index: int, broker: Watched, log: ReplicaLog, leader_epoch: int, span: range
    ) -> None:
        """The high watermark of a leader has gone over these offsets."""
        history = self.history(index)
        sure_end = history.sure_end(leader_epoch)
        for offset in span:
            if offset < sure_end:
                self._commit(history, index, broker, log.at(offset))
        if history.state is not None and span.stop <= sure_end:
            self._hold(history, index, log, span.stop)

    def started(self, index: int, broker: Watched, log: ReplicaLog) -> None:
        """A replica's log starts later than before: of what is committed alone something may be deleted."""
        history, start = self.history(index), log.start_offset
        self._demand(
            start <= len(history.committed) or start > history.least_kept,
            "I19: partition %s: broker %s deletes up to %s of %s committed records",
            index, broker.id, start, len(history.committed),
        )  # fmt: skip
        history.deleted_before(start)

    def reset(self, index: int, broker: Watched, log: ReplicaLog, offset: int) -> None:
        """A follower's log is about to begin at this offset: what its leader has begins there."""
        history = self.history(index)
        state, self_member = history.state, (broker.id, broker.epoch)
        self._demand(
            offset <= history.deleted and not history.reaches(log, offset)
            and (log.end_offset >= offset or state is None or self_member not in state.isr),
            "I6: partition %s: broker %s begins again at %s, records are deleted up to %s",
            index, broker.id, offset, history.deleted,
        )  # fmt: skip
        self._kernel.sometimes("a follower began again where its leader's log starts")

    def deleted(self, index: int, offset: int, live: set[Member]) -> None:
        """A leader answers that no live replica has records below the offset (KIP-107)."""
        for broker_id, broker_epoch in live:
            broker = self.brokers[broker_id]
            log = broker.disk.logs.get(index)
            if broker.host.is_up and broker.epoch == broker_epoch and log is not None:
                self._demand(
                    log.start_offset >= offset,
                    "I19: partition %s: records are deleted up to %s, but from %s on at broker %s",
                    index, offset, log.start_offset, broker_id,
                )  # fmt: skip

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
        if batch.producer != NO_PRODUCER and batch.part is None:
            self._demand(
                batch.value not in history.values or batch.value in self.renumbered,
                "I10: partition %s: %s is committed twice", index, batch.value,
            )  # fmt: skip
            last = history.last.get(batch.producer)
            self._demand(
                last is None or batch.sequence == last.sequence + 1 or last.offset < history.deleted,
                "I10: partition %s: %s is committed, and before it %s", index, batch, last,
            )  # fmt: skip
        history.commit(batch)

    def _hold(self, history: PartitionHistory, index: int, log: ReplicaLog, end: int) -> None:
        """Each member of the ISR that the store has holds what is below `end`."""
        assert history.state is not None
        for broker_id, broker_epoch in history.state.isr:
            held, is_judged = self._held(broker_id, broker_epoch, index)
            if end > log.start_offset and is_judged:
                self._demand(
                    held is not None
                    and held.end_offset >= end
                    and (held.start_offset >= end or held.at(end - 1) == log.at(end - 1)),
                    "I3: partition %s: high watermark %s, but broker %s of the ISR has %s records",
                    index, end, broker_id, held.end_offset if held else 0,
                )  # fmt: skip

    def _held(
        self, broker_id: int, broker_epoch: int, index: int
    ) -> tuple[ReplicaLog | None, bool]:
        """The log of a member of an ISR, and whether it has to hold what is committed.

        Not if the registration is over and its disk has lost records since, or has been replaced.
        """
        broker = self.brokers[broker_id]
        log = broker.disk.logs.get(index)
        if broker.host.is_up and broker.epoch == broker_epoch:
            return log, True
        has_lost = log is not None and log.lost_from is not None
        return log, broker_epoch in broker.disk.epochs and not has_lost

    # what clients see

    def acked(self, index: int, offset: int, value: str, leader_epoch: int) -> None:
        """A leader answers a produce with acks=all."""
        history = self.history(index)
        if offset >= history.sure_end(leader_epoch):
            return
        self._demand(
            offset < len(history.committed) and history.committed[offset].value == value,
            "I1: partition %s: %s was acknowledged at %s, and is not committed there",
            index, value, offset,
        )  # fmt: skip

    def out_of_order(
        self, index: int, leader_epoch: int, log: ReplicaLog, request: Produce
    ) -> None:
        """A leader refuses a record so, which has to be because it lacks the one before.

        A leader that was replaced and does not know it lacks what the next one took; it commits nothing.
        """
        history = self.history(index)
        if history.state is not None and leader_epoch < history.state.leader_epoch:
            self._kernel.sometimes("a replaced leader took a record for out of order")
            return
        if request.part or request.value in history.values or request.value in self.renumbered:
            # it was on its way for long; the client has its answer, or sends it by another number
            self._kernel.sometimes("what came again after more than five others was refused")
            return
        last = history.last.get(request.producer)
        is_next = request.sequence == (last.sequence + 1 if last else 0)
        self._demand(
            not is_next or (last is not None and last.offset < log.base),
            "I10: partition %s: %s, sequence %s, is out of order", index, request.value, request.sequence,
        )  # fmt: skip
        self._kernel.sometimes("a record came before the one that it follows")

    def consumed(
        self, index: int, offset: int, batches: tuple[Batch, ...], leader_epoch: int
    ) -> None:
        """A leader gave this to a consumer."""
        history = self.history(index)
        sure_end = history.sure_end(leader_epoch)
        for at, batch in enumerate(batches, offset):
            self._demand(
                at >= sure_end or (batch.offset == at and history.is_committed(batch)),
                "I16: partition %s: a consumer got %s at %s, which is not committed",
                index, batch, at,
            )  # fmt: skip

    def went_back(self, index: int, offset: int, end: int, read_epoch: int) -> None:
        """A leader answered that the offset is out of range. read_epoch: of the leader that gave the record before it."""
        self._demand(
            offset > self.history(index).sure_end(read_epoch),
            "I16: partition %s: a consumer at %s was told that the log ends at %s",
            index, offset, end,
        )  # fmt: skip

    # what the store has

    def allowed(
        self, image: ClusterImage, going_down: set[int], *, only_curable: bool = False
    ) -> None:
        """A controller says by this image that these brokers may stop."""
        states = {
            index: self.history(index).state or seen for index, seen in naming.numbered(image)
        }
        self._permissions.give(image, going_down, states, only_curable=only_curable)

    def committed_metadata(self, batch: WatchBatch, image: ClusterImage) -> None:
        for event in batch.events:
            if event.key.startswith(FENCE.prefix):
                self._let_in(image.brokers.get(FENCE.parse(event.key)), image)
                self._hold_known(FENCE.parse(event.key), image)
            elif event.key.startswith(BROKER.prefix):
                self._doubt(image.brokers.get(BROKER.parse(event.key)))
        if not any(event.key.startswith(PARTITION.prefix) for event in batch.events):
            return
        partitions = dict(naming.numbered(image))
        for index, history in self.histories.items():
            if index not in partitions:
                history.state, history.is_deleted = None, True
        for index, after in partitions.items():
            history = self.history(index)
            before, history.state = history.state, after
            if before is not None and before.revision != after.revision:
                self._changed(history, index, before, after, image)

    def _let_in(self, broker: Broker | None, image: ClusterImage) -> None:
        """No partition counts on an earlier registration of a broker that becomes active (KIP-903, KIP-966)."""
        if broker is None or not broker.is_active:
            return
        for index, each in naming.numbered(image):
            self._demand(dict(each.isr).get(broker.id, broker.epoch) == broker.epoch, "I28: partition %s: broker %s is let in as %s, isr %s", index, broker.id, broker.epoch, each.isr)  # fmt: skip
            self._demand(not broker.value.unclean or broker.id not in each.elr, "I28: partition %s: broker %s lost records and is let in, elr %s", index, broker.id, each.elr)  # fmt: skip

    def _doubt(self, broker: Broker | None) -> None:
        """Remember who says that it may have lost records, or has the disk of an older life (KIP-966)."""
        if broker is not None and broker.is_new:
            is_older = broker.last_epoch not in {None, broker.value.previous_epoch}
            if broker.value.unclean or is_older:
                for history in self.histories.values():
                    history.doubtful.add(broker.id)

    def _hold_known(self, broker_id: int, image: ClusterImage) -> None:
        """No broker is forgotten (UnregisterBroker) that a partition names."""
        for index, each in naming.numbered(image):
            self._demand(broker_id in image.fences or broker_id not in each.replicas, "I21: partition %s: broker %s of %s is forgotten", index, broker_id, each.replicas)  # fmt: skip

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
        if (members != was or is_new) and history.may_lose is None:
            self._hold_committed(history, index, after)
        for broker_id in members - was:
            self._joined(history, index, broker_id, dict(after.isr)[broker_id])
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
            self._kernel.sometimes(f"a reassignment was {'done' if is_done else 'cancelled'}")

    def _left(self, broker: Broker | None, *, is_leaders: bool) -> None:
        if broker is not None and broker.is_fenced and broker.value.unclean:
            self._kernel.sometimes("an unclean start was taken out of an ISR before it was let in")
        elif broker is None or broker.is_fenced:
            self._kernel.sometimes("the ISR shrank by the controller")
        elif is_leaders and broker.is_active:
            self._kernel.sometimes("the ISR shrank by its leader")

    def _hold_committed(self, history: PartitionHistory, index: int, state: Partition) -> None:
        for broker_id, broker_epoch in state.isr:
            held, is_judged = self._held(broker_id, broker_epoch, index)
            if is_judged:
                kept = history.kept_in(held)
                self._demand(
                    kept == len(history.committed),
                    "I3: partition %s: broker %s is in the ISR with %s of %s committed records",
                    index, broker_id, kept, len(history.committed),
                )  # fmt: skip

    def _joined(
        self, history: PartitionHistory, index: int, broker_id: int, broker_epoch: int
    ) -> None:
        """A broker is in the ISR again: it has what it had lost, unless an unclean election brought it there."""
        history.doubtful.discard(broker_id)
        broker = self.brokers[broker_id]
        log = broker.disk.logs.get(index)
        is_live = broker.host.is_up and broker.epoch == broker_epoch
        if is_live and log is not None and history.may_lose is None:
            log.lost_from = None

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
        what = "the last leader" if leader == last else "a longer log"
        self._kernel.sometimes(f"{what} was elected")
        self._reaches_furthest(index, before, dict(after.isr), image)
        eligible = {*before.elr, *before.isr_ids} & set(after.replicas) - history.doubtful
        self._demand(
            self._is_unclean_enabled or not eligible,
            "I8: partition %s: broker %s is elected uncleanly, of isr %s, elr %s",
            index, leader, before.isr_ids, before.elr,
        )  # fmt: skip
        led = self.brokers[last].disk.logs.get(index)
        may_lose = 0 if self._is_unclean_enabled else led.lost_from if led else None
        log = self.brokers[leader].disk.logs.get(index)
        history.elected_uncleanly(after.leader_epoch, log, may_lose)

    def _reaches_furthest(
        self, index: int, before: Partition, elected: dict[int, BrokerEpoch], image: ClusterImage
    ) -> None:
        """Who is elected without a proof that it holds everything has the longest log of all that answered, the last leader among them."""
        assert image.controller is not None
        place = naming.topic_of(index), naming.index_of(index)
        answered = self.answered.get(image.controller.epoch, {}).get(place, {})
        there = {each.id: each.epoch for each in image.brokers.values() if each.is_active}
        rivals = [end for member, end in answered.items() if there.get(member[0]) == member[1]]
        (leader,), last = elected.items(), before.last_leader
        led = max((end for member, end in answered.items() if member[0] == last), default=SILENT)
        self._demand(
            reaches_as_far(answered.get(leader, SILENT), rivals, led),
            "I8: partition %s: broker %s is elected, logs reach as far as %s", index, leader, answered,
        )  # fmt: skip
        self._demand(
            self._is_unclean_enabled or leader[0] == last or led != SILENT,
            "I8: partition %s: broker %s is elected, of isr %s, elr %s, last leader %s",
            index, leader[0], before.isr_ids, before.elr, last,
        )  # fmt: skip
