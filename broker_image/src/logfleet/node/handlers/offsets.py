"""OffsetCommit and OffsetFetch: differences between versions, and topics that do not exist.

A commit for a topic or partition that the cluster does not have is refused; fetching the offset of
one is no error. Source: KafkaApis.handleOffsetCommitRequest, handleOffsetFetchRequest;
OffsetFetchResponse.Builder.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Final

from logfleet.groups.offsets import NO_OFFSET, ZERO_UUID, commit_failed
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms, shard_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

TOPIC_IDS_SINCE: Final = 10  # KIP-848
GROUPS_SINCE: Final = 8  # KIP-709
GROUP_ERROR_SINCE: Final = 2

_CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
_CommitAnswer = OffsetCommitResponse.OffsetCommitResponseTopic
_FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopics
_FetchAnswer = OffsetFetchResponse.OffsetFetchResponseTopics
_GroupAnswer = OffsetFetchResponse.OffsetFetchResponseGroup


# -- commit


def offset_commit(
    rooms: Rooms, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    refused = _refuse_unknown(rooms.metadata.image, request, context.api_version)
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


def _refuse_unknown(
    image: ClusterImage, request: OffsetCommitRequest, api_version: int
) -> list[_CommitAnswer]:
    """Remove unknown partitions from the request; give the rest of its topics both name and id."""
    refused: list[_CommitAnswer] = []
    found: list[_CommitTopic] = []
    for wanted in request.topics:
        if api_version >= TOPIC_IDS_SINCE:
            topic = image.topic_by_id(wanted.topic_id)
            error = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = image.topic(wanted.name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            refused.append(_refused(wanted, wanted.partitions, error))
            continue
        wanted.name, wanted.topic_id = topic.name, topic.id
        missing = [each for each in wanted.partitions if not _has(topic, each.partition_index)]
        if missing:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refused(wanted, missing, error))
            wanted.partitions = [
                each for each in wanted.partitions if _has(topic, each.partition_index)
            ]
        if wanted.partitions:
            found.append(wanted)
    request.topics = found
    return refused


def _has(topic: Topic, index: int) -> bool:
    return 0 <= index < len(topic.partitions)


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
    """One row per topic: refused partitions beside the coordinator's."""
    if not refused:
        return response
    topics = {topic.name: topic for topic in refused if topic.name}
    unnamed = [topic for topic in refused if not topic.name]
    for answered in response.topics:
        refused_too = topics.setdefault(answered.name, answered)
        if refused_too is not answered:
            refused_too.partitions += answered.partitions
    return OffsetCommitResponse(topics=unnamed + list(topics.values()))


# -- fetch


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


HANDLERS: dict[type, Handler[Any]] = {
    OffsetCommitRequest: offset_commit,
    OffsetFetchRequest: offset_fetch,
}
