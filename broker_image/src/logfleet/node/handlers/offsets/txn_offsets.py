"""TxnOffsetCommit: offsets that are committed with a producer's transaction (KIP-447).

First the partition of `__consumer_offsets` is enlisted in the transaction: an offset that would be
staged behind the transaction's marker would stay unstable for ever (KIP-890). Then the group's
coordinator decides. Source: KafkaApis.handleTxnOffsetCommitRequest,
GroupCoordinatorService.commitTransactionalOffsets.
"""

from collections.abc import Sequence
from typing import Any, Final

from logfleet.auth.operations import Operation, Resource, ResourceType
from logfleet.groups.transactional import PartitionAnswer, TopicAnswer, commit_failed
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.handlers.offsets.commit_topics import split_unknown, with_refused
from logfleet.node.handlers.rooms import Rooms, shard_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

TOPIC_IDS_SINCE: Final = 6  # KIP-1319
LOADING_SINCE: Final = 2
"""Older clients do not expect COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition


async def txn_offset_commit(
    rooms: Rooms, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Answered once the offsets are in the log and committed there."""
    producer = Resource(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    if not context.may(Operation.WRITE, producer):
        return commit_failed(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return commit_failed(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    by_id = context.api_version >= TOPIC_IDS_SINCE
    request.topics, refused = split_unknown(
        rooms.metadata.image, request.topics, by_id=by_id, refused=_refused
    )
    if refused and not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    response = await _commit(rooms, request, context)
    if refused:
        response = TxnOffsetCommitResponse(topics=with_refused(response.topics, refused))
    return response


async def _commit(
    rooms: Rooms, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    version = context.api_version
    shard = shard_of(rooms, request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if isinstance(shard, ErrorCode):
        return commit_failed(request, _expected(shard, version))
    error = await rooms.transactions.enlisting.enlist_offsets(
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        shard.partition,
        version,
    )
    # From here to the append nothing is awaited: a marker may end the transaction meanwhile.
    if error is not ErrorCode.NONE:
        return commit_failed(request, _expected(error, version))
    if shard.is_closed:
        return commit_failed(request, ErrorCode.NOT_COORDINATOR)
    return await _stage(shard, request, context)


async def _stage(
    shard: GroupShard, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    waiter = Waiter[TxnOffsetCommitResponse]()
    turn = shard.turn()
    shard.coordinator.commit_in_transaction(turn, request, context.api_version, waiter)
    shard.execute(turn)
    otherwise = commit_failed(request, ErrorCode.NOT_COORDINATOR)
    return await waiter.wait(context.peer, otherwise)


def _expected(error: ErrorCode, version: int) -> ErrorCode:
    is_unexpected = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_unexpected else error


def _refused(topic: _Topic, partitions: Sequence[_Partition], error: ErrorCode) -> TopicAnswer:
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            PartitionAnswer(partition_index=each.partition_index, error_code=error)
            for each in partitions
        ],
    )


HANDLERS: dict[type, Handler[Any]] = {TxnOffsetCommitRequest: txn_offset_commit}
