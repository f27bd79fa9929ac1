"""What a follower checks of its leader's batches before it appends them unchanged.

A follower trusts all that the leader decided: offsets, epochs, timestamps, producers. It does not
trust the transport: each batch must be whole, have the right checksum and follow the one before.
Source: `UnifiedLog.appendAsFollower`.
"""

from logfleet.log.segments.valid_batches import is_plausible
from logfleet.records.batch import BatchHeader, crc_matches, iterate_headers
from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords
from logfleet.types import LeaderEpoch


class UnexpectedAppendOffset(Exception):
    """The first batch begins below the log end (Kafka: UnexpectedAppendOffsetException).

    An empty log whose end lies within the batches has to be reset to `first_offset`: the leader's
    log start then lies in the middle of a batch, as after DeleteRecords
    (Partition.appendRecordsToFollowerOrFutureReplica).
    """

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"batches from {first_offset} to {last_offset} for a log that ends at {log_end_offset}"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset


def replicated_batches(
    records: Buffer, log_end_offset: int, leader_epoch: LeaderEpoch
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of the batches to append. Raises CorruptRecords, UnexpectedAppendOffset.

    Skipped: a batch that Fetch cut off at the end; and everything from the first batch on that a
    leader later than `leader_epoch` wrote, as then the sender no longer leads (KAFKA-18723).
    Offsets may be missing anywhere, also at the beginning: the leader may have compacted its log
    beyond the end of this one.
    """
    found: list[tuple[int, BatchHeader]] = []
    next_offset = 0
    for position, header in iterate_headers(records):
        if header.leader_epoch > leader_epoch:
            break
        if not is_plausible(header, next_offset):
            raise CorruptRecords(
                f"no valid batch after offset {next_offset} at {position}: {header}"
            )
        if not crc_matches(records, header, position):
            raise CorruptRecords(f"wrong checksum of the batch at {position}: {header}")
        found.append((position, header))
        next_offset = header.next_offset
    if found and found[0][1].base_offset < log_end_offset:
        raise UnexpectedAppendOffset(found[0][1].base_offset, next_offset - 1, log_end_offset)
    return found
