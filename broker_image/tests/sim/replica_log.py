"""A replica's log in a simulation: batches of one record, of which a first part is on the disk.

Epochs and producers are kept by the product's own code. A process that is killed loses nothing of it, a machine that loses power what was not flushed.
"""

import msgspec
from logfleet.log.epochs import LeaderEpochs
from logfleet.log.producers import ProducerStates, SeenBatch
from logfleet.records.batch import BatchHeader
from logfleet.wire.errors import ErrorCode

NO_PRODUCER = -1


class Batch(msgspec.Struct, frozen=True, gc=False):
    """A record where a leader put it. value: what its producer calls it."""

    offset: int
    epoch: int
    value: str
    producer: int = NO_PRODUCER
    sequence: int = -1

    @property
    def header(self) -> BatchHeader:
        return BatchHeader(
            self.offset, 49, self.epoch, 2, 0, 0, 0, 0, 0, self.producer, 0, self.sequence, 1
        )


class ReplicaLog:
    """end_offset: exclusive. durable: everything below survives a power loss.

    lost_from: the first record that a power loss cost it, None if it has all again (`Checker`).
    """

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.durable = 0
        self.lost_from: int | None = None
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()

    @property
    def end_offset(self) -> int:
        return len(self.batches)

    @property
    def last_epoch(self) -> int:
        """Of the last record, as a fetch tells it; -1 of an empty log."""
        return self.batches[-1].epoch if self.batches else -1

    @property
    def reach(self) -> tuple[int, int]:
        """Last leader epoch and end offset, as a controller compares logs."""
        return self.epochs.last_end(self.epochs.latest, self.end_offset)

    def judge(self, value: str, producer: int, sequence: int) -> SeenBatch | ErrorCode | None:
        """What `ProducerStates.check` says of a record that a client brings."""
        if producer == NO_PRODUCER:
            return None
        return self.producers.check(Batch(0, 0, value, producer, sequence).header)

    def append(self, batch: Batch) -> None:
        assert batch.offset == self.end_offset, "no gap, no overlap"
        self.batches.append(batch)
        self.epochs.observe(batch.epoch, batch.offset)
        if batch.producer != NO_PRODUCER:
            self.producers.update(batch.header, batch.offset)

    def truncate_to(self, offset: int) -> list[Batch]:
        """The records from there on are gone; these."""
        cut = self.batches[offset:]
        del self.batches[offset:]
        self.durable = min(self.durable, offset)
        self.epochs.truncate_end(offset)
        self.producers = ProducerStates()
        for batch in self.batches:
            if batch.producer != NO_PRODUCER:
                self.producers.update(batch.header, batch.offset)
        return cut

    def flush(self) -> None:
        self.durable = self.end_offset

    def lose_power(self, kept: int) -> None:
        """Keep so many of the records that were not flushed."""
        cut = self.truncate_to(min(self.durable + kept, self.end_offset))
        if cut:
            self._lose(cut[0].offset)
        self.flush()

    def lack(self, newer: "ReplicaLog") -> None:
        """This older copy of a log takes its place."""
        if newer.lost_from is not None:
            self._lose(newer.lost_from)
        pairs = zip(self.batches, newer.batches, strict=False)
        alike = next((at for at, (mine, its) in enumerate(pairs) if mine != its), self.end_offset)
        if alike < newer.end_offset:
            self._lose(alike)

    def _lose(self, offset: int) -> None:
        if self.lost_from is None or offset < self.lost_from:
            self.lost_from = offset
