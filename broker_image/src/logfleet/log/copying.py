"""Whether a copy of a log that is still being made is a part of it, though the log was cut or lost old records meanwhile (KIP-113).

Source: ReplicaAlterLogDirsThread, which asks for the end of the copy's last epoch as a follower does.
"""

import msgspec

from logfleet.log.epochs import LeaderEpochs


class Extent(msgspec.Struct, frozen=True):
    """Offsets of a log, the end exclusive, and its leader epochs."""

    start: int
    end: int
    epochs: LeaderEpochs


def goes_on(copy: Extent, log: Extent, *, was_cut: bool) -> bool:
    """Whether the copy has all that the log has up to the copy's end, so that what follows there may be appended.

    was_cut: the log was shortened since that was so. Two logs that have batches of one epoch agree up to where the first
    of them ends, or goes on in another epoch (KIP-101).
    """
    if not copy.start <= log.start <= copy.end <= log.end:
        return False
    if not was_cut or copy.start == copy.end:
        return True
    known, end = log.epochs.end_offset(copy.epochs.latest, log.end)
    return known == copy.epochs.latest and copy.end <= end
