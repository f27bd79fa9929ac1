"""OffsetFetch: differences between versions; a topic that does not exist is no error.

Source: KafkaApis.handleOffsetFetchRequest, OffsetFetchResponse.Builder.
"""

from collections.abc import Awaitable
from typing import Any, Final

from logfleet.groups.offsets import NO_OFFSET, ZERO_UUID
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms, shard_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetFetchRequest, OffsetFetchResponse

TOPIC_IDS_SINCE: Final = 10  # KIP-848
GROUPS_SINCE: Final = 8  # KIP-709
GROUP_ERROR_SINCE: Final = 2

_FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopics
_FetchAnswer = OffsetFetchResponse.OffsetFetchResponseTopics
_GroupAnswer = OffsetFetchResponse.OffsetFetchResponseGroup


def offset_fetch(
    rooms: Rooms, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Several groups since version 8, one before; since version 10 topics have ids and no names."""
    fetching = _Fetching(rooms, request, context.api_version)
    if fetching.is_done:
        return fetching.response()
    return fetching.response_later(context)


class _Fetching:
    """One OffsetFetch in progress: an answer per group, in the request's order."""

    def __init__(self, rooms: Rooms, request: OffsetFetchRequest, api_version: int) -> None:
        self._rooms = rooms
        self._image = rooms.metadata.image
        self._version = api_version
        self._request = request
        self._groups = _groups(request, api_version)
        self._unknown: list[list[_FetchAnswer]] = []
        self._waiters: list[Waiter[_GroupAnswer]] = []
        for group in self._groups:
            self._start(group)

    @property
    def is_done(self) -> bool:
        return all(waiter.response is not None for waiter in self._waiters)

    def _start(self, group: _FetchGroup) -> None:
        waiter = Waiter[_GroupAnswer]()
        self._waiters.append(waiter)
        self._unknown.append(self._take_unknown(group))
        shard = shard_of(self._rooms, group.group_id)
        if isinstance(shard, ErrorCode):
            waiter.answer(_GroupAnswer(group_id=group.group_id, error_code=shard))
            return
        turn = shard.turn()
        shard.coordinator.fetch(turn, group, waiter, require_stable=self._request.require_stable)
        shard.execute(turn)

    def _take_unknown(self, group: _FetchGroup) -> list[_FetchAnswer]:
        """Give the group's topics both name and id; answer unknown ids here."""
        if group.topics is None:
            return []
        if self._version < TOPIC_IDS_SINCE:
            for wanted in group.topics:
                topic = self._image.topic(wanted.name)
                wanted.topic_id = ZERO_UUID if topic is None else topic.id
            return []
        unknown = []
        found: list[_FetchTopic] = []
        for wanted in group.topics:
            topic = self._image.topic_by_id(wanted.topic_id)
            if topic is None:
                unknown.append(_no_offsets(wanted, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                wanted.name = topic.name
                found.append(wanted)
        group.topics = found
        return unknown

    async def response_later(self, context: RequestContext) -> OffsetFetchResponse:
        for group, waiter in zip(self._groups, self._waiters, strict=True):
            error = ErrorCode.NOT_COORDINATOR
            otherwise = _GroupAnswer(group_id=group.group_id, error_code=error)
            await waiter.wait(context.peer, otherwise)
        return self.response()

    def response(self) -> OffsetFetchResponse:
        answers = []
        for waiter, unknown in zip(self._waiters, self._unknown, strict=True):
            answer = waiter.response
            assert answer is not None
            if answer.error_code == ErrorCode.NONE:
                if self._version >= TOPIC_IDS_SINCE:
                    answer.topics = self._with_ids(answer.topics)
                answer.topics = unknown + answer.topics
            answers.append(answer)
        if self._version >= GROUPS_SINCE:
            return OffsetFetchResponse(groups=answers)
        return self._single(answers[0])

    def _with_ids(self, topics: list[_FetchAnswer]) -> list[_FetchAnswer]:
        """Give an id to topics of a fetch of everything; drop those that were deleted meanwhile."""
        found = []
        for answer in topics:
            if answer.topic_id == ZERO_UUID:
                topic = self._image.topic(answer.name)
                if topic is None:
                    continue
                answer.topic_id = topic.id
            found.append(answer)
        return found

    def _single(self, answer: _GroupAnswer) -> OffsetFetchResponse:
        """The answer about one group; in version 1 each partition carries its error."""
        topics = answer.topics
        if answer.error_code != ErrorCode.NONE and self._version < GROUP_ERROR_SINCE:
            error = ErrorCode(answer.error_code)
            topics = [_no_offsets(topic, error) for topic in self._request.topics or []]
        return OffsetFetchResponse(
            error_code=answer.error_code,
            topics=[
                OffsetFetchResponse.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponse.OffsetFetchResponsePartition(
                            partition_index=partition.partition_index,
                            committed_offset=partition.committed_offset,
                            committed_leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.metadata,
                            error_code=partition.error_code,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in topics
            ],
        )


def _groups(request: OffsetFetchRequest, api_version: int) -> list[_FetchGroup]:
    """The groups of the request, in the form of version 8."""
    if api_version >= GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            _FetchTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [_FetchGroup(group_id=request.group_id, topics=topics)]


def _no_offsets(
    topic: _FetchTopic | OffsetFetchRequest.OffsetFetchRequestTopic, error: ErrorCode
) -> _FetchAnswer:
    return _FetchAnswer(
        name=topic.name,
        topic_id=topic.topic_id if isinstance(topic, _FetchTopic) else ZERO_UUID,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=NO_OFFSET,
                committed_leader_epoch=-1,
                metadata="",
                error_code=error,
            )
            for number in topic.partition_indexes
        ],
    )


HANDLERS: dict[type, Handler[Any]] = {OffsetFetchRequest: offset_fetch}
