"""Offsets of partitions by time: their start, their end, or the offset of a timestamp."""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import raise_for
from logfleet.wire.messages import ListOffsetsRequest, ListOffsetsResponse


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A topic's name and a partition's index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetSpec(IntEnum):
    """Special values for a time in milliseconds since 1970 (Kafka: ListOffsetsRequest, KIP-734)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class IsolationLevel(IntEnum):
    """Which records are visible (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetAt(msgspec.Struct, frozen=True):
    """offset: -1 if no record is that new; timestamp: that record's, -1 for LATEST and EARLIEST."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    client: Client,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after each partition's time (milliseconds), or of an OffsetSpec.

    One request per leader. Raises KafkaError for the first partition that fails for good or longer
    than the client's `timeout_ms`.
    """
    found: dict[TopicPartition, OffsetAt] = {}

    async def call() -> None:
        missing = {key: time for key, time in wanted.items() if key not in found}
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for key, time in missing.items():
            leader = await client.leader_of(key.topic, key.partition)
            by_leader.setdefault(leader, {})[key] = time
        for leader, times in by_leader.items():
            found.update(await _ask(client, leader, times, isolation))

    topics = {key.topic for key in wanted}
    await client.retrying(call, topics=topics)
    return found


async def _ask(
    client: Client, leader: int, times: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, OffsetAt]:
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for key, time in times.items():
        row = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=key.partition, timestamp=int(time)
        )
        topics.setdefault(key.topic, []).append(row)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows)
            for name, rows in topics.items()
        ],
        timeout_ms=client.request_timeout_ms,
    )
    connection = await client.broker(leader)
    response = await connection.request(
        request, ListOffsetsResponse, timeout_ms=client.request_timeout_ms
    )
    found = {}
    for topic in response.topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            raise_for(partition.error_code, subject=str(key))
            found[key] = OffsetAt(partition.offset, partition.timestamp, partition.leader_epoch)
    return found
