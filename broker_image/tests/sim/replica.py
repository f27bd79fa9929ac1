"""A broker's copy of a partition in a simulation, and whether it leads, follows, or neither."""

from collections.abc import Callable

from logfleet.log.verification import Guards
from logfleet.metadata.image import Partition
from logfleet.replication.ends import ReplicaEnds
from logfleet.replication.leader import LeaderReplicas
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.messages import Produced
from broker_image.tests.sim.net import Reply
from broker_image.tests.sim.node import Node
from broker_image.tests.sim.replica_log import Batch, ReplicaLog


class Replica:
    """The shell of `ReplicaEnds`, and the effects of both its roles.

    leader_epoch: the newest that it took part in, led_epoch: that it led in. leader: whom it follows.

    suspended: what it knew of them while it does not lead for want of the store's answer.
    waiting: appends that are to be acknowledged once they are committed: (offset, value, reply).
    """

    def __init__(self, node: Node, index: int, log: ReplicaLog, high_watermark: int) -> None:
        self.node = node
        self.index = index
        self.log = log
        self.leader_epoch = self.led_epoch = -1
        self.leader: int | None = None
        self.suspended: LeaderReplicas | None = None
        self.waiting: list[tuple[int, str, Reply]] = []
        self._judged = 0
        self._stable = 0
        self.guards = Guards()
        coordinator = node.fleet.settings.coordinator
        self._has_transactions = coordinator not in {-1, index}
        self.on_news: Callable[[int], None] = lambda _index: None
        log.open()
        self.ends.hosted(high_watermark)

    @property
    def has_no_role(self) -> bool:
        return self.leading is None and self.leader is None

    @property
    def ends(self) -> ReplicaEnds:
        return self.log.ends

    @property
    def leading(self) -> LeaderReplicas | None:
        """What it knows of the others while it leads."""
        return self.log.ends.leading

    @property
    def high_watermark(self) -> int:
        return self.log.ends.high_watermark

    def lead(self, partition: Partition) -> None:
        """Lead, or take over what the image says to who leads already."""
        node, log, leading = self.node, self.log, self.leading
        if leading is not None and partition.leader_epoch == self.leader_epoch:
            assert self.ends.learned(partition, partition.revision)
            return
        if self.suspended is not None and partition.leader_epoch == self.led_epoch:
            return  # until `resume`
        self.stop()
        if partition.leader_epoch <= self.led_epoch:
            return  # it has ended already, as an answer said that came before this image
        self.led_epoch = partition.leader_epoch
        self.leader_epoch = partition.leader_epoch
        node.note("leads partition %s, epoch %s, from %s on", self.index, self.leader_epoch, log.end_offset)  # fmt: skip
        node.fleet.checker.leads(self.index, node, self.leader_epoch)
        log.epochs.assign(self.leader_epoch, log.end_offset)
        self._judged = self._stable = 0
        replicas = LeaderReplicas(
            node.id,
            partition,
            partition.revision,
            ends=self.ends,
            lag_max_ms=node.fleet.settings.lag_max_ms,
            now_ms=node.fleet.kernel.now,
        )
        self.ends.lead(replicas, self)
        self.judge()
        self._begin_to_lead()

    def follow(self, leader: int, leader_epoch: int) -> None:
        if (leader, leader_epoch) != (self.leader, self.leader_epoch) or self.leading is not None:
            self.stop()
            self.leader, self.leader_epoch = leader, leader_epoch
            self.ends.follow(self)
            self.node.note("follows %s in partition %s, epoch %s", leader, self.index, leader_epoch)
            self.node.fetching.follow(self)

    def suspend(self) -> None:
        """Lead no more for now; what is known of the other replicas is kept."""
        leading = self.leading
        self.stop()
        self.suspended = leading

    def resume(self, partition: Partition) -> None:
        """Go on leading in the leader epoch in which it was suspended, if the image shows it still."""
        kept, self.suspended = self.suspended, None
        if kept is None or partition.leader_epoch != self.led_epoch:
            return
        if kept.learned(partition, partition.revision):
            self.node.note("leads partition %s again, epoch %s", self.index, self.led_epoch)
            self.ends.lead(kept, self)
            self.judge()
            self._begin_to_lead()

    def _begin_to_lead(self) -> None:
        self.guards = Guards()
        if self.node.coordinating is not None:
            self.node.coordinating.led(self)

    def stop(self) -> None:
        """Neither lead nor follow. What waits to be acknowledged never is by this broker."""
        if self.leader is not None:
            self.node.fetching.unfollow(self.index)
        self.leader = self.suspended = None
        is_over = self.leading is not None
        self.ends.stop(self)
        if is_over:
            self.node.note("leads partition %s no more", self.index)
            if self.node.coordinating is not None:
                self.node.coordinating.lost(self)
        waiting, self.waiting = self.waiting, []
        for _, _, reply in waiting:
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def leader_committed(self, high_watermark: int) -> None:
        """As a follower: this high watermark, as of now."""
        self.ends.leader_committed(high_watermark)
        self._check()

    def delete_before(self, offset: int) -> None:
        """As a leader that is asked to, or by retention."""
        if offset > self.log.start_offset:
            self.log.delete_before(offset)
            self.node.fleet.checker.started(self.index, self.node, self.log)
            self.node.note("partition %s starts at %s", self.index, offset)
            self._check()

    def reset(self, offset: int) -> None:
        """As a follower of whose log nothing may stay: its leader's starts there."""
        self.node.fleet.checker.reset(self.index, self.node, self.log, offset)
        self.log.reset_to(offset)
        self.node.note("starts partition %s again at %s", self.index, offset)
        self._check()

    def append(self, batch: Batch) -> None:
        self.log.append(batch)
        self.node.fleet.checker.appended(self.index, self.node, self.log)
        self._check()

    def truncate(self, offset: int) -> None:
        high_watermark = self.high_watermark
        cut = self.log.truncate_to(offset)
        self.node.note("truncates partition %s to %s", self.index, offset)
        self.node.fleet.checker.truncated(self.index, self.node, cut, high_watermark)
        self._check()

    def _check(self) -> None:
        """What holds of transactions in any log (I31)."""
        if self._has_transactions:
            checker, before = self.node.fleet.transactions, self._stable
            stable = checker.holds(self.index, self.node.id, self.log, self.high_watermark)
            if self.leading is not None:
                checker.goes_on(self.index, self.node.id, before, stable)
                self._stable = stable

    # effects

    def committed(self, size: int) -> None:  # noqa: ARG002  see Effects
        if self.leading is not None:
            self.judge()
            self.on_news(self.index)

    def written(self, size: int) -> None:  # noqa: ARG002  see Effects
        self.on_news(self.index)

    def own_part_done(self) -> None:
        """What waits here waits for all in-sync replicas."""

    def flush(self) -> bool:
        return False

    def log_start_moved(self) -> None:
        """`delete_before` reports it."""

    def wait(self, offset: int, value: str, reply: Reply) -> None:
        """Have it answered once this record of its own log is committed."""
        self.waiting.append((offset, value, reply))
        self.waiting.sort(key=lambda waiting: waiting[0])
        self.judge()

    def judge(self) -> None:
        """Have a leader's high watermark judged, and answer who waits for it."""
        high_watermark = self.high_watermark
        checker = self.node.fleet.checker
        checker.told(self.index, self.node, high_watermark, self._judged)
        if high_watermark > self._judged:
            span = range(max(self._judged, self.log.start_offset), high_watermark)
            self._judged = high_watermark
            checker.advanced(self.index, self.node, self.log, self.leader_epoch, span)
            if self.node.coordinating is not None:
                self.node.fleet.transactions.advanced(self.index)
                self._check()
            self.node.note("partition %s: high watermark %s", self.index, high_watermark)
        while self.waiting and self.waiting[0][0] < high_watermark:
            offset, value, reply = self.waiting.pop(0)
            if not self.node.fleet.transactions.may_pass_for_a_repeat(value):
                checker.acked(self.index, offset, value, self.leader_epoch)
            reply(Produced(ErrorCode.NONE, offset))
