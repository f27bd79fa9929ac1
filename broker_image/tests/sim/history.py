"""What the checker remembers of one partition: which records were committed, and which of them an unclean election may have cost."""

import math

import msgspec
from logfleet.metadata.image import Partition

from broker_image.tests.sim.replica_log import NO_PRODUCER, Batch, ReplicaLog


class UncleanElection(msgspec.Struct):
    """leader_epoch: of the elected leader. kept: so many of the records that were committed then survive."""

    leader_epoch: int
    kept: int


class PartitionHistory:
    """committed: by offset, each record that a leader showed as committed and no unclean election cost.

    values: of the committed records of idempotent producers. last: the last one of each.
    records: (offset, epoch) -> (value, epoch of the record before).
    leaders: leader epoch -> (broker id, broker epoch) of who began to lead in it.
    doubtful: brokers whose last registration said that they may have lost records, since they
    last joined the ISR.
    may_lose: an unclean election has chosen a leader that has not begun to lead yet. It may lack
    committed records from this offset on; None if it may lack none.
    deleted: records below this offset were deleted in a replica. is_deleted: the topic was, so that
    replicas may have nothing of it any more.
    """

    def __init__(self) -> None:
        self.committed: list[Batch] = []
        self.values: set[str] = set()
        self.last: dict[int, Batch] = {}
        self.records: dict[tuple[int, int], tuple[str, int]] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        self.doubtful: set[int] = set()
        self.may_lose: int | None = None
        self.deleted = 0
        self.state: Partition | None = None
        self.is_deleted = False
        self._unclean: list[UncleanElection] = []

    def elected_uncleanly(
        self, leader_epoch: int, log: ReplicaLog | None, may_lose: int | None
    ) -> None:
        """One that was elected so before, and has not led yet, has not judged what is lost."""
        known = [each for each in (self.may_lose, may_lose) if each is not None]
        self.may_lose = min(known, default=None)
        self._unclean.append(UncleanElection(leader_epoch, self.kept_in(log)))

    def awaits(self, leader_epoch: int) -> bool:
        """Whether a leader of this epoch is the first to lead after the last unclean election."""
        return self.may_lose is not None and leader_epoch >= self._unclean[-1].leader_epoch

    def kept_in(self, log: ReplicaLog | None) -> int:
        """How many of the committed records the log has, from the first on; deleted ones count."""
        if log is None:
            return 0
        count = min(len(self.committed), log.end_offset)
        while count > log.start_offset and log.at(count - 1) != self.committed[count - 1]:
            count -= 1
        return count

    def reaches(self, log: ReplicaLog, offset: int) -> bool:
        """Whether the log has a committed record from there on."""
        there = log.read(max(offset, log.start_offset), log.end_offset)
        return any(map(self.is_committed, there))

    def cut(self, kept: int, start: int) -> None:
        """The leader of an unclean election begins to lead, with so many of the committed records.

        start: of its log. An older disk may lack records below it that were deleted since, and
        never had the producers of others.
        """
        self._unclean[-1].kept = kept
        for batch in self.committed[kept:]:
            self.values.discard(batch.value)
        del self.committed[kept:]
        self.committed += [Batch(offset, 0, "deleted") for offset in range(kept, start)]
        self.last = {
            each.producer: each
            for each in self.committed[start:]
            if each.producer != NO_PRODUCER and each.part is None
        }

    def deleted_before(self, offset: int) -> None:
        """A replica's log starts there: nobody looks for what is below."""
        for batch in self.committed[self.deleted : offset]:
            self.values.discard(batch.value)
        self.deleted = max(self.deleted, offset)

    def commit(self, batch: Batch) -> None:
        if batch.producer != NO_PRODUCER and batch.part is None:
            self.values.add(batch.value)
            self.last[batch.producer] = batch
        self.committed.append(batch)

    def is_committed(self, batch: Batch) -> bool:
        return batch.offset < len(self.committed) and self.committed[batch.offset] == batch

    def sure_end(self, leader_epoch: int) -> float:
        """Below this offset what a leader of this epoch takes for committed is committed.

        From there on an unclean election of a later epoch may have cost it.
        """
        later = [each.kept for each in self._unclean if each.leader_epoch > leader_epoch]
        return min(later, default=math.inf)

    @property
    def has_elected_uncleanly(self) -> bool:
        """Whether records that were committed may be gone."""
        return bool(self._unclean)

    @property
    def least_kept(self) -> float:
        """Below this offset no unclean election has cost a record."""
        return min((each.kept for each in self._unclean), default=math.inf)
