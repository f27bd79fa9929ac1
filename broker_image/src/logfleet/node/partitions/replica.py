"""This broker's replica of a partition, in any role: its log and its ends.

A role (leading, following, neither) is an object of its own for as long as it lasts; code that
still holds the object of an ended role sees it by `is_current`. What the roles share passes from
one to the next with the log.
"""

from logfleet.log.partition_log import PartitionLog
from logfleet.node.partitions.traffic import Traffic
from logfleet.replication.ends import UNCOUNTED_BYTES
from logfleet.replication.waiters import STABLE, Waiter, Waiters
from logfleet.types import NO_LEADER_EPOCH, LeaderEpoch
from logfleet.wire.errors import ErrorCode


class Replica:
    """A replica that neither leads nor follows; the other roles are subclasses.

    ends: of the log (`logfleet.replication.ends`). leader_epoch: of the role, -1 for none;
    led_epoch: the newest in which this broker led, -1 for none. is_current: False once another role
    has taken its place, or the log is no longer hosted. bytes_out: sent to consumers in this role;
    last_reader: the client id of the consumer that got the last of them.
    """

    __slots__ = (
        "bytes_out",
        "ends",
        "index",
        "is_current",
        "last_reader",
        "leader_epoch",
        "led_epoch",
        "log",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        *,
        high_watermark: int | None = None,
        led_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> None:
        """high_watermark: as it was found at the start, None if the log's ends have it already."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.ends = log.ends
        self.leader_epoch = leader_epoch
        self.led_epoch = led_epoch
        self.is_current = True
        self.bytes_out = 0
        self.last_reader: str | None = None
        if high_watermark is not None:
            self.ends.hosted(high_watermark)

    @staticmethod
    def of(former: "Replica") -> "Replica":
        """The replica that remains after a role has ended."""
        return Replica(
            former.topic, former.topic_id, former.index, former.log, led_epoch=former.led_epoch
        )

    @property
    def high_watermark(self) -> int:
        """Every record below it is committed (exclusive), as far as this broker has learned."""
        return self.ends.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.ends.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every record is committed, and every transaction has ended (exclusive).

        The end of its transaction is below the high watermark, too (KAFKA-5121).
        """
        return self.log.last_stable_offset(self.ends.high_watermark)

    @property
    def traffic(self) -> Traffic:
        """Traffic in this role; only a leader counts what comes in."""
        return Traffic(bytes_out=self.bytes_out)

    def end(self) -> None:
        """The role has ended."""
        self.is_current = False


class ServedReplica(Replica):
    """A replica that clients may read: one that leads or follows. It has waiters."""

    __slots__ = ("_stable_end", "_stable_is_all", "waiters")

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        leader_epoch: LeaderEpoch,
        *,
        led_epoch: LeaderEpoch,
    ) -> None:
        super().__init__(topic, topic_id, index, log, leader_epoch, led_epoch=led_epoch)
        self.waiters = Waiters()
        # the last stable offset that waiters for it count from, and whether it was the high
        # watermark then
        self._stable_end, self._stable_is_all = 0, False

    def add_waiter(self, waiter: Waiter, interests: int) -> None:
        """Notify the waiter of these (`logfleet.replication.waiters`), until `remove_waiter`."""
        if interests & STABLE and not self.waiters.of_stable:
            self._record_stable_end()
        self.waiters.add(waiter, interests)

    def remove_waiter(self, waiter: Waiter) -> None:
        self.waiters.remove(waiter)

    # Effects of the ends; see logfleet.replication.ends

    def committed(self, size: int) -> None:
        if size:
            waiters = self.waiters
            waiters.committed(size)
            if waiters.of_stable:
                self._notify_of_stable(size)

    def _notify_of_stable(self, size: int) -> None:
        """Records of `size` bytes were committed: some may be stable now, or earlier ones."""
        self.waiters.next_committed(size)
        former, was_all = self._stable_end, self._stable_is_all
        self._record_stable_end()
        if self._stable_end > former:
            is_all = was_all and self._stable_is_all
            self.waiters.stable(size if is_all else self._size_between(former, self._stable_end))

    def _record_stable_end(self) -> None:
        self._stable_end = self.last_stable_offset
        self._stable_is_all = self._stable_end == self.high_watermark

    def _size_between(self, start: int, end: int) -> int:
        """The bytes of the batches there: an upper bound if they are not in one segment."""
        try:
            found = self.log.read(start, UNCOUNTED_BYTES, end)
        except OSError:
            return UNCOUNTED_BYTES  # the waiters read it too, and handle the failure
        if found is None:
            return 0
        if isinstance(found, ErrorCode) or found.is_cut:
            return UNCOUNTED_BYTES
        return len(found)

    def written(self, size: int) -> None:
        self.waiters.written(size)

    def own_part_done(self) -> None:
        """Nobody waits for that."""

    def flush(self) -> bool:
        """No record of this role waits for the disk."""
        return False

    def log_start_moved(self) -> None:
        self.waiters.log_start_moved()

    def end(self) -> None:
        """The role has ended: keep the ends as they are now, and notify the waiters."""
        super().end()
        self.log.ends.stop(self)
        self.ends = self.ends.as_of_now()
        self.waiters.role_ended()


class FollowerPartition(ServedReplica):
    """A replica of a partition that the broker `leader` leads in `leader_epoch`.

    Consumers may read below its high watermark (KIP-392). lag: committed records that were still
    missing after the leader's last answer, -1 before the first.
    """

    __slots__ = ("lag", "leader")

    def __init__(self, replica: Replica, leader: int, leader_epoch: LeaderEpoch) -> None:
        super().__init__(
            replica.topic,
            replica.topic_id,
            replica.index,
            replica.log,
            leader_epoch,
            led_epoch=replica.led_epoch,
        )
        self.leader = leader
        self.lag = -1
        self.ends.follow(self)

    @property
    def is_following(self) -> bool:
        """Whether this role still lasts."""
        return self.is_current

    def appended(self, size: int) -> None:
        """Record that `size` bytes from the leader were just appended to the log."""
        self.ends.received(size)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Record that the leader has committed everything below `high_watermark`."""
        self.ends.leader_committed(high_watermark)
