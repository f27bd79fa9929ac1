"""A replica's log in a simulation: batches of one record, of which a first part is on the disk.

Epochs and producers are kept by the product's own code. A process that is killed loses nothing of it, a machine that loses power what was not flushed.
"""

from copy import deepcopy

import msgspec
from logfleet.log.producers.states import ProducerStates, SeenBatch
from logfleet.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from logfleet.records.control import Marker
from logfleet.replication.ends import ReplicaEnds
from logfleet.replication.leader_epochs import LeaderEpochs
from logfleet.transactions.records import TransactionRecord
from logfleet.types import LeaderEpoch, ProducerEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.transactions.abort_index import AbortIndex

NO_PRODUCER = -1


class Part(msgspec.Struct, frozen=True, gc=False):
    """What a batch is of a transaction. epoch: of its producer. marker: what ends it, if it is that."""

    transactional_id: str
    epoch: int
    marker: Marker | None = None


class Batch(msgspec.Struct, frozen=True, gc=False):
    """A record where a leader put it. value: what its producer calls it.

    part: of a transaction, if it is one. records: of the log of transactions.
    """

    offset: int
    epoch: int
    value: str
    producer: int = NO_PRODUCER
    sequence: int = -1
    part: Part | None = None
    records: tuple[TransactionRecord, ...] = ()

    @property
    def header(self) -> BatchHeader:
        part, attributes = self.part, 0
        if part is not None:
            attributes = (
                TRANSACTIONAL_BIT if part.marker is None else TRANSACTIONAL_BIT | CONTROL_BIT
            )
        return BatchHeader(
            self.offset,
            49,
            LeaderEpoch(self.epoch),
            2,
            0,
            attributes,
            0,
            0,
            0,
            self.producer,
            ProducerEpoch(0 if part is None else part.epoch),
            self.sequence,
            1,
        )


class ReplicaLog:
    """ends: of the process that has it open. base: records below are not there any more.

    durable_start: the log start that survives a power loss.
    lost_from: the first record that a power loss cost it, None if it has all again (`Checker`).
    """

    def __init__(self) -> None:
        self.ends = ReplicaEnds()
        self.base = self.durable_start = 0
        self.lost_from: int | None = None
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.aborted = AbortIndex()
        self.has_transactions = False
        self._batches: list[Batch] = []

    @property
    def start_offset(self) -> int:
        return self.ends.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.ends.log_end_offset

    def open(self, start_offset: int | None = None) -> None:
        """Another process opens it, and finds it to start there (None: where it does)."""
        self.ends = ReplicaEnds(
            log_start_offset=self.start_offset if start_offset is None else start_offset,
            log_end_offset=self.end_offset,
            recovery_point=self.ends.recovery_point,
        )
        if self.has_transactions:
            self._count_again()

    def __deepcopy__(self, memo: dict[int, object]) -> "ReplicaLog":
        """On another disk, where nobody has it open."""
        copy = ReplicaLog()
        for name, value in vars(self).items():
            if name != "ends":
                setattr(copy, name, deepcopy(value, memo))
        copy.ends = self.ends.as_of_now()
        return copy

    def at(self, offset: int) -> Batch:
        return self._batches[offset - self.base]

    def read(self, offset: int, end: int) -> tuple[Batch, ...]:
        return tuple(self._batches[offset - self.base : max(0, end - self.base)])

    def is_like(self, other: "ReplicaLog") -> bool:
        """Whether both end alike, and show the same records as far as both show them."""
        start = max(self.start_offset, other.start_offset)
        end = self.end_offset
        return end == other.end_offset and self.read(start, end) == other.read(start, end)

    @property
    def reach(self) -> tuple[int, int]:
        """Last leader epoch and end offset, as a controller compares logs."""
        return self.epochs.last_end(self.epochs.latest, self.end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where readers of committed transactions have to stop (`PartitionLog.last_stable_offset`)."""
        first = self.producers.unstable.first(high_watermark)
        if first is None:
            return high_watermark
        return min(high_watermark, max(first, self.start_offset))

    def judge(self, batch: Batch) -> SeenBatch | ErrorCode | None:
        """What `ProducerStates.check` says of a record that a client brings."""
        return None if batch.producer == NO_PRODUCER else self.producers.check(batch.header)

    def append(self, batch: Batch) -> None:
        assert batch.offset == self.end_offset, "no gap, no overlap"
        self._batches.append(batch)
        self.ends.extended(batch.offset + 1)
        self.ends.written(batch.offset + 1, self.ends.truncations)
        self.epochs.observe(LeaderEpoch(batch.epoch), batch.offset)
        if batch.producer != NO_PRODUCER:
            self._count(batch)

    def _count(self, batch: Batch) -> None:
        """What it changes of its producer, and of the transactions that are open or aborted."""
        if batch.part is None:
            self.producers.update(batch.header, batch.offset)
            return
        self.has_transactions = True
        if batch.part.marker is None:
            self.producers.update_transactional(batch.header, batch.offset)
        else:
            entry = self.producers.end(batch.part.marker, batch.header, batch.offset)
            if entry is not None:
                self.aborted.add(entry)

    def _count_again(self) -> None:
        self.producers = ProducerStates()
        self.aborted.clear()
        for batch in self._batches:
            if batch.producer != NO_PRODUCER:
                self._count(batch)

    def delete_before(self, offset: int) -> None:
        """Let the log start there (DeleteRecords, retention)."""
        if self.ends.deleted(offset):
            self.epochs.truncate_start(offset)

    def truncate_to(self, offset: int) -> list[Batch]:
        """The records from there on are gone; these."""
        kept = max(0, offset - self.base)
        cut = self._batches[kept:]
        del self._batches[kept:]
        self.base = min(self.base, offset)
        self.ends.lowered(offset)
        self.ends.truncated(min(self.end_offset, offset))
        self.durable_start = min(self.durable_start, offset)
        self.epochs.truncate_end(offset)
        self._count_again()
        return cut

    def reset_to(self, offset: int) -> None:
        """Nothing is left, and the log begins there, without epochs and producers."""
        self._batches = []
        self.base = self.durable_start = offset
        self.ends.lowered(offset)
        self.ends.truncated(offset, is_emptied=True)
        self.ends.flushed(offset)
        self.epochs, self.producers = LeaderEpochs(), ProducerStates()
        self.aborted.clear()

    def flush(self) -> None:
        self.ends.flushed(self.end_offset)
        self.durable_start = self.start_offset

    def lose_power(self, kept: int) -> None:
        """Keep so many of the records that were not flushed; a log that ends below its start begins there."""
        self.open()
        before, start = self.end_offset, self.durable_start
        end = min(self.ends.recovery_point + kept, before)
        if end < start:
            self.reset_to(start)
        else:
            self.truncate_to(end)
            self.open(start)
            self._complete_epochs()
        if self.end_offset < before:
            self._lose(self.end_offset)
        self.flush()

    def lack(self, newer: "ReplicaLog") -> None:
        """This older copy of a log takes its place."""
        if newer.lost_from is not None:
            self._lose(newer.lost_from)
        base = max(self.base, newer.base)
        both = zip(
            self.read(base, self.end_offset), newer.read(base, newer.end_offset), strict=False
        )
        differs = (at for at, (mine, its) in enumerate(both, base) if mine != its)
        alike = next(differs, self.end_offset)
        if alike < newer.end_offset:
            self._lose(alike)

    def _lose(self, offset: int) -> None:
        if self.lost_from is None or offset < self.lost_from:
            self.lost_from = offset

    def _complete_epochs(self) -> None:
        """Of records from before the last start of the log, which is forgotten."""
        entries, self.epochs = self.epochs.entries, LeaderEpochs()
        for batch in self.read(self.start_offset, self.end_offset):
            self.epochs.observe(LeaderEpoch(batch.epoch), batch.offset)
        for entry in entries:
            self.epochs.assign(entry.epoch, entry.start_offset)
