"""Offsets of many partitions, and their newest batches: a request per leader and 1,000 partitions.

Unlike in `logfleet.client.offsets` nothing is retried, and a partition that fails is left out: a
check reports a fleet as it is, also a broken one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from logfleet.checks.snapshot import NO_LEADER, Batch
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.metadata import Topic
from logfleet.client.offsets import OffsetAt, TopicPartition
from logfleet.records.batch import HEADER_SIZE, parse_header
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

T = TypeVar("T")

PARTITIONS_MAX: Final = 1_000
"""In one request; brokers answer other clients in between."""
BATCH_BYTES_MAX: Final = 256 * 1024
"""A newest batch that is larger is left out."""
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
NAMES_UP_TO_VERSION: Final = 12
"""Later versions of Fetch have topic ids, which older brokers have not."""

Leaders = Mapping[TopicPartition, int]


def leaders_of(topics: Collection[Topic]) -> dict[TopicPartition, int]:
    """The leader of every partition that has one."""
    return {
        TopicPartition(topic.name, each.index): each.leader
        for topic in topics
        for each in topic.partitions
        if each.leader != NO_LEADER
    }


async def offsets_at(
    client: Client, leaders: Leaders, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAt]:
    """As `client.offsets.list_offsets`, without partitions that fail.

    Raises ClientError if no leader answers.
    """

    async def ask(leader: int, keys: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAt]:
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for key in keys:
            row = ListOffsetsRequest.ListOffsetsPartition(
                partition_index=key.partition, timestamp=wanted[key]
            )
            topic = topics.setdefault(
                key.topic, ListOffsetsRequest.ListOffsetsTopic(name=key.topic)
            )
            topic.partitions.append(row)
        request = ListOffsetsRequest(
            replica_id=-1, topics=list(topics.values()), timeout_ms=client.request_timeout_ms
        )
        connection = await client.broker(leader)
        response = await connection.request(
            request, ListOffsetsResponse, timeout_ms=client.request_timeout_ms
        )
        return {
            TopicPartition(topic.name, row.partition_index): OffsetAt(
                row.offset, row.timestamp, row.leader_epoch
            )
            for topic in response.topics
            for row in topic.partitions
            if not row.error_code
        }

    return await _of_leaders(leaders, wanted, ask)


async def newest_batches(
    client: Client, leaders: Leaders, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Batch]:
    """The newest batch of each partition, without those that have none of records.

    ends: exclusive. Raises ClientError if no leader answers.
    """

    async def ask(leader: int, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Batch]:
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for key in keys:
            row = FetchRequest.FetchPartition(
                partition=key.partition,
                fetch_offset=ends[key] - 1,
                partition_max_bytes=BATCH_BYTES_MAX,
            )
            topic = topics.setdefault(key.topic, FetchRequest.FetchTopic(topic=key.topic))
            topic.partitions.append(row)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES_MAX, topics=list(topics.values())
        )
        connection = await client.broker(leader)
        response = await connection.request(
            request,
            FetchResponse,
            timeout_ms=client.request_timeout_ms,
            version_max=NAMES_UP_TO_VERSION,
        )
        found = {}
        for result in response.responses:
            for each in result.partitions:
                batch = _batch(each)
                if batch is not None:
                    found[TopicPartition(result.topic, each.partition_index)] = batch
        return found

    return await _of_leaders(leaders, ends, ask)


def _batch(row: FetchResponse.PartitionData) -> Batch | None:
    """The first batch of the response; None if there is none, or only a marker."""
    if row.error_code or not isinstance(row.records, memoryview | bytes):
        return None
    if len(row.records) < HEADER_SIZE:
        return None
    header = parse_header(row.records)
    if header.is_control:
        return None
    return Batch(
        idempotent=header.has_producer_id,
        compressed=bool(header.codec_bits),
        records=header.record_count,
        size=header.size,
    )


async def _of_leaders(
    leaders: Leaders,
    keys: Collection[TopicPartition],
    ask: Callable[[int, Sequence[TopicPartition]], Awaitable[dict[TopicPartition, T]]],
) -> dict[TopicPartition, T]:
    """What leaders answer, all of them asked at once. Raises ClientError if none answers."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for key in keys:
        if key in leaders:
            by_leader.setdefault(leaders[key], []).append(key)
    found: dict[TopicPartition, T] = {}
    failures: list[ClientError] = []

    async def ask_leader(leader: int, own: Sequence[TopicPartition]) -> None:
        try:
            for some in in_parts(own, PARTITIONS_MAX):
                found.update(await ask(leader, some))
        except ClientError as error:
            failures.append(error)

    await asyncio.gather(*(ask_leader(*each) for each in by_leader.items()))
    if failures and not found:
        raise failures[0]
    return found


def in_parts(items: Sequence[T], length: int) -> Iterator[Sequence[T]]:
    """The items in sequences of at most this length."""
    for start in range(0, len(items), length):
        yield items[start : start + length]
