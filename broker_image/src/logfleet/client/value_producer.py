"""A producer that takes many values at a time, without an object for each record.

What fits into a batch is found by adding lengths, and a batch is encoded in one go
(`records.columns`). All values have the same key and headers. Order, retries, splitting and
acknowledgement are those of `Producer`.
"""

import asyncio
import itertools
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from logfleet.client.batches import Batch, Delivery, Written, record_bytes
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.metadata import Topic
from logfleet.client.producer import Producer
from logfleet.records.columns import encode_values
from logfleet.records.compression import Codec
from logfleet.records.record import Header, Record, batch_of


class Shared(NamedTuple):
    """What all values have in common. partition: None: by the key, or any."""

    partition: int | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()


class ValueBatch(Batch):
    """Values of one partition that are sent together. The base class keeps the time of each."""

    __slots__ = ("shared", "values")

    def __init__(self, topic: str, partition: int, shared: Shared, now: float) -> None:
        super().__init__(topic, partition, now)
        self.shared = shared
        self.values: list[bytes] = []

    def extend(self, values: Sequence[bytes], now_ms: int, size: int) -> None:
        """Add values of `size` bytes with their overhead."""
        self.values += values
        self.timestamps += [now_ms] * len(values)
        self.size += size

    @property
    def count(self) -> int:
        return len(self.values)

    def build(self, codec: Codec, level: int | None) -> bytes:
        base = self.timestamps[0]
        payload = bytearray()
        first = 0
        for time_ms, same in itertools.groupby(self.timestamps):
            end = first + len(list(same))
            payload += encode_values(
                self.values[first:end],
                key=self.shared.key,
                headers=self.shared.headers,
                timestamp_delta=time_ms - base,
                first_delta=first,
            )
            first = end
        return bytes(
            batch_of(
                payload,
                self.count,
                base,
                max(self.timestamps),
                codec=codec,
                level=level,
                producer=self.stamp,
            )
        )

    def release(self) -> None:
        super().release()
        self.values = []

    def split(self) -> tuple[Batch, Batch]:
        middle = self.count // 2
        halves = []
        for part in (slice(None, middle), slice(middle, None)):
            half = ValueBatch(self.topic, self.partition, self.shared, self.created)
            half.values, half.timestamps = self.values[part], self.timestamps[part]
            half.size = _bytes_of(self.shared, half.values)
            half.full = True
            halves.append(half)
        self.release()
        self.halves = halves[0], halves[1]
        return self.halves


def _overhead(shared: Shared) -> int:
    """Bytes of a record beside its value, about."""
    return record_bytes(Record(shared.key, None, 0, shared.headers))


def _bytes_of(shared: Shared, values: Sequence[bytes]) -> int:
    return sum(map(len, values)) + len(values) * _overhead(shared)


class ValueFailed(Exception):
    """A value of a run was not written. index: of the value in the run. error: why."""

    def __init__(self, index: int, error: ClientError) -> None:
        super().__init__(index, error)
        self.index, self.error = index, error


class Deliveries:
    """A run of values that were added to a batch at once. first: index of its first value there."""

    __slots__ = ("_batch", "_first", "count")

    def __init__(self, batch: ValueBatch, first: int, count: int) -> None:
        self._batch, self._first, self.count = batch, first, count

    async def written(self) -> Written:
        """Where the last of them was written, once all are. Raises ValueFailed for the first not.

        They have one outcome, unless the batch was split.
        """
        found = await self._one(0)
        others = range(1, self.count)
        for index in others if self._batch.halves is not None else others[-1:]:
            found = await self._one(index)
        return found

    async def _one(self, index: int) -> Written:
        try:
            return await Delivery(self._batch, self._first + index)
        except ClientError as error:
            raise ValueFailed(index, error) from error


class ValueProducer(Producer):
    """A producer for `send_values`; `send` is not for it. shared: what all values have in common.

    Idempotent with acks=-1; the other arguments are those of `Producer`.
    """

    def __init__(
        self,
        client: Client,
        shared: Shared,
        *,
        acks: int = -1,
        codec: Codec = Codec.NONE,
        batch_bytes: int = 64 * 1024,
        delivery_timeout_ms: int = 120_000,
        auto_create: bool = False,
    ) -> None:
        super().__init__(
            client,
            acks=acks,
            idempotent=acks == -1,
            codec=codec,
            batch_bytes=batch_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            auto_create=auto_create,
        )
        self._shared = shared
        self._overhead = _overhead(shared)

    async def send_values(self, topic: str, values: Sequence[bytes]) -> list[Deliveries]:
        """Add values to batches, in their order; await the results to know that they are written.

        Waits and raises as `send` does. Values of one call have one timestamp in each batch.
        """
        ends = list(itertools.accumulate(map(len, values)))
        sent: list[Deliveries] = []
        start = 0
        async with self._turn(topic) as turn:
            while start < len(values):
                await self._wait_for_room()
                found = await self._look_up(topic, self._shared.partition or 0, turn)
                batch = self._batch_for(found, len(values[start]) + self._overhead)
                end = start + self._fitting(ends, start, self.batch_bytes - batch.size)
                begin = ends[start - 1] if start else 0
                size = ends[end - 1] - begin + (end - start) * self._overhead
                sent.append(Deliveries(batch, batch.count, end - start))
                batch.extend(values[start:end], time.time_ns() // 1_000_000, size)
                self._buffered += size
                start = end
        return sent

    def _batch_for(self, topic: Topic, size: int) -> ValueBatch:
        """The batch that takes the next value, of `size` bytes."""
        partition = self._shared.partition
        if partition is None:
            partition = self._choose(topic, self._shared.key, size)
        batch = self._open_batch(topic.name, partition, size)
        if batch is None:
            now = asyncio.get_running_loop().time()
            batch = ValueBatch(topic.name, partition, self._shared, now)
            self._queue(batch)
        assert isinstance(batch, ValueBatch)
        return batch

    def _fitting(self, ends: Sequence[int], start: int, room: int) -> int:
        """How many values from `start` on fit into `room` bytes, but one at least.

        ends: the sum of the lengths up to each value.
        """
        begin = ends[start - 1] if start else 0
        count = bisect_right(
            range(len(ends) - start),
            room,
            key=lambda index: ends[start + index] - begin + (index + 1) * self._overhead,
        )
        return max(count, 1)
