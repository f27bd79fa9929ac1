"""A partition that this broker leads: its log, its leader epoch, the traffic, and who waits.

`logfleet.replication.ends` decides what is committed, and calls the effects that stand here.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.partition_log import PartitionLog
from logfleet.log.validation import AppendResult, Prepared
from logfleet.log.verification import Guards
from logfleet.metadata.image import INTERNAL_TOPICS
from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.node.partitions.ack_queue import ALL, AckQueue, AwaitedAck
from logfleet.node.partitions.replica import ServedReplica
from logfleet.node.partitions.traffic import Traffic
from logfleet.records.control import MARKER_BYTES, Marker
from logfleet.replication.ends import ReplicaEnds
from logfleet.replication.leader import IsrChange, LeaderReplicas
from logfleet.replication.waiters import LOW_WATERMARK, Waiter
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire.errors import ErrorCode

HIGH_WATERMARK = -1
"""In DeleteRecords: everything that is committed."""
_LAG_MAX_MS: Final = 30_000


class NotLeading(Exception):
    """This broker does not lead the partition (any more); the client asks another."""


class FlushRule(Protocol):
    """Makes logs durable early, as their topics want."""

    def appended(self, partition: "LeaderPartition", /) -> None:
        """Records were appended to a log with flush.messages or flush.ms."""

    def flush(self, partition: "LeaderPartition", /) -> bool:
        """Make the log durable soon: records are committed once it is. See Effects.flush."""


class LeaderPartition(ServedReplica):
    """One partition of a topic, from the moment this broker leads it until it stops doing so.

    high_watermark: consumers read nothing beyond it. is_internal: clients may not write to it.
    replicas_state: the state of all replicas. Change it only by methods of this class.
    has_followers: whether there are other replicas; is_at_min_isr: whether enough of
    them are in sync for acks=all. refused_in: the last partition epoch in which acks=all was
    refused for that. epoch_start_offset: the log end offset when this leadership began. bytes_in:
    appended since then; last_writer: the client id of the last append. ack_queue: producers that
    wait for an acknowledgement.
    """

    __slots__ = (
        "_guards",
        "_rule",
        "ack_queue",
        "bytes_in",
        "epoch_start_offset",
        "has_followers",
        "is_at_min_isr",
        "is_internal",
        "last_writer",
        "refused_in",
        "replicas_state",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        leader_epoch: LeaderEpoch,
        *,
        rule: FlushRule | None = None,
        replicas_state: LeaderReplicas | None = None,
    ) -> None:
        """replicas_state: None if this is the only replica."""
        super().__init__(topic, topic_id, index, log, leader_epoch, led_epoch=leader_epoch)
        self.replicas_state = replicas_state or _alone(leader_epoch, self.ends)
        self.epoch_start_offset = log.log_end_offset
        self.bytes_in = 0
        self.last_writer: str | None = None
        self.refused_in = -1
        self.is_internal = topic in INTERNAL_TOPICS
        self._guards: Guards | None = None
        self._rule = rule
        self.ack_queue = AckQueue(self)
        self.ends.lead(self.replicas_state, self)
        self._replicas_changed()

    @property
    def is_leading(self) -> bool:
        """False once leadership ended; then nothing may be appended or read."""
        return self.is_current

    @property
    def own_end_offset(self) -> int:
        """Everything below it is in this broker's log, and on its disk if the topic wants that."""
        return self.ends.own_end_offset

    @property
    def appends_at_once(self) -> bool:
        """Whether this broker delays no append: only followers may have to be waited for."""
        log, ends = self.log, self.ends
        return (
            ends.own_end_offset == ends.log_end_offset
            and not log.has_flush_rules
            and not log.disk.is_held_up
        )

    @property
    def is_high_watermark_behind(self) -> bool:
        """Whether the high watermark is below the log end offset at which leadership began.

        If so, the leader before may have reported a higher one (KIP-207).
        """
        return self.high_watermark < self.epoch_start_offset

    @property
    def traffic(self) -> Traffic:
        """Bytes and records in and out since leadership began."""
        messages_in = self.log.log_end_offset - self.epoch_start_offset
        return Traffic(self.bytes_in, self.bytes_out, messages_in)

    @property
    def guards(self) -> Guards:
        """Guards of batches for which the coordinator of their transaction is asked."""
        if self._guards is None:
            self._guards = Guards()
        return self._guards

    def expire_guards(self, now_ms: int, expiration_ms: int) -> None:
        """Drop guards that nobody has asked with for `expiration_ms`. now_ms: monotonic."""
        if self._guards is not None:
            self._guards.expire(now_ms, expiration_ms)

    # Appending

    def append(self, batch: bytearray | memoryview | Prepared, now_ms: int) -> AppendResult:
        """Append one batch from a client; see PartitionLog.append_as_leader. Raises OSError.

        It is committed if it lies below the high watermark afterwards; else wait by
        `wait_committed`.
        """
        assert self.is_current, f"append to {self.topic}-{self.index}, which is led elsewhere"
        log, ends = self.log, self.ends
        end_before = ends.log_end_offset
        result = log.append_as_leader(batch, self.leader_epoch, now_ms)
        if ends.log_end_offset != end_before:
            size = len(batch.buffer if isinstance(batch, Prepared) else batch)
            self.bytes_in += size
            ends.appended(size)
            if log.has_flush_rules and self._rule is not None:
                self._rule.appended(self)
        return result

    def append_markers(self, markers: Sequence[tuple[Marker, int]], now_ms: int) -> list[ErrorCode]:
        """Append (marker, version of its transaction) by one write; an error for each.

        NONE: it is in the log; wait for its commit as for that of a batch. Else it was refused: see
        `ProducerStates.check_marker`. Guards of the transactions that end are dropped. Raises
        OSError.
        """
        assert self.is_current, f"append to {self.topic}-{self.index}, which is led elsewhere"
        results = self.log.append_markers(markers, self.leader_epoch, now_ms)
        errors = [
            each.error if isinstance(each, BatchRefusal) else ErrorCode.NONE for each in results
        ]
        size = MARKER_BYTES * errors.count(ErrorCode.NONE)
        if size:
            self.bytes_in += size
            self.ends.appended(size)
            if self.log.has_flush_rules and self._rule is not None:
                self._rule.appended(self)
        if self._guards is not None:
            for (marker, version), error in zip(markers, errors, strict=True):
                if error is ErrorCode.NONE:
                    self._guards.marked(marker.producer_id, marker.epoch, version)
        return errors

    # Effects of the ends

    def committed(self, size: int) -> None:
        if size:
            waiters = self.waiters
            waiters.committed(size)
            if waiters.of_stable:
                self._notify_of_stable(size)
        if self.ack_queue.count:
            self.ack_queue.check()

    def written(self, size: int) -> None:
        self.waiters.written(size)

    def own_part_done(self) -> None:
        if self.ack_queue.count:
            self.ack_queue.check()

    def flush(self) -> bool:
        return self._rule is not None and self._rule.flush(self)

    # Replicas

    def fetched(
        self,
        replica: int,
        broker_epoch: BrokerEpoch,
        offset: int,
        log_start_offset: int,
        *,
        now_ms: int,
    ) -> ErrorCode:
        """A follower fetches from `offset`, in this leader epoch; its log does not diverge.

        See LeaderReplicas.fetched. now_ms: monotonic.
        """
        error = self.ends.fetched(replica, broker_epoch, offset, log_start_offset, now_ms=now_ms)
        self.waiters.low_watermark_moved()
        return error

    def isr_change(
        self, now_ms: int, is_eligible: Callable[[int, BrokerEpoch], bool]
    ) -> IsrChange | None:
        """The ISR that should be written; see LeaderReplicas.isr_change."""
        change = self.ends.isr_change(now_ms, is_eligible)
        self._replicas_changed()
        return change

    def isr_won(self, revision: int) -> None:
        """The ISR change in flight was written. It may outlast this leadership."""
        if not self.is_current:
            self.replicas_state.won(revision)
            return
        self.ends.isr_won(revision)
        self._replicas_changed()

    def isr_lost(self, state: PartitionValue | None, revision: int) -> bool:
        """The ISR change in flight was not written; see LeaderReplicas.lost."""
        if not self.is_current:
            return self.replicas_state.lost(state, revision)
        goes_on = self.ends.isr_lost(state, revision)
        self._replicas_changed()
        return goes_on

    def learned(self, state: PartitionValue, revision: int) -> bool:
        """The image shows this state; see LeaderReplicas.learned."""
        goes_on = self.ends.learned(state, revision)
        self._replicas_changed()
        return goes_on

    def _replicas_changed(self) -> None:
        """The set of replicas changed: recompute what depends on it."""
        self.has_followers = bool(self.replicas_state.followers)
        self.is_at_min_isr = self.replicas_state.is_at_min_isr
        self.waiters.low_watermark_moved()

    # Deleting

    def delete_records(self, offset: int) -> int | ErrorCode:
        """Move the log start offset up to `offset` (-1: high watermark); return where it is then.

        Only committed records of a log whose cleanup.policy has delete can be deleted; else
        OFFSET_OUT_OF_RANGE or POLICY_VIOLATION. It is not durable yet. Source:
        Partition.deleteRecordsOnLeader (KIP-107).
        """
        if not self.log.config.deletes:
            return ErrorCode.POLICY_VIOLATION
        if offset == HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self.log.delete_records_before(offset)
        return self.log.log_start_offset

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The lowest log start offset of all live replicas."""
        return self.replicas_state.low_watermark(self.log.log_start_offset, is_alive)

    async def wait_deleted(self, offset: int, is_alive: Callable[[int], bool]) -> None:
        """Return once no live replica starts before `offset`. Raises NotLeading."""
        while self.is_current and self.low_watermark(is_alive) < offset:
            waiter = _AwaitedMove()
            self.waiters.add(waiter, LOW_WATERMARK)
            try:
                await waiter.moved
            finally:
                self.waiters.remove(waiter)
        self._require_leading()

    # Waiting

    def is_acked(self, end_offset: int, acks: int) -> bool:
        """Whether the records below `end_offset` may be acknowledged.

        With acks=1 they may once this broker's own part is done, with acks=all once they are
        committed.
        """
        ends = self.ends
        return end_offset <= (ends.high_watermark if acks == ALL else ends.own_end_offset)

    async def wait_committed(self, end_offset: int) -> None:
        """Return once all records below `end_offset` are committed. Raises NotLeading."""
        if self.is_current and not self.is_acked(end_offset, ALL):
            wait = AwaitedAck(end_offset, ALL, None)
            self.ack_queue.add(wait)
            await wait.outcome
        self._require_leading()

    def _require_leading(self) -> None:
        if not self.is_current:
            raise NotLeading(f"{self.topic}-{self.index}")

    def end(self) -> None:
        """Leadership ended: notify all waiters."""
        super().end()
        self.ack_queue.check()


class _AwaitedMove(Waiter):
    """Waits until a replica's log start may have moved, or leadership has ended."""

    __slots__ = ("moved",)

    def __init__(self) -> None:
        self.moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def low_watermark_moved(self) -> None:
        if not self.moved.done():  # else the waiting task was cancelled
            self.moved.set_result(None)

    role_ended = low_watermark_moved


def _alone(leader_epoch: LeaderEpoch, ends: ReplicaEnds) -> LeaderReplicas:
    """The state of a partition's only replica."""
    return LeaderReplicas(
        0,
        PartitionValue((0,), ((0, BrokerEpoch(0)),), 0, leader_epoch, PartitionEpoch(0), 1),
        0,
        ends=ends,
        lag_max_ms=_LAG_MAX_MS,
        now_ms=0,
    )
