"""This broker's replica of a partition, in any role: its log and its high watermark.

A role (leading, following, neither) is an object of its own for as long as it lasts; code that
still holds the object of an ended role sees it by `is_current`. What the roles share passes from
one to the next.
"""

from logfleet.log.partition_log import PartitionLog
from logfleet.node.partitions.traffic import Traffic
from logfleet.node.partitions.uncommitted import Uncommitted
from logfleet.replication.waiters import Waiter, Waiters
from logfleet.types import NO_LEADER_EPOCH, LeaderEpoch


class Replica:
    """A replica that neither leads nor follows; the other roles are subclasses.

    high_watermark: every record below it is committed (exclusive), as far as this broker has
    learned; never outside the log. leader_epoch: of the role, -1 for none; led_epoch: the newest in
    which this broker led, -1 for none. is_current: False once another role has taken its place, or
    the log is no longer hosted. bytes_out: sent to consumers in this role; last_reader: the client
    id of the consumer that got the last of them.
    """

    __slots__ = (
        "bytes_out",
        "high_watermark",
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
        high_watermark: int = 0,
        led_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.led_epoch = led_epoch
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.is_current = True
        self.bytes_out = 0
        self.last_reader: str | None = None

    @staticmethod
    def of(former: "Replica") -> "Replica":
        """The replica that remains after a role has ended."""
        return Replica(
            former.topic,
            former.topic_id,
            former.index,
            former.log,
            high_watermark=former.high_watermark,
            led_epoch=former.led_epoch,
        )

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open.

        Transactions are not served: none is ever open.
        """
        return self.high_watermark

    @property
    def traffic(self) -> Traffic:
        """Traffic in this role; only a leader counts what comes in."""
        return Traffic(bytes_out=self.bytes_out)

    def end(self) -> None:
        """The role has ended."""
        self.is_current = False


class ServedReplica(Replica):
    """A replica that clients may read: one that leads or follows. It has waiters."""

    __slots__ = ("waiters",)

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        leader_epoch: LeaderEpoch,
        *,
        high_watermark: int,
        led_epoch: LeaderEpoch,
    ) -> None:
        super().__init__(
            topic,
            topic_id,
            index,
            log,
            leader_epoch,
            high_watermark=high_watermark,
            led_epoch=led_epoch,
        )
        self.waiters = Waiters()
        log.on_start_moved = self.waiters.log_start_moved

    def add_waiter(self, waiter: Waiter, interests: int) -> None:
        """Notify the waiter of these (`logfleet.replication.waiters`), until `remove_waiter`."""
        self.waiters.add(waiter, interests)

    def remove_waiter(self, waiter: Waiter) -> None:
        self.waiters.remove(waiter)

    def end(self) -> None:
        """The role has ended: notify the waiters."""
        super().end()
        self.waiters.role_ended()


class FollowerPartition(ServedReplica):
    """A replica of a partition that the broker `leader` leads in `leader_epoch`.

    Consumers may read below its high watermark (KIP-392). lag: committed records that were still
    missing after the leader's last answer, -1 before the first.
    """

    __slots__ = ("_uncommitted", "lag", "leader")

    def __init__(self, replica: Replica, leader: int, leader_epoch: LeaderEpoch) -> None:
        super().__init__(
            replica.topic,
            replica.topic_id,
            replica.index,
            replica.log,
            leader_epoch,
            high_watermark=replica.high_watermark,
            led_epoch=replica.led_epoch,
        )
        self.leader = leader
        self.lag = -1
        self._uncommitted = Uncommitted()

    @property
    def is_following(self) -> bool:
        """Whether this role still lasts."""
        return self.is_current

    def appended(self, size: int) -> None:
        """Record that `size` bytes from the leader were just appended to the log."""
        self._uncommitted.add(self.log.log_end_offset, size)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Record that the leader has committed everything below `high_watermark`."""
        self.high_watermark = high_watermark
        size = self._uncommitted.take(high_watermark)
        if size:
            self.waiters.committed(size)

    def truncated(self) -> None:
        """The log was truncated, or starts elsewhere."""
        self._uncommitted.clear()
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
