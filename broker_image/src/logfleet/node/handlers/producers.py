"""DescribeProducers: the producers of partitions, and their open transactions (KIP-664).

Every replica answers from its own log, so that a hanging transaction is found on followers, too.
Source: KafkaApis.handleDescribeProducersRequest, ReplicaManager.activeProducerState.
"""

from typing import Any

from logfleet.auth.operations import Operation, Resource, ResourceType
from logfleet.controller.changes.topics import name_problem, unknown_topic
from logfleet.io.slices import Slices
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.replica import Replica
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DescribeProducersRequest, DescribeProducersResponse
from logfleet.wire.refusal import Refusal

_Row = DescribeProducersResponse.PartitionResponse
_Producer = DescribeProducersResponse.ProducerState


async def describe_producers(
    rooms: Rooms, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """One row per partition, in the order of the request; one that is named twice has one row.

    INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION; for a partition
    without a replica here the error that `PartitionTable.error_for` names.
    """
    # Each row has all producers of a partition: a name that comes often must not fill the memory.
    named: dict[str, dict[int, None]] = {}
    for asked in request.topics:
        named.setdefault(asked.name, {}).update(dict.fromkeys(asked.partition_indexes))
    topics, slices = [], Slices()
    for name, indexes in named.items():
        refusal = _refusal(rooms, name, context)
        rows = []
        for index in indexes:
            await slices.pause_if_due()
            if refusal is None:
                rows.append(await _row(rooms, name, index, slices))
            else:
                rows.append(_refused(index, refusal))
        topics.append(DescribeProducersResponse.TopicResponse(name=name, partitions=rows))
    return DescribeProducersResponse(topics=topics)


def _refusal(rooms: Rooms, topic: str, context: RequestContext) -> Refusal | None:
    """Why the client gets nothing of this topic."""
    problem = name_problem(topic)
    if problem is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if not context.may(Operation.READ, Resource(ResourceType.TOPIC, topic)):
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    return unknown_topic() if rooms.metadata.image.topic(topic) is None else None


def _refused(index: int, refusal: Refusal) -> _Row:
    return _Row(partition_index=index, error_code=refusal.error, error_message=refusal.message)


async def _row(rooms: Rooms, topic: str, index: int, slices: Slices) -> _Row:
    hosted = rooms.partitions.by_name.get(topic)
    replica = None if hosted is None else hosted.replicas.get(index)
    if replica is None:
        return _Row(partition_index=index, error_code=rooms.partitions.error_for(topic, index))
    return _Row(partition_index=index, active_producers=await _producers(replica, slices))


async def _producers(replica: Replica, slices: Slices) -> list[_Producer]:
    rows: list[_Producer] = []
    for producer_id in list(replica.log.producers.states.ids()):
        entry = replica.log.producers.states.get(producer_id)
        if entry is not None:  # else it has expired meanwhile
            rows.append(
                _Producer(
                    producer_id=producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_first_offset,
                )
            )
        await slices.pause_if_due()
    return rows


HANDLERS: dict[type, Handler[Any]] = {DescribeProducersRequest: describe_producers}
