"""This broker's copy of a partition, whoever leads it: its log and what it knows to be committed.

A role (leading, following, neither) is an object of its own for as long as it lasts: whoever holds one of a role that is over sees that.
What the roles have in common passes on from one to the next.
"""

from logfleet.storage.partition_log import PartitionLog


class Replica:
    """A replica that neither leads nor follows; the other roles are kinds of it.

    high_watermark: offset below which every record is committed (exclusive), as far as this broker knows; never outside the log.
    leader_epoch: of the role, -1 for none. is_current: False once another role has taken its place, or the log is no longer hosted.
    """

    __slots__ = (
        "high_watermark",
        "index",
        "is_current",
        "leader_epoch",
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
        leader_epoch: int = -1,
        *,
        high_watermark: int = 0,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.is_current = True

    @staticmethod
    def of(former: "Replica") -> "Replica":
        """What is left of a role that is over."""
        return Replica(
            former.topic,
            former.topic_id,
            former.index,
            former.log,
            high_watermark=former.high_watermark,
        )

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Offset below which no transaction is open: none can be, transactions are not served."""
        return self.high_watermark

    def end(self) -> None:
        """The role is over."""
        self.is_current = False


class FollowedPartition(Replica):
    """A replica of a partition that the broker `leader` leads in `leader_epoch`."""

    __slots__ = ("leader",)

    def __init__(self, replica: Replica, leader: int, leader_epoch: int) -> None:
        super().__init__(
            replica.topic,
            replica.topic_id,
            replica.index,
            replica.log,
            leader_epoch,
            high_watermark=replica.high_watermark,
        )
        self.leader = leader

    @property
    def is_following(self) -> bool:
        """Whether it still is."""
        return self.is_current
