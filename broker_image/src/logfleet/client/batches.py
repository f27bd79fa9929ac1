"""Records on their way to a broker: batches of a partition, and results for their senders."""

import asyncio
from collections import deque
from collections.abc import Generator

import msgspec

from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch

RECORD_OVERHEAD_BYTES = 16  # lengths, deltas and attributes of a small record, about


class Written(msgspec.Struct, frozen=True):
    """Where a record was written.

    offset: -1 if the broker did not report it (acks=0, or a duplicate whose offset it no longer
    has).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Delivery:
    """Await it for `Written`, or for the ClientError that prevented the write."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: "Batch", index: int) -> None:
        self._batch, self._index = batch, index

    def __await__(self) -> Generator[object, None, Written]:
        batch, index = self._batch, self._index
        while True:
            # shielded: cancelling the wait for one record must not cancel the others of its batch
            base_offset, append_time_ms = yield from asyncio.shield(batch.written).__await__()
            if batch.halves is None:
                break
            first, second = batch.halves
            count = len(first.timestamps)
            batch, index = (first, index) if index < count else (second, index - count)
        return Written(
            batch.topic,
            batch.partition,
            base_offset + index if base_offset >= 0 else -1,
            batch.timestamps[index] if append_time_ms < 0 else append_time_ms,
        )


class Batch:
    """Records of one partition that are sent together; deadline in the loop's time.

    full: takes no more records. halves: set before `written` is, if the batch was split into two
    that are written or fail separately.
    """

    __slots__ = (
        "attempts", "created", "encoded", "full", "halves", "partition", "records", "retry_at", "size", "stamp",
        "timestamps", "topic", "written",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, now: float) -> None:
        self.topic, self.partition = topic, partition
        self.created = now
        self.records: list[Record] = []
        self.timestamps: list[int] = []
        self.size = 0
        self.full = False
        self.attempts = 0
        self.retry_at = 0.0
        self.stamp: ProducerStamp | None = None
        self.encoded = b""
        self.halves: tuple[Batch, Batch] | None = None
        # base offset, log append time (-1 if records keep their own)
        self.written: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

    def add(self, record: Record, size: int) -> None:
        """Add a record of `size` bytes."""
        self.records.append(record)
        self.timestamps.append(record.timestamp)
        self.size += size

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.records)

    def build(self, codec: Codec, level: int | None) -> bytes:
        """The encoded batch, with its producer stamp."""
        return bytes(build_batch(self.records, codec=codec, level=level, producer=self.stamp))

    def release(self) -> None:
        """Drop the records: deliveries that are still referenced keep only the timestamps."""
        self.records, self.encoded = [], b""

    def split(self) -> tuple["Batch", "Batch"]:
        """Split the records into two batches that count as never sent.

        There must be at least two.
        """
        first = Batch(self.topic, self.partition, self.created)
        second = Batch(self.topic, self.partition, self.created)
        middle = len(self.records) // 2
        for index, record in enumerate(self.records):
            (first if index < middle else second).add(record, record_bytes(record))
        self.release()
        self.halves = first, second
        return self.halves


class BatchQueue:
    """The batches of a partition in order; the last one still takes records.

    identity and sequence: of the next batch that is encoded.
    """

    __slots__ = ("batches", "identity", "in_flight", "sequence")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.in_flight = False
        self.identity: tuple[int, int] | None = None
        self.sequence = 0

    @property
    def fails(self) -> bool:
        """Whether the first batch has failed and is retried: all later ones wait for it."""
        return bool(self.batches) and self.batches[0].attempts > 0


def record_bytes(record: Record) -> int:
    """Approximate bytes of a record in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 4
    return size
