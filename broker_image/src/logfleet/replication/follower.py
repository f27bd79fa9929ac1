"""What a follower fetches, and what it does with the leader's response.

A follower truncates its log only where the leader reports a divergence, never at the high watermark
(KIP-101). So the first fetch after an election reconciles the logs: it names the log's end and last
epoch, and returns records only if the leader's log has both.
Source: KIP-101, 279, 595; AbstractFetcherThread, ReplicaFetcherThread.
"""

from enum import Enum, auto

import msgspec

from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.leader_epochs import NO_EPOCH, LeaderEpochs
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchResponse


class NextFetch(msgspec.Struct, frozen=True, gc=False):
    """One partition of a follower's fetch request.

    offset: the end of its log. last_fetched_epoch: the last leader epoch in its log, NO_EPOCH if
    the log is empty. leader_epoch: the epoch of the leader that it follows.
    """

    offset: int
    last_fetched_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch

    @property
    def is_ahead_of_leader(self) -> bool:
        """Whether the log ends in a leader epoch that its leader has not reached.

        The leader cannot find the divergence then (OFFSET_OUT_OF_RANGE). This happens only if the
        metadata store is older than the logs, after a restore.
        """
        return self.last_fetched_epoch > self.leader_epoch


class Action(Enum):
    """What a follower does with one partition of a fetch response."""

    APPEND = auto()
    """Append the records, then take over the leader's high watermark and log start."""
    TRUNCATE = auto()
    """Truncate the log to the offset, then fetch again."""
    ASK_RANGE = auto()
    """Ask the leader where its log starts and ends (ListOffsets), then call `out_of_range`."""
    RESET = auto()
    """Delete the log and start it again at the offset, then fetch again."""
    FETCH_ON = auto()
    """Nothing to do: fetch again."""
    WAIT = auto()
    """Stop fetching until the image brings another leader, leader epoch or registration."""
    BACK_OFF = auto()
    """Fetch again after replica.fetch.backoff.ms."""


class FollowerStep(msgspec.Struct, frozen=True, gc=False):
    """offset: for TRUNCATE and RESET, -1 otherwise."""

    action: Action
    offset: int = -1


_APPEND = FollowerStep(Action.APPEND)
_FETCH_ON = FollowerStep(Action.FETCH_ON)
_ERRORS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: FollowerStep(Action.ASK_RANGE),
    # the image will soon bring a newer leader epoch, or a newer registration of this broker
    ErrorCode.FENCED_LEADER_EPOCH: FollowerStep(Action.WAIT),
    ErrorCode.STALE_BROKER_EPOCH: FollowerStep(Action.WAIT),
}
_BACK_OFF = FollowerStep(Action.BACK_OFF)


def next_fetch(epochs: LeaderEpochs, log_end_offset: int, leader_epoch: LeaderEpoch) -> NextFetch:
    return NextFetch(log_end_offset, epochs.latest, leader_epoch)


def decide(
    asked: NextFetch,
    now: NextFetch,
    row: FetchResponse.PartitionData,
    epochs: LeaderEpochs,
) -> FollowerStep:
    """What a follower does with `row`, the response to `asked`.

    now: what it would request at this moment. If that differs, the response is ignored: a former
    leader must not truncate the log of a follower that has another leader. epochs: of its log.
    """
    if asked != now:
        return _FETCH_ON
    if row.error_code != ErrorCode.NONE:
        # NOT_LEADER, UNKNOWN_TOPIC_OR_PARTITION: the other broker has an older image
        return _ERRORS.get(ErrorCode(row.error_code), _BACK_OFF)
    diverging = row.diverging_epoch
    if diverging is not None and diverging.epoch >= 0:
        end = (LeaderEpoch(diverging.epoch), diverging.end_offset)
        return _cut(truncation_offset(epochs, now.offset, end), row.log_start_offset)
    return _APPEND


def _cut(offset: int, leader_start_offset: int) -> FollowerStep:
    """Truncate at `offset`, where the logs diverge.

    Reset if that is at or below the leader's start.

    A leader has no epochs for the records that it has deleted, so it reports its log start as the
    end of each such epoch (LeaderEpochFileCache.endOffsetFor). The follower's records below it may
    never have been committed. They must go at once: before the follower takes over the log start
    it may be in the ISR, and lead.
    """
    if 0 < leader_start_offset >= offset:
        return FollowerStep(Action.RESET, leader_start_offset)
    return FollowerStep(Action.TRUNCATE, offset)


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, diverging: EpochEnd) -> int:
    """The offset to truncate to, given the leader's (epoch, end offset); at most log_end_offset.

    If the log lacks that epoch, it is truncated to the end of its largest smaller epoch, and the
    next fetch finds the rest (KIP-279). Each response removes an epoch or records, even if the
    offset is the log's end, as truncation also drops an epoch that starts there (KAFKA-10706).
    Source: AbstractFetcherThread.getOffsetTruncationState.
    """
    leader_epoch, leader_end_offset = diverging
    epoch, end_offset = epochs.end_offset(leader_epoch, log_end_offset)
    if epoch == NO_EPOCH:
        end_offset = leader_end_offset
    elif epoch == leader_epoch:
        end_offset = min(end_offset, leader_end_offset)
    return min(end_offset, log_end_offset)


def out_of_range(
    log_end_offset: int, leader_start_offset: int, leader_end_offset: int
) -> FollowerStep:
    """What a follower does if its log end lies outside the leader's log.

    Beyond the leader's end: only after an unclean election; truncate. Below the leader's start: the
    follower was away for longer than the retention; reset.
    Source: AbstractFetcherThread.fetchOffsetAndTruncate.
    """
    if leader_end_offset < log_end_offset:
        return FollowerStep(Action.TRUNCATE, leader_end_offset)
    if leader_start_offset > log_end_offset:
        return FollowerStep(Action.RESET, leader_start_offset)
    return _BACK_OFF


def high_watermark(current: int, of_leader: int, log_end_offset: int) -> int:
    """A follower's high watermark after a response in which the leader reports `of_leader`.

    It never moves back: committed records stay committed, even if a new leader has not caught up
    with that yet. It never passes the end of the follower's own log.
    """
    return min(max(current, of_leader), log_end_offset)


def log_start_offset(current: int, of_leader: int, high_watermark: int) -> int:
    """A follower's log start: the leader's, but at most the follower's high watermark.

    Source: UnifiedLog.maybeIncrementLogStartOffset.
    """
    return max(current, min(of_leader, high_watermark))
