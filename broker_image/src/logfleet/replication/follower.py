"""What a follower fetches, and what it makes of the leader's answer (KIP-101, 279, 595; AbstractFetcherThread, ReplicaFetcherThread).

A log is cut only where the leader says that it diverges, never at the high watermark (KIP-101). So the first fetch after an election
is the reconciliation: it says the log's end and last epoch, and brings records only if both are the leader's too.
"""

from enum import Enum, auto

import msgspec

from logfleet.log.epochs import NO_EPOCH, LeaderEpochs
from logfleet.replication.fetch_check import EpochEnd
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchResponse


class NextFetch(msgspec.Struct, frozen=True, gc=False):
    """What a follower's fetch says of one partition.

    offset: where its log ends. last_fetched_epoch: its last leader epoch, NO_EPOCH for an empty log. leader_epoch: the one that it follows.
    """

    offset: int
    last_fetched_epoch: int
    leader_epoch: int

    @property
    def is_ahead_of_leader(self) -> bool:
        """Whether the log ends in a leader epoch that its leader has not reached.

        The leader cannot say then where the logs part (OFFSET_OUT_OF_RANGE). Only a metadata store
        that is older than the logs brings that about.
        """
        return self.last_fetched_epoch > self.leader_epoch


class Action(Enum):
    """What a follower does about a row of an answer."""

    APPEND = auto()
    """Append what there is, and take over high watermark and log start."""
    TRUNCATE = auto()
    """Cut the log at the offset, and fetch on."""
    ASK_RANGE = auto()
    """Ask the leader where its log starts and ends (ListOffsets); `out_of_range` says what then."""
    RESET = auto()
    """Let the log begin anew at the offset, and fetch on."""
    FETCH_ON = auto()
    """Nothing to do."""
    WAIT = auto()
    """Fetch no more until the image brings another leader, leader epoch or registration."""
    BACK_OFF = auto()
    """Fetch again after replica.fetch.backoff.ms."""


class FollowerStep(msgspec.Struct, frozen=True, gc=False):
    """offset: of TRUNCATE and RESET."""

    action: Action
    offset: int = -1


_APPEND = FollowerStep(Action.APPEND)
_FETCH_ON = FollowerStep(Action.FETCH_ON)
_ERRORS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: FollowerStep(Action.ASK_RANGE),
    # a newer leader epoch, or a newer registration of this broker, is on its way here
    ErrorCode.FENCED_LEADER_EPOCH: FollowerStep(Action.WAIT),
    ErrorCode.STALE_BROKER_EPOCH: FollowerStep(Action.WAIT),
}
_BACK_OFF = FollowerStep(Action.BACK_OFF)


def next_fetch(epochs: LeaderEpochs, log_end_offset: int, leader_epoch: int) -> NextFetch:
    return NextFetch(log_end_offset, epochs.latest, leader_epoch)


def decide(
    asked: NextFetch,
    now: NextFetch,
    row: FetchResponse.PartitionData,
    epochs: LeaderEpochs,
) -> FollowerStep:
    """What the answer to `asked` means to a follower that by now would ask for `now`; epochs: of its log.

    An answer to what it would no longer ask for changes nothing: a leader of the past must not cut the log of a follower that has another by now.
    """
    if asked != now:
        return _FETCH_ON
    if row.error_code != ErrorCode.NONE:
        # whoever does not know the partition, or not yet that it leads it, has an older image
        return _ERRORS.get(ErrorCode(row.error_code), _BACK_OFF)
    diverging = row.diverging_epoch
    if diverging is not None and diverging.epoch >= 0:
        end = (diverging.epoch, diverging.end_offset)
        return _cut(truncation_offset(epochs, now.offset, end), row.log_start_offset)
    return _APPEND


def _cut(offset: int, leader_start_offset: int) -> FollowerStep:
    """What a follower does whose log the leader's leaves at this offset.

    A leader does not know the epochs of what it has deleted, so it names its log's start for the
    end of each of them (LeaderEpochFileCache.endOffsetFor). The follower's records below may be
    ones that were never committed: none of them may stay until the log start is taken over, as
    the follower may be in the ISR and lead before that.
    """
    if 0 < leader_start_offset >= offset:
        return FollowerStep(Action.RESET, leader_start_offset)
    return FollowerStep(Action.TRUNCATE, offset)


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, diverging: EpochEnd) -> int:
    """Where to cut the log, which the leader's leaves at or before the end of that epoch; at most log_end_offset.

    If the log has no such epoch, it is cut where its largest epoch below that one ends, and the next fetch tells more (KIP-279): each
    answer takes an epoch or records away, also where the offset is the log's end, as cutting forgets an epoch that starts there
    (KAFKA-10706). Source: AbstractFetcherThread.getOffsetTruncationState.
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
    """What a follower does whose log end the leader does not have (AbstractFetcherThread.fetchOffsetAndTruncate).

    It has more than the leader only after an unclean election; less than the leader keeps, if it was away for longer than the retention.
    """
    if leader_end_offset < log_end_offset:
        return FollowerStep(Action.TRUNCATE, leader_end_offset)
    if leader_start_offset > log_end_offset:
        return FollowerStep(Action.RESET, leader_start_offset)
    return _BACK_OFF


def high_watermark(known: int, told: int, log_end_offset: int) -> int:
    """A follower's high watermark, of the one it knew and the one the leader told it.

    Never back, as what is committed stays so, whatever a new leader knows of it yet; never beyond its own log.
    """
    return min(max(known, told), log_end_offset)


def log_start_offset(known: int, told: int, high_watermark: int) -> int:
    """Where a follower's log starts: it follows the leader's up to what it knows to be committed (UnifiedLog.maybeIncrementLogStartOffset)."""
    return max(known, min(told, high_watermark))
