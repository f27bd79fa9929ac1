"""Committed offsets: who may commit, what is stored, what is answered.

Upholds I15 (an offset fetched after an acknowledged commit is that commit's or a later one's) together with
the shell: a commit is answered when its records are committed, a fetch when all that was appended before it is.
Source: Kafka's OffsetMetadataManager and ClassicGroup.validateOffsetCommit.
"""

from collections.abc import Iterator
from functools import partial

from logfleet.groups.classic import ClassicGroup, GroupState
from logfleet.groups.rebalance import Rebalancer
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import Turn, Waiter, answer_to_append_error
from logfleet.wire.consumer_protocol import PROTOCOL_TYPE
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

GROUP_NOT_FOUND_VERSION = 9
"""From this version of OffsetCommit on a missing group is called that, before: ILLEGAL_GENERATION."""
NO_OFFSET = -1
"""What OffsetFetch answers, without an error, where nothing is committed."""
TIMESTAMP_MAX = 2**63 - 1
ZERO_UUID = bytes(16)
"""A topic id that nobody told."""

PartitionAnswer = OffsetFetchResponse.OffsetFetchResponsePartitions
TopicAnswer = OffsetFetchResponse.OffsetFetchResponseTopics


class OffsetCommits:
    """Handles commits and fetches of offsets for all groups of a table."""

    def __init__(self, table: GroupTable, rebalancer: Rebalancer) -> None:
        self._table = table
        self._rebalancer = rebalancer

    def commit(
        self, turn: Turn, request: OffsetCommitRequest, api_version: int, waiter: Waiter
    ) -> None:
        """Handle an OffsetCommit whose topics all carry their names and, where known, their ids."""
        error = self._check(request, api_version)
        if error is not ErrorCode.NONE:
            turn.reply(waiter, commit_failed(request, error))
            return
        group = self._table.groups.get(request.group_id)
        if group is not None and group.state in {GroupState.STABLE, GroupState.PREPARING_REBALANCE}:
            self._rebalancer.start_session(group.members[request.member_id], turn)
        records: list[GroupRecord] = []
        response = OffsetCommitResponse(
            topics=[self._commit_topic(turn, request, topic, records) for topic in request.topics]
        )
        if not records:
            turn.reply(waiter, response)
            return
        if group is None:
            turn.note("simple_group_created", group=request.group_id, why="offsets committed")
        turn.write(records, partial(_answer_commit, request, response, waiter))

    def _check(self, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
        group = self._table.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is not None:
            return check_commit(group, request.member_id, request.group_instance_id, generation)
        if generation < 0:
            # A consumer that assigns itself its partitions, or an administrator: the group comes with the offset.
            return ErrorCode.NONE
        if api_version >= GROUP_NOT_FOUND_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION

    def _commit_topic(
        self,
        turn: Turn,
        request: OffsetCommitRequest,
        topic: OffsetCommitRequest.OffsetCommitRequestTopic,
        records: list[GroupRecord],
    ) -> OffsetCommitResponse.OffsetCommitResponseTopic:
        answer = OffsetCommitResponse.OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id
        )
        expires_ms = _expire_timestamp(turn.wall_ms, request.retention_time_ms)
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            too_large = utf16_length(metadata) > self._table.config.offset_metadata_max_bytes
            answer.partitions.append(
                OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE,
                )
            )
            if too_large:
                continue
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=turn.wall_ms,
                expire_timestamp=expires_ms,
                topic_id=topic.topic_id,
            )
            key = OffsetCommitKey(
                group=request.group_id, topic=topic.name, partition=partition.partition_index
            )
            records.append(OffsetRecord(key, value))
        return answer

    def fetch(
        self,
        turn: Turn,
        request: OffsetFetchRequest.OffsetFetchRequestGroup,
        waiter: Waiter,
    ) -> None:
        """Handle one group of an OffsetFetch; its topics carry their names, None asks for all topics.

        An unknown group, topic or partition is no error: nothing is committed there.
        """
        offsets = self._table.offsets.get(request.group_id, {})
        response = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=request.group_id)
        if request.topics is None:
            for name, partitions in offsets.items():
                answers = [_committed(number, value) for number, value in partitions.items()]
                response.topics.append(TopicAnswer(name=name, partitions=answers))
        else:
            for topic in request.topics:
                partitions = offsets.get(topic.name, {})
                answers = [
                    _committed_in_topic(number, partitions.get(number), topic.topic_id)
                    for number in topic.partition_indexes
                ]
                response.topics.append(
                    TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=answers)
                )
        turn.write([], partial(_answer_fetch, response, waiter))

    def delete(self, turn: Turn, request: OffsetDeleteRequest, waiter: Waiter) -> None:
        """Handle an OffsetDelete (KIP-496): offsets that nobody reads on from; what was never committed is no error.

        Consumers keep the offsets of topics that they are subscribed to; groups of another kind keep all while they have members.
        """
        group = self._table.groups.get(request.group_id)
        error = ErrorCode.NONE
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY and group.protocol_type != PROTOCOL_TYPE:
            error = ErrorCode.NON_EMPTY_GROUP
        if group is None or error is not ErrorCode.NONE:
            turn.reply(waiter, OffsetDeleteResponse(error_code=error))
            return
        response = OffsetDeleteResponse()
        gone: dict[tuple[str, int], GroupRecord] = {}
        offsets = self._table.offsets.get(request.group_id, {})
        for topic in request.topics:
            read = group.is_subscribed(topic.name)
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if read else ErrorCode.NONE
            indexes = [partition.partition_index for partition in topic.partitions]
            response.topics.append(
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=topic.name, partitions=[offset_deleted(index, error) for index in indexes]
                )
            )
            if not read:
                for index in offsets.get(topic.name, {}).keys() & set(indexes):
                    key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=index)
                    gone[topic.name, index] = OffsetRecord(key, None)
        if gone:
            turn.write(list(gone.values()), partial(_answer_delete, response, waiter))
        else:
            turn.reply(waiter, response)

    def tombstones(self, group_id: str) -> list[GroupRecord]:
        """Records that remove all offsets of a group."""
        return [
            OffsetRecord(OffsetCommitKey(group=group_id, topic=topic, partition=number), None)
            for topic, partitions in self._table.offsets.get(group_id, {}).items()
            for number in partitions
        ]

    def walk(self) -> Iterator[tuple[str, str, int, OffsetCommitValue]]:
        """Every committed offset with its group, topic and partition; made one by one, so that changes in between do no harm."""
        for group_id in list(self._table.offsets):
            for topic, partitions in list(self._table.offsets.get(group_id, {}).items()):
                for number, value in list(partitions.items()):
                    yield group_id, topic, number, value


def check_commit(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode:
    """NONE if the commit comes from a member of the group's generation, or from outside while nobody is in it.

    No commit of an older generation is accepted (I14): after a rebalance the partition may be another's.
    """
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id or group_instance_id is not None:
        error = group.check_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    elif group.state is not GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the new generation but not yet its assignment: it is to rejoin, not to fail.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _expire_timestamp(now_ms: int, retention_ms: int) -> int:
    """When an offset expires by the retention of its commit; -1: by that of the broker. Never is as late as can be told."""
    return -1 if retention_ms == -1 else min(now_ms + retention_ms, TIMESTAMP_MAX)


def commit_failed(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The answer to a commit that failed as a whole: the error stands at each partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def utf16_length(text: str) -> int:
    """What Java's String.length() says: characters beyond the basic plane count twice."""
    if text.isascii():
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)


def _committed(number: int, value: OffsetCommitValue) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=number,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _committed_in_topic(
    number: int, value: OffsetCommitValue | None, topic_id: bytes
) -> PartitionAnswer:
    """The offset committed for this very topic; one of an earlier topic of the same name does not count."""
    if value is None or (
        topic_id != ZERO_UUID
        and bytes(value.topic_id) != ZERO_UUID
        and bytes(value.topic_id) != topic_id
    ):
        return PartitionAnswer(
            partition_index=number,
            committed_offset=NO_OFFSET,
            committed_leader_epoch=-1,
            metadata="",
        )
    return _committed(number, value)


def _answer_commit(
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    waiter: Waiter,
    turn: Turn,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        response = commit_failed(request, answer_to_append_error(error))
    turn.reply(waiter, response)


def offset_deleted(
    index: int, error: ErrorCode
) -> OffsetDeleteResponse.OffsetDeleteResponsePartition:
    """The row of a partition whose offset was to be deleted."""
    return OffsetDeleteResponse.OffsetDeleteResponsePartition(
        partition_index=index, error_code=error
    )


def _answer_delete(
    response: OffsetDeleteResponse, waiter: Waiter, turn: Turn, error: ErrorCode
) -> None:
    if error is not ErrorCode.NONE:
        response = OffsetDeleteResponse(error_code=answer_to_append_error(error))
    turn.reply(waiter, response)


def _answer_fetch(
    response: OffsetFetchResponse.OffsetFetchResponseGroup,
    waiter: Waiter,
    turn: Turn,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        # Consumers before 3.9 do not know what to do with COORDINATOR_NOT_AVAILABLE here (KAFKA-17232).
        response = OffsetFetchResponse.OffsetFetchResponseGroup(
            group_id=response.group_id, error_code=ErrorCode.NOT_COORDINATOR
        )
    turn.reply(waiter, response)
