"""Logs on brokers' disks: deleting records before an offset, and sizes of log directories."""

from collections.abc import Mapping, Sequence

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import raise_for
from logfleet.client.offsets import TopicPartition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class LogSize(msgspec.Struct, frozen=True):
    """One partition in a directory; bytes of all its segments."""

    partition: TopicPartition
    size: int


class LogDirDescription(msgspec.Struct, frozen=True):
    """error: None, or the name of the error if nothing else is known.

    Space in bytes, -1 if the broker does not report it.
    """

    broker: int
    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    logs: tuple[LogSize, ...]


async def delete_records(
    client: Client, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records before each offset; returns the log start offsets afterwards.

    One request per leader. Raises KafkaError for the first partition that fails; those before it
    are done.
    """
    begins: dict[TopicPartition, int] = {}

    async def call() -> None:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for key, offset in offsets.items():
            if key not in begins:
                leader = await client.leader_of(key.topic, key.partition)
                by_leader.setdefault(leader, {})[key] = offset
        for leader, wanted in by_leader.items():
            await _delete(client, leader, wanted, begins)

    await client.retrying(call, topics={key.topic for key in offsets})
    return begins


async def _delete(
    client: Client,
    leader: int,
    offsets: Mapping[TopicPartition, int],
    begins: dict[TopicPartition, int],
) -> None:
    topics: dict[str, DeleteRecordsRequest.DeleteRecordsTopic] = {}
    for key, offset in offsets.items():
        topic = topics.setdefault(
            key.topic, DeleteRecordsRequest.DeleteRecordsTopic(name=key.topic)
        )
        topic.partitions.append(
            DeleteRecordsRequest.DeleteRecordsPartition(
                partition_index=key.partition, offset=offset
            )
        )
    connection = await client.broker(leader)
    response = await connection.request(
        DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=client.request_timeout_ms),
        DeleteRecordsResponse,
        timeout_ms=client.request_timeout_ms,
    )
    for result in response.topics:
        for row in result.partitions:
            key = TopicPartition(result.name, row.partition_index)
            raise_for(row.error_code, subject=str(key))
            begins[key] = row.low_watermark


async def describe_log_dirs(
    client: Client, broker_id: int, partitions: Sequence[TopicPartition] | None = None
) -> list[LogDirDescription]:
    """The log directories of one broker, with these partitions or all."""
    topics: dict[str, list[int]] = {}
    for key in partitions or ():
        topics.setdefault(key.topic, []).append(key.partition)
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    rows = [kind(topic=name, partitions=indexes) for name, indexes in topics.items()]
    request = DescribeLogDirsRequest(topics=None if partitions is None else rows)

    async def call() -> list[LogDirDescription]:
        connection = await client.broker(broker_id)
        response = await connection.request(
            request, DescribeLogDirsResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(response.error_code, subject=f"broker {broker_id}")
        return [_described(broker_id, result) for result in response.results]

    return await client.retrying(call)


def _described(
    broker_id: int, result: DescribeLogDirsResponse.DescribeLogDirsResult
) -> LogDirDescription:
    logs = [
        LogSize(TopicPartition(topic.name, row.partition_index), row.partition_size)
        for topic in result.topics
        for row in topic.partitions
        if not row.is_future_key  # a copy on its way to that directory
    ]
    error = ErrorCode(result.error_code).name if result.error_code else None
    return LogDirDescription(
        broker_id,
        result.log_dir,
        error,
        result.total_bytes,
        result.usable_bytes,
        tuple(sorted(logs, key=lambda log: log.partition)),
    )
