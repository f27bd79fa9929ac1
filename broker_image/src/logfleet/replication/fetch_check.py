"""What a leader says to the epochs of a request before it serves it (KIP-101, 320, 595)."""

from logfleet.log.epochs import NO_EPOCH, LeaderEpochs
from logfleet.wire.errors import ErrorCode

EpochEnd = tuple[int, int]
"""A leader epoch and where it ends (exclusive)."""


def leader_epoch_error(current: int, leader_epoch: int) -> ErrorCode:
    """NONE, or why a client that holds `current` for the leader epoch, or says NO_EPOCH, is not served by the leader of `leader_epoch`.

    FENCED_LEADER_EPOCH: it knows an older one. UNKNOWN_LEADER_EPOCH: a newer one, and the leader will hear of it.
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
    last_fetched_epoch: int,
    fetch_offset: int,
    of_follower: bool,
) -> EpochEnd | ErrorCode | None:
    """Where the reader's log left the leader's: the largest epoch up to the reader's last one, and its end. None if it did not.

    OFFSET_OUT_OF_RANGE if the leader cannot tell. last_fetched_epoch: NO_EPOCH if the reader does not ask. Source: Partition.readRecords (KIP-595).

    A follower whose log ends where the leader's starts, in an epoch that the leader has forgotten,
    counts as diverged there. It may have records that were never committed. They would be hidden
    by the log start, but their producers' sequence numbers would not: a retry of such a record
    would be acknowledged once this follower leads. Kafka lets it go on.
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
