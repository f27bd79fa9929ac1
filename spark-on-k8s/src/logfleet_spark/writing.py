"""Writes Arrow batches: chooses each row's partition and encodes rows column by column."""

import asyncio
import random
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from logfleet.client.batches import Batch
from logfleet.client.errors import KafkaError
from logfleet.client.metadata import Topic
from logfleet.client.producer import Producer
from logfleet.records.compression import Codec
from logfleet.records.record import batch_of
from logfleet.wire.errors import ErrorCode

from logfleet_spark.encoding import (
    Ints,
    batch_starts,
    buffers_of,
    encoded,
    partitions_of_keys,
    record_sizes,
)
from logfleet_spark.rows import Columns, columns_of

NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
"""Errors for a topic that a broker is creating, and for one that does not exist."""
BY_KEY = -1
"""Stands for the partition of a row that does not name one."""


class ColumnBatch(Batch):
    """Rows of one partition that are sent together. payload: their encoded records."""

    __slots__ = ("columns", "now_ms", "payload", "rows")

    def __init__(
        self, topic: str, partition: int, columns: Columns, payload: memoryview, now_ms: int
    ) -> None:
        super().__init__(topic, partition, asyncio.get_running_loop().time())
        self.columns, self.payload, self.now_ms = columns, payload, now_ms
        self.rows = len(columns.value)
        self.size = len(payload)

    @property
    def count(self) -> int:
        return self.rows

    def build(self, codec: Codec, level: int | None) -> bytes:
        batch = batch_of(
            self.payload,
            self.rows,
            self.now_ms,
            self.now_ms,
            codec=codec,
            level=level,
            producer=self.stamp,
        )
        return bytes(batch)

    def release(self) -> None:
        super().release()
        self.columns, self.payload = self.columns.slice(0, 0), memoryview(b"")

    def split(self) -> tuple[Batch, Batch]:
        middle = self.rows // 2
        first, second = (
            batches(self.topic, self.partition, part, [0], self.now_ms)[0]
            for part in (self.columns.slice(0, middle), self.columns.slice(middle))
        )
        for half in (first, second):
            half.created, half.full = self.created, True
        self.release()
        self.halves = first, second
        return self.halves


def batches(
    topic: str, partition: int, columns: Columns, starts: list[int], now_ms: int
) -> list[ColumnBatch]:
    """Make batches of the rows of one partition. starts: row at which each batch begins."""
    count = len(columns.value)
    ends = [*starts[1:], count]
    deltas = np.arange(count, dtype=np.int64) - np.repeat(
        np.array(starts, np.int64), np.subtract(ends, starts)
    )
    offsets, data = buffers_of(encoded(columns.key, columns.value, columns.headers, deltas))
    whole = data.data
    return [
        ColumnBatch(
            topic,
            partition,
            columns.slice(start, end - start),
            whole[offsets[start] : offsets[end]],
            now_ms,
        )
        for start, end in zip(starts, ends, strict=True)
    ]


async def write(producer: Producer, given: Iterable[pa.RecordBatch], topic: str | None) -> int:
    """Write all rows; return their number. The last ones may not be acknowledged yet.

    Raises the first failure, and takes no more rows after it.

    A thread waits for the rows: a query may take minutes to produce them, and meanwhile the event
    loop has to serve connections and time limits. Kafka's producer has a sender thread for the same
    reason. Source: org.apache.kafka.clients.producer.internals.Sender.
    """
    count = 0
    left = iter(given)
    while (batch := await asyncio.to_thread(next, left, None)) is not None:
        for name, columns in columns_of(batch, topic):
            for filled in _batches_of(
                producer, await _topic_with_partitions(producer, name, columns), columns
            ):
                await producer.put(filled)
        count += batch.num_rows
        # Spark repeats the whole task after a failure: rows written from now on would be duplicates
        producer.raise_failure()
    return count


async def _topic_with_partitions(producer: Producer, name: str, columns: Columns) -> Topic:
    """Return the topic, which the broker may create for this request.

    Raises KafkaError if the topic lacks a partition that a row names.
    """
    if producer.client.metadata.last_known(name) is None:
        await _request_creation(producer, name)
    named = columns.partition
    if named is None or named.null_count == len(named):
        return await producer.topic(name)
    ends = pc.min_max(named)
    await producer.topic(name, ends["min"].as_py())
    return await producer.topic(name, ends["max"].as_py())


async def _request_creation(producer: Producer, name: str) -> None:
    """Ask for the metadata of a topic as Kafka's producer does, so that a broker may create it.

    A broker with auto.create.topics.enable replies before the topic exists. If the broker does not
    create it, the producer later waits and fails as for any topic that does not exist.
    """

    async def ask() -> None:
        try:
            await producer.client.fetch_topics([name], auto_create=True)
        except KafkaError as error:
            if error.code not in NOT_YET:
                raise

    await producer.client.retrying(ask, timeout_ms=int(producer.delivery_timeout_seconds * 1000))


def _batches_of(producer: Producer, topic: Topic, columns: Columns) -> Iterator[ColumnBatch]:
    """Yield the rows as batches; the rows of a partition keep their order."""
    now_ms = time.time_ns() // 1_000_000
    sizes = record_sizes(columns.key, columns.value, columns.headers)
    where = _partitions(producer, topic, columns, sizes)
    if (where[1:] < where[:-1]).any():
        order = np.argsort(where, kind="stable")
        columns, sizes, where = columns.take(order), sizes[order], where[order]
    begins = [0, *(np.flatnonzero(np.diff(where)) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(where)], strict=True):
        starts = batch_starts(sizes[begin:end], producer.batch_bytes)
        part = columns.slice(begin, end - begin)
        yield from batches(topic.name, int(where[begin]), part, starts, now_ms)


def _partitions(producer: Producer, topic: Topic, columns: Columns, sizes: Ints) -> Ints:
    """Choose the partition of each row.

    It is the one that the row names, else the one of its key. Rows with neither go to a random
    partition, a new one for each batch. Source: KIP-480, KIP-794.
    """
    count = len(columns.value)
    where = np.full(count, BY_KEY, np.int64)
    if columns.partition is not None:
        where = np.asarray(columns.partition.cast(pa.int64()).fill_null(BY_KEY), np.int64).copy()
    if not (where == BY_KEY).any():
        return where
    by_key = (where == BY_KEY) & np.asarray(columns.key.is_valid())
    if by_key.all():
        return partitions_of_keys(columns.key, len(topic.partitions))
    if by_key.any():
        keys = columns.key.filter(pa.array(by_key))
        where[by_key] = partitions_of_keys(keys, len(topic.partitions))
    rest = np.flatnonzero(where == BY_KEY)
    if not rest.size:
        return where
    healthy = producer.healthy(topic)
    starts = batch_starts(sizes[rest], producer.batch_bytes)
    for start, end in zip(starts, [*starts[1:], len(rest)], strict=True):
        where[rest[start:end]] = random.choice(healthy)
    return where
