"""Leader epochs of one log: the offset at which each leader began to write.

Source: KIP-101, KIP-279; Kafka's LeaderEpochFileCache.
Epochs ascend along the log, and so do their start offsets. A former leader asks the new one for the
end of its own last epoch, and so finds how much of its log is still valid.
"""

from bisect import bisect_right

import msgspec

from logfleet.types import NO_LEADER_EPOCH, LeaderEpoch

NO_EPOCH = NO_LEADER_EPOCH
NO_OFFSET = -1


class EpochStart(msgspec.Struct, frozen=True, gc=False):
    """The first offset that the leader of `epoch` wrote or would write."""

    epoch: LeaderEpoch
    start_offset: int


class LeaderEpochs:
    """The cache behind `leader-epoch-checkpoint`."""

    __slots__ = ("_entries",)

    def __init__(self, entries: tuple[EpochStart, ...] = ()) -> None:
        self._entries: list[EpochStart] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> LeaderEpoch:
        """The last epoch, or NO_EPOCH."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    @property
    def first(self) -> LeaderEpoch:
        """The first epoch in the cache, or NO_EPOCH."""
        return self._entries[0].epoch if self._entries else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Record that `epoch` starts at `start_offset`.

        Entries with a later epoch or a start at or behind it are removed.
        """
        if epoch <= NO_EPOCH:
            return
        entries = self._entries
        while entries and entries[-1].epoch > epoch:
            entries.pop()
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return
        while entries and (entries[-1].epoch == epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))

    def observe(self, epoch: LeaderEpoch, offset: int) -> None:
        """Record a batch of `epoch` at `offset`, if the cache says otherwise."""
        if self.epoch_of(offset) != epoch:
            self.assign(epoch, offset)

    def end_offset(self, epoch: LeaderEpoch, log_end_offset: int) -> tuple[LeaderEpoch, int]:
        """(epoch, end offset, exclusive) to answer an OffsetForLeaderEpoch for `epoch`.

        (-1, -1) if there is no answer. For an epoch between two in the cache it is the lower one
        and its end; for one before the first, the first's start.
        """
        if epoch == NO_EPOCH or not self._entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if after == len(self._entries):
            return NO_EPOCH, NO_OFFSET
        end = self._entries[after].start_offset
        return (self._entries[after - 1].epoch if after else epoch), end

    def last_end(self, epoch: LeaderEpoch, log_end_offset: int) -> tuple[LeaderEpoch, int]:
        """As `end_offset`, but an epoch above the last one gets the last one and the log end.

        (NO_EPOCH, log_end_offset) if the cache is empty. Source:
        KafkaMetadataLog.endOffsetForEpoch.
        """
        if epoch >= self.latest:
            return self.latest, log_end_offset
        return self.end_offset(epoch, log_end_offset)

    def epoch_of(self, offset: int) -> LeaderEpoch:
        """The epoch that wrote `offset`, or NO_EPOCH if it lies before the first entry."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[at - 1].epoch if at else NO_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Remove epochs that start at or after `end_offset`, including those without batches.

        Source: KAFKA-10706.
        """
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def truncate_start(self, start_offset: int) -> None:
        """Remove epochs that ended before `start_offset`.

        The one that holds it then starts there.
        """
        keep = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if keep == 0 or (keep == 1 and self._entries[0].start_offset == start_offset):
            return
        self._entries[:keep] = [EpochStart(self._entries[keep - 1].epoch, start_offset)]
