"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments for partitions of one replica.

Nothing of it changes anything yet, so that the broker that is asked answers from its image.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from logfleet.control.elections import refuse_election
from logfleet.control.reassignments import refuse_reassignment
from logfleet.control.transactions import Refusal
from logfleet.metadata.image import ClusterImage
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.host import AdminHost
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

# Kafka: ElectionType
PREFERRED: Final = 0
UNCLEAN: Final = 1
PARTITIONS_AT_ONCE: Final = 1_000
"""Looked at without letting the loop do something else: about 1 ms."""

_Election = ElectLeadersResponse.ReplicaElectionResult
_Elected = ElectLeadersResponse.PartitionResult
_Moves = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Moved = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


# --- ElectLeaders (KIP-460)


async def elect_leaders(
    host: AdminHost, request: ElectLeadersRequest, _context: RequestContext
) -> ElectLeadersResponse:
    """Of all topics, only what is not as it should be is told."""
    if request.election_type not in {PREFERRED, UNCLEAN}:
        message = f"Unknown election type {request.election_type}"
        refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
        return ElectLeadersResponse(
            error_code=refusal.error,
            replica_election_results=[
                _Election(
                    topic=topic.topic,
                    partition_result=[_elected(index, refusal) for index in topic.partitions],
                )
                for topic in request.topic_partitions or []
            ],
        )
    unclean = request.election_type == UNCLEAN
    if request.topic_partitions is None:
        results = await _of_all(host.image, unclean=unclean)
    else:
        results = [
            _Election(
                topic=topic.topic,
                partition_result=list(
                    _of_topic(host.image, topic.topic, topic.partitions, unclean=unclean)
                ),
            )
            for topic in request.topic_partitions
        ]
    return ElectLeadersResponse(replica_election_results=results)


async def _of_all(image: ClusterImage, *, unclean: bool) -> list[_Election]:
    results = []
    looked_at = 0
    for topic in image.topics():
        rows = _of_topic(image, topic.name, range(len(topic.partitions)), unclean=unclean)
        failed = [row for row in rows if row.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(_Election(topic=topic.name, partition_result=failed))
        looked_at += len(topic.partitions)
        if looked_at >= PARTITIONS_AT_ONCE:
            looked_at = 0
            await asyncio.sleep(0)
    return results


def _of_topic(
    image: ClusterImage, name: str, indexes: Iterable[int], *, unclean: bool
) -> Iterator[_Elected]:
    topic = image.topic(name)
    for index in indexes:
        if topic is None:
            refusal = _unknown(f"No such topic as {name}")
        elif not 0 <= index < len(topic.partitions):
            refusal = _unknown(f"No such partition as {name}-{index}")
        else:
            refusal = refuse_election(topic.partitions[index], unclean=unclean)
        yield _elected(index, refusal)


def _unknown(message: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _elected(index: int, refusal: Refusal) -> _Elected:
    return _Elected(partition_id=index, error_code=refusal.error, error_message=refusal.message)


# --- AlterPartitionReassignments, ListPartitionReassignments (KIP-455)


def alter_partition_reassignments(
    host: AdminHost, request: AlterPartitionReassignmentsRequest, _context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    responses = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            refusal = refuse_reassignment(
                host.image,
                topic.name,
                wanted.partition_index,
                wanted.replicas,
                may_change_factor=request.allow_replication_factor_change,
            )
            rows.append(_moved(wanted.partition_index, refusal))
        responses.append(_Moves(name=topic.name, partitions=rows))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if responses else "",
        responses=responses,
    )


def _moved(index: int, refusal: Refusal | None) -> _Moved:
    if refusal is None:
        return _Moved(partition_index=index, error_message=None)
    return _Moved(
        partition_index=index, error_code=refusal.error, error_message=refusal.message or None
    )


def list_partition_reassignments(
    _host: AdminHost, _request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """None is ever under way."""
    return ListPartitionReassignmentsResponse(error_message=None)
