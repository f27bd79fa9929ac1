"""Arrow batches to a producer: each row's partition, then record batches, column by column."""

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
"""Of a topic that a broker makes while it answers, and of one that it does not make."""
BY_KEY = -1
"""Stands for a partition that the row does not name."""


class ColumnBatch(Batch):
    """Rows of one partition that are sent together. payload: their records as they are sent."""

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

    def cut(self) -> tuple[Batch, Batch]:
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
    """Rows of one partition as batches that begin at these rows."""
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
    """Write all rows; returns how many, of which the last may still be on their way.

    Raises the first failure, and takes no more rows then.

    Rows are waited for in a thread: a query may take minutes over them, and the loop must keep
    connections and time limits. Kafka's producer sends from a thread of its own for the same
    reason. Source: org.apache.kafka.clients.producer.internals.Sender.
    """
    count = 0
    left = iter(given)
    while (batch := await asyncio.to_thread(next, left, None)) is not None:
        for name, columns in columns_of(batch, topic):
            for filled in _filled(producer, await _known(producer, name, columns), columns):
                await producer.put(filled)
        count += batch.num_rows
        producer.raise_failure()  # Spark repeats the whole task: what this one still wrote would be doubled
    return count


async def _known(producer: Producer, name: str, columns: Columns) -> Topic:
    """The topic, which the broker may make now.

    Raises KafkaError if it lacks a partition that a row names.
    """
    if producer.client.metadata.last_known(name) is None:
        await _made(producer, name)
    named = columns.partition
    if named is None or named.null_count == len(named):
        return await producer.topic(name)
    ends = pc.min_max(named)
    await producer.topic(name, ends["min"].as_py())
    return await producer.topic(name, ends["max"].as_py())


async def _made(producer: Producer, name: str) -> None:
    """Ask for a topic as Kafka's producer does.

    A broker that has auto.create.topics.enable makes it, and answers before it is there.

    Where it does not, the producer waits as for any topic that nobody makes, and not as long as for
    brokers.
    """

    async def ask() -> None:
        try:
            await producer.client.fetch_topics([name], auto_create=True)
        except KafkaError as error:
            if error.code not in NOT_YET:
                raise

    await producer.client.retrying(ask, timeout_ms=int(producer.delivery_timeout_seconds * 1000))


def _filled(producer: Producer, topic: Topic, columns: Columns) -> Iterator[ColumnBatch]:
    """The rows as batches, each partition's in their order."""
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
    """By what the row names, else by its key, else one for as many rows as fill a batch.

    Source: KIP-480, KIP-794.
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
