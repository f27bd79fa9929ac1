"""Reads partitions from given offsets, one long poll per leader at a time.

No fetch sessions and no background task: `poll` sends the requests; responses that arrive between
two calls are handled by the next one.
"""

import asyncio
from collections.abc import Iterator, Mapping

import msgspec

from logfleet.client.cluster import Client, backoff_seconds
from logfleet.client.errors import ClientError, KafkaError, raise_for
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition, list_offsets
from logfleet.records.aborted import AbortedTransaction, visible_batches
from logfleet.records.batch import BatchHeader, crc_matches, iterate_headers
from logfleet.records.errors import CorruptRecords, RecordsError
from logfleet.records.record import Record, read_records
from logfleet.records.search import Search
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse
from logfleet.wire.schema import ZERO_UUID

NAMES_UP_TO_VERSION = 12  # later versions name topics by their id alone (KIP-516)


class Fetched(msgspec.Struct, frozen=True):
    """Whole batches of one partition, from the one that holds `offset`, as the broker sent them.

    high_watermark: records below it are replicated. log_start_offset: the first that still exists.
    end_offset: the end of these batches. last_stable_offset: transactions below it have ended; -1
    from brokers that do not report it. aborted: transactions that `records` leaves out, none when
    uncommitted records are read.
    """

    partition: TopicPartition
    offset: int
    end_offset: int
    high_watermark: int
    log_start_offset: int
    batches: memoryview
    last_stable_offset: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()

    def records(self, search: Search | None = None) -> Iterator[Record]:
        """Records from `offset`, without control batches, and without aborted transactions.

        search: only those that it wants. There may be none, although `end_offset` is further on.
        Raises CorruptRecords if a checksum or a count is wrong, DecompressedTooLarge.
        """
        for position, _ in self.checked_batches():
            yield from self.batch_records(position, search)

    def batch_records(self, position: int, search: Search | None = None) -> Iterator[Record]:
        """The same of the batch at a position that `checked_batches` gave."""
        found = (
            read_records(self.batches, position)
            if search is None
            else search.matches(self.batches, position, partition=self.partition.partition)
        )
        for record in found:
            if record.offset >= self.offset:
                yield record

    def checked_batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """(position in `batches`, header) of each batch that `records` reads.

        The first may begin before `offset`. Raises CorruptRecords.
        """
        for position, header in visible_batches(self.batches, self.aborted):
            if not crc_matches(self.batches, header, position):
                raise CorruptRecords(f"{self.partition}: checksum at offset {header.base_offset}")
            yield position, header


class _Position:
    """The next offset of a partition, and since when reading it fails.

    topic_id: of the topic for which a broker has responded at this position; None before,
    or without ids. replica: the broker to fetch from instead of the leader, if the leader named one
    (KIP-392).
    """

    __slots__ = ("attempts", "failing_since", "offset", "replica", "retry_at", "topic_id")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.replica: int | None = None
        self.topic_id: bytes | None = None
        self.attempts = 0
        self.failing_since = 0.0
        self.retry_at = 0.0


class _InFlight(msgspec.Struct):
    """A Fetch under way; asked: the offset requested of each partition."""

    future: asyncio.Future[FetchResponse]
    asked: dict[TopicPartition, int]
    names: dict[bytes, str]


class Fetcher:
    """Assign partitions, then poll.

    max_wait_ms: how long a leader waits for min_bytes (Kafka: fetch.max.wait.ms). max_bytes,
    partition_bytes: of one response, and of one partition in it; one batch is always returned.
    rack: of this client; a leader may refer it to a replica there (Kafka: client.rack). reset:
    where to continue if an offset is out of range, as after a topic was deleted and created again;
    None: raise. isolation: READ_COMMITTED reads up to the last stable offset, and leaves out
    aborted transactions (Kafka: isolation.level).
    """

    def __init__(
        self,
        client: Client,
        *,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        max_bytes: int = 50 * 1024 * 1024,
        partition_bytes: int = 1024 * 1024,
        rack: str = "",
        reset: OffsetSpec | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self.client = client
        self.min_bytes = min_bytes
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.partition_bytes = partition_bytes
        self.rack = rack
        self.reset = reset
        self.isolation = isolation
        self._positions: dict[TopicPartition, _Position] = {}
        self._in_flight: dict[int, _InFlight] = {}
        self._failure: ClientError | None = None

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        self._positions = {key: _Position(offset) for key, offset in offsets.items()}

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, too, from these offsets."""
        self._positions |= {key: _Position(offset) for key, offset in offsets.items()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset of an assigned partition."""
        assert partition in self._positions, f"{partition} is not assigned"
        self._positions[partition] = _Position(offset)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition: the end of what `poll` returned."""
        return {key: position.offset for key, position in self._positions.items()}

    def topic_ids(self) -> dict[str, bytes]:
        """Topic ids by name: if one differs from before, the topic was deleted and recreated."""
        return {
            key.topic: position.topic_id
            for key, position in self._positions.items()
            if position.topic_id is not None
        }

    async def poll(self, timeout_ms: int = 1_000) -> list[Fetched]:
        """The batches that arrived; waits for some until the time is up, then the list is empty.

        Errors that may pass (a leader moves, a connection breaks) are retried for the client's
        `timeout_ms`. Raises KafkaError with OFFSET_OUT_OF_RANGE if there is no `reset`, and any
        ClientError that does not pass.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        fetched: list[Fetched] = []
        while True:
            retry_at = await self._send(loop.time())
            remaining = min(deadline, retry_at) - loop.time()
            await self._wait(max(remaining, 0))
            try:
                for leader in [
                    at for at, flight in self._in_flight.items() if flight.future.done()
                ]:
                    await self._receive(self._in_flight.pop(leader), fetched)
            except ClientError as error:
                if not fetched:
                    raise
                self._failure = error  # raised by the next call; first return the batches
            if fetched or loop.time() >= deadline:
                return fetched

    async def _wait(self, seconds: float) -> None:
        if self._in_flight:
            futures = [flight.future for flight in self._in_flight.values()]
            await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)

    # --- sending

    async def _send(self, now: float) -> float:
        """Send to leaders without a request under way; returns the loop time of the next retry."""
        by_leader: dict[int, list[TopicPartition]] = {}
        retry_at = float("inf")
        for key, position in self._positions.items():
            if position.retry_at > now:
                retry_at = min(retry_at, position.retry_at)
                continue
            leader = position.replica
            try:
                if leader is None:
                    leader = await self.client.leader_of(key.topic, key.partition)
            except ClientError as error:
                retry_at = min(retry_at, self._failed(key, error))
                continue
            if leader not in self._in_flight:
                by_leader.setdefault(leader, []).append(key)
        for leader, keys in by_leader.items():
            try:
                connection = await self.client.broker(leader, "fetch")
                if connection.throttled_until:
                    # send again then; other leaders go on (Kafka: NetworkClient.ready)
                    retry_at = min(retry_at, connection.throttled_until)
                    continue
                request, flight_names, version_max = await self._request(keys)
                future = connection.submit(
                    request,
                    FetchResponse,
                    timeout_ms=self.max_wait_ms + self.client.request_timeout_ms,
                    version_max=version_max,
                )
            except ClientError as error:
                retry_at = min(retry_at, *(self._failed(key, error) for key in keys))
                continue
            asked = {key: self._positions[key].offset for key in keys}
            self._in_flight[leader] = _InFlight(future, asked, flight_names)
        return retry_at

    async def _request(
        self, keys: list[TopicPartition]
    ) -> tuple[FetchRequest, dict[bytes, str], int | None]:
        topics: dict[str, FetchRequest.FetchTopic] = {}
        names: dict[bytes, str] = {}
        for key in keys:
            topic = topics.get(key.topic)
            if topic is None:
                topic_id = (await self.client.topic(key.topic)).topic_id
                names[topic_id] = key.topic
                topic = FetchRequest.FetchTopic(topic=key.topic, topic_id=topic_id)
                topics[key.topic] = topic
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=key.partition,
                    fetch_offset=self._positions[key].offset,
                    partition_max_bytes=self.partition_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation,
            topics=list(topics.values()),
            rack_id=self.rack,
        )
        return request, names, NAMES_UP_TO_VERSION if ZERO_UUID in names else None

    # --- receiving

    async def _receive(self, flight: _InFlight, fetched: list[Fetched]) -> None:
        """Add a response's batches to `fetched`, even if it raises the error of a partition."""
        try:
            response = flight.future.result()
            raise_for(response.error_code, subject="fetch")
        except ClientError as error:
            for key in flight.asked:
                if key in self._positions:
                    self._failed(key, error)
            return
        ids = {name: topic_id for topic_id, name in flight.names.items() if topic_id != ZERO_UUID}
        for topic in response.responses:
            name = topic.topic or flight.names.get(topic.topic_id, "")
            for row in topic.partitions:
                key = TopicPartition(name, row.partition_index)
                position = self._positions.get(key)
                if position is None or position.offset != flight.asked.get(key):
                    continue  # no longer assigned, or `seek` was called meanwhile
                if row.error_code:
                    await self._refused(key, KafkaError(row.error_code, subject=str(key)))
                    continue
                topic_id = ids.get(name)
                if topic_id is not None and position.topic_id not in (None, topic_id):
                    # the offset is for a deleted topic; this is a later one of the same name
                    # (KIP-516)
                    reason = "the topic was deleted and created again"
                    recreated = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, reason, subject=str(key))
                    await self._refused(key, recreated)
                    continue
                position.attempts = 0
                position.topic_id = position.topic_id or topic_id
                if row.preferred_read_replica >= 0:
                    position.replica = row.preferred_read_replica
                if row.records:
                    fetched.append(self._take(key, position, row))

    def _take(
        self, key: TopicPartition, position: _Position, row: FetchResponse.PartitionData
    ) -> Fetched:
        assert isinstance(row.records, memoryview), "decoded records are a view of the frame"
        end_offset = position.offset
        end_position = 0
        try:
            for at, header in iterate_headers(row.records):
                end_offset, end_position = header.next_offset, at + header.size
        except RecordsError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error), subject=str(key)) from error
        fetched = Fetched(
            key,
            position.offset,
            max(end_offset, position.offset),
            row.high_watermark,
            row.log_start_offset,
            row.records[:end_position],
            row.last_stable_offset,
            self._aborted(row),
        )
        # a partition with records moves to the end, so that a full response starves none
        self._positions.pop(key)
        position.offset = fetched.end_offset
        self._positions[key] = position
        return fetched

    def _aborted(self, row: FetchResponse.PartitionData) -> tuple[AbortedTransaction, ...]:
        """Empty for a reader of uncommitted records, even if a broker sends some."""
        if not row.aborted_transactions or self.isolation is IsolationLevel.READ_UNCOMMITTED:
            return ()
        return tuple(
            AbortedTransaction(each.producer_id, each.first_offset)
            for each in row.aborted_transactions
        )

    async def _refused(self, key: TopicPartition, error: KafkaError) -> None:
        position = self._positions[key]
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and position.replica is not None:
            position.replica = None  # a follower may lack what the leader has (FetchCollector)
            return
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and self.reset is not None:
            found = await list_offsets(self.client, {key: self.reset}, isolation=self.isolation)
            self.seek(key, found[key].offset)
            return
        self._failed(key, error)

    def _failed(self, key: TopicPartition, error: ClientError) -> float:
        """Retry the partition at the returned loop time; raises `error` if that is useless."""
        now = asyncio.get_running_loop().time()
        position = self._positions[key]
        if position.attempts == 0:
            position.failing_since = now
        position.replica = None
        if not error.retriable or now - position.failing_since > self.client.timeout_ms / 1000:
            raise error
        if error.stale_metadata:
            self.client.metadata.doubt([key.topic])
        position.retry_at = now + backoff_seconds(position.attempts)
        position.attempts += 1
        return position.retry_at
