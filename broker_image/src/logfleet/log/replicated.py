"""What a follower checks of the batches that its leader's Fetch answered, before they go into its log as they are.

A follower trusts its leader in everything that the leader decided: offsets, epochs, timestamps, producers. What it does not trust is the
way: each batch is whole, has the right checksum and lies behind the one before. Source: `UnifiedLog.appendAsFollower`.
"""

from logfleet.log.recovery import is_plausible
from logfleet.records.batch import BatchHeader, crc_matches, iterate_headers
from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords


class UnexpectedAppendOffset(Exception):
    """The first batch begins below the log's end (Kafka: UnexpectedAppendOffsetException).

    An empty log that ends within the batches begins anew at `first_offset`: the leader's log starts in the middle of a batch then, as
    after DeleteRecords (Partition.appendRecordsToFollowerOrFutureReplica).
    """

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"batches from {first_offset} to {last_offset} for a log that ends at {log_end_offset}"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset


def replicated_batches(
    records: Buffer, log_end_offset: int, leader_epoch: int
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of the batches that are to be appended. Raises CorruptRecords, UnexpectedAppendOffset.

    Left out: a batch that is cut off at the end, as by Fetch, and from the first on that a later leader than that of `leader_epoch` wrote:
    whoever answered leads no more (KAFKA-18723). Offsets may be missing anywhere, at the beginning too: the leader may have compacted
    its log further than this one reaches.
    """
    found: list[tuple[int, BatchHeader]] = []
    next_offset = 0
    for position, header in iterate_headers(records):
        if header.leader_epoch > leader_epoch:
            break
        if not is_plausible(header, next_offset):
            raise CorruptRecords(f"no batch that may follow {next_offset} at {position}: {header}")
        if not crc_matches(records, header, position):
            raise CorruptRecords(f"wrong checksum of the batch at {position}: {header}")
        found.append((position, header))
        next_offset = header.next_offset
    if found and found[0][1].base_offset < log_end_offset:
        raise UnexpectedAppendOffset(found[0][1].base_offset, next_offset - 1, log_end_offset)
    return found
