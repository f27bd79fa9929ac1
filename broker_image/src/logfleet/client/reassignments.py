"""Reassignments: starting, cancelling and listing them (KIP-455); leader elections (KIP-460)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import raise_for
from logfleet.client.offsets import TopicPartition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

UNCLEAN: Final = 1
"""The election_type of ElectLeaders."""
PARTITIONS_MAX = 1_000
"""Partitions per request: the controller decides on a request as a whole."""


class Reassignment(msgspec.Struct, frozen=True):
    """replicas: all current ones; adding, removing: those of them that are new or will go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.adding)


Moving = Mapping[TopicPartition, Reassignment]
"""Reassignments under way, by partition."""


def target_of(moving: Moving, topic: str, index: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """A partition's replicas after its reassignment. replicas: from metadata."""
    move = moving.get(TopicPartition(topic, index))
    return replicas if move is None else move.target


async def alter_reassignments(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, str]:
    """Move each partition to these brokers, the preferred leader first; None cancels its move.

    Returns the reasons by refused partition. The number of replicas may change (KIP-860). Returns
    when the moves have begun, not when they are done.
    """
    refused: dict[TopicPartition, str] = {}
    keys = list(wanted)
    for start in range(0, len(keys), PARTITIONS_MAX):
        part = {key: wanted[key] for key in keys[start : start + PARTITIONS_MAX]}
        refused |= await _alter(client, part)
    return refused


async def _alter(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, str]:
    kind = AlterPartitionReassignmentsRequest
    topics: dict[str, AlterPartitionReassignmentsRequest.ReassignableTopic] = {}
    for key, ids in wanted.items():
        topic = topics.setdefault(key.topic, kind.ReassignableTopic(name=key.topic))
        topic.partitions.append(
            kind.ReassignablePartition(
                partition_index=key.partition, replicas=None if ids is None else list(ids)
            )
        )
    request = kind(topics=list(topics.values()), timeout_ms=client.request_timeout_ms)

    async def call() -> dict[TopicPartition, str]:
        connection = await client.any()
        response = await connection.request(
            request, AlterPartitionReassignmentsResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(response.error_code, response.error_message, subject="reassignments")
        return {
            TopicPartition(topic.name, row.partition_index): row.error_message
            or ErrorCode(row.error_code).name
            for topic in response.responses
            for row in topic.partitions
            if row.error_code != ErrorCode.NONE
        }

    return await client.retrying(call)


async def list_reassignments(client: Client) -> dict[TopicPartition, Reassignment]:
    """All reassignments under way."""
    request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=client.request_timeout_ms)

    async def call() -> dict[TopicPartition, Reassignment]:
        connection = await client.any()
        response = await connection.request(
            request, ListPartitionReassignmentsResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(response.error_code, response.error_message, subject="reassignments")
        return {
            TopicPartition(topic.name, row.partition_index): Reassignment(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in response.topics
            for row in topic.partitions
        }

    return await client.retrying(call)


async def elect_unclean(
    client: Client, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, str]:
    """Let any available replica lead these partitions, even if records are lost (KIP-460).

    Returns the reasons by partition that has no leader still. Raises ClientError.
    """
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    request = ElectLeadersRequest(
        election_type=UNCLEAN,
        topic_partitions=[
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
        timeout_ms=client.request_timeout_ms,
    )

    async def call() -> dict[TopicPartition, str]:
        connection = await client.any()
        response = await connection.request(
            request, ElectLeadersResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(response.error_code, subject="unclean election")
        return {
            TopicPartition(each.topic, row.partition_id): row.error_message
            or ErrorCode(row.error_code).name
            for each in response.replica_election_results
            for row in each.partition_result
            if row.error_code not in {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
        }

    return await client.retrying(call)


async def elect_preferred_leaders(client: Client, only: TopicPartition | None = None) -> None:
    """Make the first replica of every partition, or of this one, its leader if it is in sync."""
    topics = None
    if only is not None:
        topics = [
            ElectLeadersRequest.TopicPartitions(topic=only.topic, partitions=[only.partition])
        ]
    request = ElectLeadersRequest(
        election_type=0, topic_partitions=topics, timeout_ms=client.request_timeout_ms
    )

    async def call() -> None:
        connection = await client.any()
        response = await connection.request(
            request, ElectLeadersResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(response.error_code, subject="preferred leaders")

    await client.retrying(call)
