"""OffsetDelete: splits off topics that do not exist; the rest goes to the coordinator.

The coordinator's part is in `logfleet.groups.offsets`. Source: KafkaApis.handleOffsetDeleteRequest.
"""

from collections.abc import Awaitable
from typing import Any

from logfleet.groups.offsets import offset_deleted
from logfleet.metadata.image import ClusterImage
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms, shard_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetDeleteRequest, OffsetDeleteResponse

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def offset_delete(
    rooms: Rooms, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    unknown = _take_unknown(rooms.metadata.image, request)
    shard = shard_of(rooms, request.group_id)
    if isinstance(shard, ErrorCode):
        return OffsetDeleteResponse(error_code=shard)
    waiter = Waiter[OffsetDeleteResponse]()
    turn = shard.turn()
    shard.coordinator.delete_offsets(turn, request, waiter)
    shard.execute(turn)
    if waiter.response is not None:
        return _with_unknown(waiter.response, unknown)
    otherwise = OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR)
    return _delete_later(waiter.wait(context.peer, otherwise), unknown)


def _take_unknown(image: ClusterImage, request: OffsetDeleteRequest) -> list[_Topic]:
    """Remove unknown partitions from the request; return their error rows."""
    unknown = []
    for wanted in request.topics:
        topic = image.topic(wanted.name)
        count = 0 if topic is None else len(topic.partitions)
        there = [row for row in wanted.partitions if 0 <= row.partition_index < count]
        if len(there) < len(wanted.partitions):
            rows = [
                offset_deleted(row.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for row in wanted.partitions
                if not 0 <= row.partition_index < count
            ]
            unknown.append(_Topic(name=wanted.name, partitions=rows))
            wanted.partitions = there
    request.topics = [wanted for wanted in request.topics if wanted.partitions]
    return unknown


async def _delete_later(
    response: Awaitable[OffsetDeleteResponse], unknown: list[_Topic]
) -> OffsetDeleteResponse:
    return _with_unknown(await response, unknown)


def _with_unknown(response: OffsetDeleteResponse, unknown: list[_Topic]) -> OffsetDeleteResponse:
    """One row per topic: unknown partitions before the coordinator's."""
    if response.error_code != ErrorCode.NONE or not unknown:
        return response
    merged: dict[str, _Topic] = {}
    for topic in (*unknown, *response.topics):
        merged.setdefault(topic.name, _Topic(name=topic.name)).partitions += topic.partitions
    return OffsetDeleteResponse(topics=list(merged.values()))


HANDLERS: dict[type, Handler[Any]] = {OffsetDeleteRequest: offset_delete}
