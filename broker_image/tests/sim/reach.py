"""Which of the logs that the controller asked about reaches furthest, as the checker judges it."""

from collections.abc import Collection

from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.leader_epochs import NO_EPOCH


def reaches_as_far(log: EpochEnd, rivals: Collection[EpochEnd], last_leaders: EpochEnd) -> bool:
    """Whether this log has all that any of the rivals has. Each is (last leader epoch, end offset).

    A log of which all records were deleted may know no epoch. If it is the last leader's, rivals
    that end before it lack what was committed.
    """
    epoch, end_offset = last_leaders
    emptied = end_offset if epoch == NO_EPOCH else 0
    return all(log >= each or each[1] < emptied <= log[1] for each in rivals)
