"""Writes records: batches per partition, one request per leader, each record once and in order.

One batch of a partition is in flight at a time. Meanwhile the next one fills, so batches grow with
the broker's latency. A batch keeps its producer id and sequence numbers (KIP-98) through all
retries, so the broker appends it once even if responses are lost.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from logfleet.client.batches import Batch, BatchQueue, Delivery, record_bytes
from logfleet.client.cluster import Client, backoff_seconds
from logfleet.client.errors import ClientError, ConnectionLost, KafkaError
from logfleet.client.identities import Idempotence, Identities
from logfleet.client.metadata import NO_LEADER, Topic
from logfleet.client.offsets import TopicPartition
from logfleet.client.partitioner import partition_of_key
from logfleet.client.turns import CallOrder
from logfleet.records.batch import increment_sequence
from logfleet.records.compression import Codec
from logfleet.records.record import Header, ProducerStamp, Record
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    ProduceRequest,
    ProduceResponse,
)
from logfleet.wire.schema import ZERO_UUID

# Brokers may not know a topic yet that was just created; after this it counts as missing.
NEW_TOPIC_MS = 5_000
NAMES_UP_TO_VERSION = 12  # later versions name topics by their id alone (KIP-516)


class Producer:
    """Use as `async with`; leaving it writes what is left, and raises if that failed.

    acks: -1 all in-sync replicas, 1 the leader, 0 no response. idempotent: needs acks=-1.
    linger_ms: how long a batch waits for more records. batch_bytes: from this size it does not
    wait. delivery_timeout_ms: after that a record counts as failed. buffer_bytes: from then on
    `send` waits. identities: of another kind than those of an idempotent producer.
    """

    def __init__(
        self,
        client: Client,
        *,
        acks: int = -1,
        idempotent: bool = True,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        linger_ms: float = 5,
        batch_bytes: int = 64 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        delivery_timeout_ms: int = 120_000,
        auto_create: bool = False,
        identities: Identities | None = None,
    ) -> None:
        if idempotent and acks != -1:
            raise ValueError("an idempotent producer needs acks=-1")
        self.client = client
        self.acks, self.idempotent = acks, idempotent
        self.codec, self.level = codec, level
        self.linger_seconds = linger_ms / 1000
        self.batch_bytes, self.buffer_bytes = batch_bytes, buffer_bytes
        self.delivery_timeout_seconds = delivery_timeout_ms / 1000
        self.auto_create = auto_create
        self._partitions: dict[tuple[str, int], BatchQueue] = {}
        self._sticky: dict[str, int] = {}
        self._turns: dict[str, CallOrder] = {}  # topic -> order of its calls
        self._buffered = 0
        self._flush_until = -1.0  # batches made up to then are sent without lingering
        self._failure: ClientError | None = None
        self._identities = Idempotence(client) if identities is None else identities
        self._refusal: ClientError | None = None  # while records are discarded
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._closing = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self._closing = True
            self._wake.set()
            try:
                await self._tasks.__aexit__(kind, error, trace)
            except BaseExceptionGroup as group:
                if group.exceptions != (error,):
                    raise  # else it is the block's own exception, which propagates anyway

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Add a record to a batch; await the result to know that it is written.

        partition: None means by the key's hash, or without a key a partition that has a leader.
        timestamp_ms: None means now.

        Waits while the buffer is full, and until the topic's metadata is there. However long each
        call waits, a partition gets its records in the order of the calls. Raises KafkaError if
        there is no such topic or partition, ConnectionLost if no broker responds in time; calls
        that wait for the metadata of one topic fail together.
        """
        async with self._turn(topic) as turn:
            await self._wait_for_room()
            found = await self._look_up(topic, partition or 0, turn)
            now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
            record = Record(key, value, now_ms, tuple(headers))
            size = record_bytes(record)
            if partition is None:
                partition = self._choose(found, key, size)
            batch = self._open_batch(topic, partition, size) or self._new_batch(topic, partition)
            batch.add(record, size)
            self._buffered += size
            return Delivery(batch, len(batch.records) - 1)

    async def put(self, batch: Batch) -> None:
        """Send a batch that the caller has filled, after those of its partition.

        Waits while the buffer is full. Calls of `put` and `send` take effect in their order. The
        caller has looked up topic and partition (`topic`); `raise_failure` and `flush` raise
        failures.
        """
        async with self._turn(batch.topic):
            await self._wait_for_room()
            batch.full = True
            self._queue(batch)
            self._buffered += batch.size

    def _turn(self, topic: str) -> CallOrder:
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = CallOrder()
        return turn

    async def _look_up(self, topic: str, partition: int, turn: CallOrder) -> Topic:
        """As `topic`; if fetching it fails, calls waiting for their turn fail too."""
        try:
            return await self.topic(topic, partition)
        except ClientError as error:
            if self.client.metadata.last_known(topic) is None:
                turn.fail(error)
                del self._turns[topic]  # the next call asks again
            raise

    async def _wait_for_room(self) -> None:
        while self._buffered >= self.buffer_bytes:
            self._room.clear()
            await self._room.wait()

    async def flush(self) -> None:
        """Wait until all records so far are written or failed; raises the first new failure."""
        self._flush_until = asyncio.get_running_loop().time()
        self._wake.set()
        pending = [batch for state in self._partitions.values() for batch in state.batches]
        while pending:
            await asyncio.wait([batch.written for batch in pending])
            pending = [half for batch in pending for half in batch.halves or ()]
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the first failure of a record that was not raised yet, if any."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def discard(self, reason: ClientError) -> None:
        """Let records that are not on their way fail with `reason`, and those that are not retried.

        All are written or failed afterwards, and `flush` raises none of these failures.
        """
        self._refusal = reason
        try:
            for state in self._partitions.values():
                while len(state.batches) > state.in_flight:
                    self._finish(state, state.batches[-1], reason)
            with contextlib.suppress(ClientError):
                await self.flush()
        finally:
            self._refusal = None

    async def partition_count(self, topic: str) -> int:
        """The cached number of partitions. Raises KafkaError if there is no such topic."""
        return len((await self._topic(topic)).partitions)

    async def topic(self, name: str, partition: int = 0) -> Topic:
        """The topic. Raises KafkaError if there is no such topic or partition."""
        found = await self._topic(name)
        if partition >= len(found.partitions):
            # the metadata may be from before a CreatePartitions
            self.client.metadata.forget([name])
            found = await self._fetch(name)
        if found.partition(partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject=f"{name}-{partition}")
        return found

    def healthy(self, topic: Topic) -> list[int]:
        """Partitions with a leader and no failed batch; else those with a leader; else all."""
        led = [each.index for each in topic.partitions if each.leader != NO_LEADER]
        # cached metadata may still name a leader that is gone
        working = [index for index in led if not self._is_failing(topic.name, index)]
        return working or led or list(range(len(topic.partitions)))

    async def _topic(self, name: str) -> Topic:
        return self.client.metadata.last_known(name) or await self._fetch(name)

    async def _fetch(self, name: str) -> Topic:
        """Wait for brokers as long as a record may, for an unknown topic NEW_TOPIC_MS."""
        unknown_until = float("inf")

        async def ask() -> Topic:
            nonlocal unknown_until
            try:
                return await self.client.topic(name, auto_create=self.auto_create)
            except KafkaError as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self.auto_create:
                    unknown_until = min(unknown_until, time.monotonic() + NEW_TOPIC_MS / 1000)
                    error.retriable = time.monotonic() < unknown_until
                raise

        return await self.client.retrying(ask, timeout_ms=int(self.delivery_timeout_seconds * 1000))

    # --- batches

    def _choose(self, topic: Topic, key: bytes | None, size: int) -> int:
        """The record's partition: by its key, else the same until its batch is full or failed.

        That makes batches large, and partitions even in the long run (KIP-480, KIP-794). While any
        partition has a leader, those without get nothing (Kafka: BuiltInPartitioner.nextPartition).
        """
        if key is not None:
            return partition_of_key(key, len(topic.partitions))
        chosen = self._sticky.get(topic.name)
        if (
            chosen is not None
            and not self._is_failing(topic.name, chosen)
            and self._open_batch(topic.name, chosen, size) is not None
        ):
            return chosen
        chosen = random.choice(self.healthy(topic))
        self._sticky[topic.name] = chosen
        return chosen

    def _is_failing(self, topic: str, partition: int) -> bool:
        state = self._partitions.get((topic, partition))
        return state is not None and state.fails

    def _open_batch(self, topic: str, partition: int, size: int) -> Batch | None:
        """The partition's batch if it can take `size` more bytes; otherwise it is closed."""
        state = self._partitions.get((topic, partition))
        if state is None or not state.batches:
            return None
        batch = state.batches[-1]
        if batch.size + size > self.batch_bytes:
            batch.full = True  # Kafka: ProducerBatch.closeForRecordAppends
            self._wake.set()
        started = batch.encoded or (state.in_flight and len(state.batches) == 1)
        return None if started or batch.full else batch

    def _new_batch(self, topic: str, partition: int) -> Batch:
        batch = Batch(topic, partition, asyncio.get_running_loop().time())
        self._queue(batch)
        return batch

    def _queue(self, batch: Batch) -> None:
        state = self._partitions.setdefault((batch.topic, batch.partition), BatchQueue())
        state.batches.append(batch)
        self._wake.set()

    # --- sending

    async def _run(self) -> None:
        """Send ready batches until closed; the remaining ones then fail."""
        try:
            while not self._closing:
                self._wake.clear()
                pause = await self._send_ready()
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            for state in self._partitions.values():
                for batch in list(state.batches):
                    self._finish(state, batch, ConnectionLost("the producer was closed"))

    async def _send_ready(self) -> float | None:
        """Send ready batches to each leader; returns the seconds until more are ready, or None."""
        now = asyncio.get_running_loop().time()
        next_at = float("inf")
        by_leader: dict[int, list[Batch]] = {}
        for state in list(self._partitions.values()):
            if state.in_flight or not state.batches:
                continue
            batch = state.batches[0]
            ready_at = self._ready_at(state, batch)
            if ready_at > now:
                next_at = min(next_at, ready_at)
                continue
            try:
                leader = await self.client.leader_of(batch.topic, batch.partition)
            except ClientError as error:
                if not batch.written.done():
                    self._failed(batch, error)
                    next_at = min(next_at, batch.retry_at)
                continue
            if batch.written.done():
                continue  # discarded meanwhile
            state.in_flight = True
            by_leader.setdefault(leader, []).append(batch)
        for leader, batches in by_leader.items():
            self._tasks.create_task(self._produce(leader, batches))
        return None if next_at == float("inf") else max(next_at - now, 0)

    def _ready_at(self, state: BatchQueue, batch: Batch) -> float:
        """Loop time at which the partition's first batch should be sent."""
        if batch.attempts:
            return batch.retry_at
        full = batch.full or len(state.batches) > 1 or batch.size >= self.batch_bytes
        if full or batch.created <= self._flush_until:
            return 0
        return batch.created + self.linger_seconds

    async def _produce(self, leader: int, batches: list[Batch]) -> None:
        try:
            await self._encode(batches)
            connection = await self.client.broker(leader)
            request, names = await self._request(batches)
            version_max = self._identities.produce_version_max
            if ZERO_UUID in names:
                version_max = min(version_max, NAMES_UP_TO_VERSION)
            timeout_ms = 2 * self.client.request_timeout_ms
            if self.acks == 0:
                await connection.unthrottled()
                connection.post(request, version_max=version_max)
                # there is no response; closing the connection would discard it until the kernel has
                # taken it
                await connection.drained(timeout_ms=min(self._left_ms(batches), timeout_ms))
                for batch in batches:
                    self._written(batch, -1, -1)
                return
            response = await connection.request(
                request,
                ProduceResponse,
                timeout_ms=timeout_ms,
                version_max=version_max,
            )
            self._answered(batches, response, names)
        except ClientError as error:
            for batch in batches:
                self._failed(batch, error)
        finally:
            for batch in batches:
                self._partitions[batch.topic, batch.partition].in_flight = False
            self._wake.set()

    def _left_ms(self, batches: list[Batch]) -> float:
        """Milliseconds until the oldest of these batches times out; negative if it has."""
        deadline = min(batch.created for batch in batches) + self.delivery_timeout_seconds
        return 1000 * (deadline - asyncio.get_running_loop().time())

    async def _encode(self, batches: list[Batch]) -> None:
        """Encode each batch once: a retry sends the same bytes, with the same sequence."""
        fresh = [batch for batch in batches if not batch.encoded]
        if self.idempotent and fresh:
            partitions = [TopicPartition(batch.topic, batch.partition) for batch in fresh]
            identity = await self._identities.current(partitions)
        for batch in fresh:
            state = self._partitions[batch.topic, batch.partition]
            if self.idempotent:
                if state.identity != identity:
                    state.identity, state.sequence = identity, 0
                batch.stamp = ProducerStamp(
                    *identity, state.sequence, self._identities.transactional_id is not None
                )
                state.sequence = increment_sequence(state.sequence, batch.count)
            batch.encoded = batch.build(self.codec, self.level)

    async def _request(self, batches: list[Batch]) -> tuple[ProduceRequest, dict[bytes, str]]:
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        names: dict[bytes, str] = {}
        for batch in batches:
            topic = topics.get(batch.topic)
            if topic is None:
                topic_id = (await self.client.topic(batch.topic)).topic_id
                names[topic_id] = batch.topic
                topic = ProduceRequest.TopicProduceData(name=batch.topic, topic_id=topic_id)
                topics[batch.topic] = topic
            topic.partition_data.append(
                ProduceRequest.PartitionProduceData(index=batch.partition, records=batch.encoded)
            )
        request = ProduceRequest(
            transactional_id=self._identities.transactional_id,
            acks=self.acks,
            timeout_ms=self.client.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        return request, names

    # --- outcomes

    def _answered(
        self, batches: list[Batch], response: ProduceResponse, names: dict[bytes, str]
    ) -> None:
        waiting = {(batch.topic, batch.partition): batch for batch in batches}
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for row in topic.partition_responses:
                batch = waiting.pop((name, row.index), None)
                if batch is None:
                    continue
                if row.error_code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                    self._written(batch, row.base_offset, row.log_append_time_ms)
                else:
                    subject = f"{batch.topic}-{batch.partition}"
                    error = KafkaError(row.error_code, row.error_message, subject=subject)
                    self._failed(batch, error)
        for batch in waiting.values():
            self._failed(batch, ConnectionLost("the response lacks a partition that was written"))

    def _written(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        state = self._partitions[batch.topic, batch.partition]
        self._remove(state, batch)
        batch.written.set_result((base_offset, append_time_ms))

    def _failed(self, batch: Batch, error: ClientError) -> None:
        """Retry the batch later, split it, or give it up."""
        if (
            isinstance(error, KafkaError)
            and error.code == ErrorCode.MESSAGE_TOO_LARGE
            and batch.count > 1
        ):
            self._split(batch)
            return
        now = asyncio.get_running_loop().time()
        if error.stale_metadata:
            self.client.metadata.doubt([batch.topic])
        batch.retry_at = now + backoff_seconds(batch.attempts, error)
        batch.attempts += 1
        is_in_time = batch.retry_at < batch.created + self.delivery_timeout_seconds
        if error.retriable and is_in_time and self._refusal is None:
            return
        self._identities.gave_up(error, was_stamped=bool(batch.encoded))
        self._finish(self._partitions[batch.topic, batch.partition], batch, error)

    def _split(self, batch: Batch) -> None:
        """Replace a batch that is too large by its halves (KIP-126, Sender.completeBatch)."""
        state = self._partitions[batch.topic, batch.partition]
        assert state.batches[0] is batch, "batches of a partition are written in order"
        if batch.stamp is not None:
            # nothing of it was appended and no later batch has numbers yet: the halves reuse its
            # own
            state.sequence = batch.stamp.base_sequence
        first, second = batch.split()
        state.batches.popleft()
        state.batches.extendleft((second, first))
        batch.written.set_result((-1, -1))

    def _finish(self, state: BatchQueue, batch: Batch, error: ClientError) -> None:
        self._remove(state, batch)
        self._failure = self._failure or error
        batch.written.set_exception(error)
        batch.written.exception()  # `flush` raises it for those who do not await deliveries

    def _remove(self, state: BatchQueue, batch: Batch) -> None:
        assert self._refusal is not None or state.batches[0] is batch, (
            "batches are written in order"
        )
        state.batches.remove(batch)
        batch.release()
        self._buffered -= batch.size
        self._room.set()
