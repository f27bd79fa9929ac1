"""One partition that a fetcher copies: its row in the next fetch, and its pauses."""

from typing import Final

from logfleet.node.partitions.replica import FollowerPartition
from logfleet.replication.follower import NextFetch, next_fetch
from logfleet.wire.messages import FetchRequest

PAUSE_S_MIN: Final = 0.05
"""The first pause of a partition after an error; the next ones are longer."""


class Followed:
    """A partition that is copied, for as long as it has one leader in one leader epoch.

    asked: its row in the last request; None if that request did not name it, so that no response
    can be about it.
    pause_s: how long its next pause is. is_ahead: its log has leader epochs above its leader's, and
    that was logged.
    """

    __slots__ = ("asked", "is_ahead", "partition", "pause_s", "wanted")

    def __init__(self, partition: FollowerPartition, bytes_max: int) -> None:
        """bytes_max: how many bytes of records an answer may hold (replica.fetch.max.bytes)."""
        self.partition = partition
        self.asked: NextFetch | None = None
        self.is_ahead = False
        self.pause_s = PAUSE_S_MIN
        self.wanted = FetchRequest.FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch,
            partition_max_bytes=bytes_max,
        )

    def ask(self) -> FetchRequest.FetchPartition:
        """The row of the next request; an answer is compared with it."""
        asked = self.asked = self.next()
        wanted = self.wanted
        wanted.fetch_offset = asked.offset
        wanted.last_fetched_epoch = asked.last_fetched_epoch
        wanted.log_start_offset = self.partition.log.log_start_offset
        return wanted

    def next(self) -> NextFetch:
        """The fields of a request for the current state of the log."""
        partition_log = self.partition.log
        return next_fetch(
            partition_log.epochs, partition_log.log_end_offset, self.partition.leader_epoch
        )

    def take_pause(self, s_max: float) -> float:
        """Return the next pause, in seconds. The next pause is twice as long, s_max at most."""
        pause_s = self.pause_s
        self.pause_s = min(2 * pause_s, s_max)
        return pause_s

    def appended(self) -> None:
        """Record that records arrived, so the cause of pauses is over."""
        self.pause_s = PAUSE_S_MIN
        self.is_ahead = False
