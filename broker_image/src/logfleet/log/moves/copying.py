"""Whether a copy is still a prefix of its log after the log was truncated (KIP-113).

Source: ReplicaAlterLogDirsThread, which asks for the end of the copy's last epoch as a follower
does.
"""

import msgspec

from logfleet.replication.leader_epochs import LeaderEpochs


class Extent(msgspec.Struct, frozen=True):
    """Offsets of a log, the end exclusive, and its leader epochs."""

    start: int
    end: int
    epochs: LeaderEpochs


def is_prefix(copy: Extent, log: Extent, *, was_cut: bool) -> bool:
    """Whether the copy equals the log up to the copy's end, so that the rest may be appended.

    was_cut: the log was truncated since this was last true. Two logs with batches of the same epoch
    agree up to where the first of them ends or continues in another epoch (KIP-101).
    """
    if not copy.start <= log.start <= copy.end <= log.end:
        return False
    if not was_cut or copy.start == copy.end:
        return True
    epoch, end = log.epochs.end_offset(copy.epochs.latest, log.end)
    return epoch == copy.epochs.latest and copy.end <= end
