"""OffsetCommit: differences between versions, and topics that do not exist (`commit_topics`).

Source: KafkaApis.handleOffsetCommitRequest.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Final

from logfleet.groups.offsets import commit_failed
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.offsets.commit_topics import split_unknown, with_refused
from logfleet.node.handlers.rooms import Rooms, shard_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetCommitRequest, OffsetCommitResponse

TOPIC_IDS_SINCE: Final = 10  # KIP-848

_CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
_CommitAnswer = OffsetCommitResponse.OffsetCommitResponseTopic


def offset_commit(
    rooms: Rooms, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    by_id = context.api_version >= TOPIC_IDS_SINCE
    request.topics, refused = split_unknown(
        rooms.metadata.image, request.topics, by_id=by_id, refused=_refused
    )
    if refused and not request.topics:
        return OffsetCommitResponse(topics=refused)
    shard = shard_of(rooms, request.group_id)
    if isinstance(shard, ErrorCode):
        return _with_refused(commit_failed(request, shard), refused)
    waiter = Waiter[OffsetCommitResponse]()
    turn = shard.turn()
    shard.coordinator.commit(turn, request, context.api_version, waiter)
    shard.execute(turn)
    if waiter.response is not None:
        return _with_refused(waiter.response, refused)
    otherwise = commit_failed(request, ErrorCode.NOT_COORDINATOR)
    return _commit_later(waiter.wait(context.peer, otherwise), refused)


def _refused(
    topic: _CommitTopic,
    partitions: Sequence[OffsetCommitRequest.OffsetCommitRequestPartition],
    error: ErrorCode,
) -> _CommitAnswer:
    return _CommitAnswer(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
            for partition in partitions
        ],
    )


async def _commit_later(
    response: Awaitable[OffsetCommitResponse], refused: list[_CommitAnswer]
) -> OffsetCommitResponse:
    return _with_refused(await response, refused)


def _with_refused(
    response: OffsetCommitResponse, refused: list[_CommitAnswer]
) -> OffsetCommitResponse:
    if not refused:
        return response
    return OffsetCommitResponse(topics=with_refused(response.topics, refused))


HANDLERS: dict[type, Handler[Any]] = {OffsetCommitRequest: offset_commit}
