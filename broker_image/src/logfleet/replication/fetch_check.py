"""The leader's checks of the epochs in a request, before it serves it (KIP-101, 320, 595)."""

from logfleet.replication.leader_epochs import NO_EPOCH, LeaderEpochs
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

EpochEnd = tuple[LeaderEpoch, int]
"""(leader epoch, end offset of that epoch, exclusive)."""


def leader_epoch_error(current: LeaderEpoch, leader_epoch: LeaderEpoch) -> ErrorCode:
    """Whether the leader of `leader_epoch` serves a request that names the epoch `current`.

    NONE: it does, also if current is NO_EPOCH. FENCED_LEADER_EPOCH: the request names an older
    epoch.
    UNKNOWN_LEADER_EPOCH: it names a newer one, which this broker has not seen yet.
    Source: Partition.checkCurrentLeaderEpoch.
    """
    if current in {leader_epoch, NO_EPOCH}:
        return ErrorCode.NONE
    older = current < leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH


def diverging_epoch(
    epochs: LeaderEpochs,
    log_start_offset: int,
    log_end_offset: int,
    *,
    last_fetched_epoch: LeaderEpoch,
    fetch_offset: int,
    of_follower: bool,
) -> EpochEnd | ErrorCode | None:
    """Where the reader's log diverges from the leader's; None if it does not.

    The answer is the leader's largest epoch that is at most the reader's last one, and its end.
    OFFSET_OUT_OF_RANGE: the leader no longer has that part of its log.
    last_fetched_epoch: NO_EPOCH if the reader sends none, which skips the check.
    Source: Partition.readRecords (KIP-595).

    A follower whose log ends where the leader's starts, in an epoch that the leader has deleted,
    counts as diverged there: it may hold records that were never committed. The log start would
    hide these records, but not their producers' sequence numbers: once this follower leads, it
    would acknowledge a retry of such a record. Kafka lets the follower continue.
    """
    if last_fetched_epoch <= NO_EPOCH:
        return None
    epoch, end_offset = epochs.end_offset(last_fetched_epoch, log_end_offset)
    if epoch < 0 or end_offset < 0 or fetch_offset < log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return epoch, end_offset
    if of_follower and 0 < fetch_offset == log_start_offset and last_fetched_epoch < epochs.first:
        return last_fetched_epoch, log_start_offset
    return None
