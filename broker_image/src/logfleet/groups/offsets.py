"""Committed offsets: who may commit, what is stored, what a fetch returns.

Upholds I15 (an offset fetched after an acknowledged commit is that commit's or a later one's)
together with the shell: a commit is answered once its records are committed, a fetch once all
earlier appends are.
The group decides who may commit (`Group.check_commit`). Source: Kafka's OffsetMetadataManager.
"""

from collections.abc import Iterator
from functools import partial
from typing import TypeAlias

import msgspec

from logfleet.coordinators.turn import Waiter, answer_to_append_error
from logfleet.groups.group import Group
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn
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
    TxnOffsetCommitRequest,
)

GROUP_NOT_FOUND_VERSION = 9
"""Since this version of OffsetCommit a missing group is GROUP_ID_NOT_FOUND, before
ILLEGAL_GENERATION.
"""
NO_OFFSET = -1
"""OffsetFetch returns it, without an error, where no offset is committed."""
TIMESTAMP_MAX = 2**63 - 1
ZERO_UUID = bytes(16)
"""A missing topic id."""

PartitionAnswer = OffsetFetchResponse.OffsetFetchResponsePartitions
TopicAnswer = OffsetFetchResponse.OffsetFetchResponseTopics

_Topic: TypeAlias = (
    OffsetCommitRequest.OffsetCommitRequestTopic
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
)
_Partition: TypeAlias = (
    OffsetCommitRequest.OffsetCommitRequestPartition
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
)


class OffsetRecords(msgspec.Struct):
    """The records of one commit of offsets.

    metadata_length_max: in UTF-16 units. commit_ms: when it is made. expires_ms: when the offsets
    expire, -1 by the broker's retention.
    """

    group_id: str
    metadata_length_max: int
    commit_ms: int
    expires_ms: int = -1
    records: list[GroupRecord] = []

    def add(self, topic: _Topic, partition: _Partition) -> ErrorCode:
        """Add the record of one partition, unless its metadata is too long."""
        metadata = partition.committed_metadata or ""
        if utf16_length(metadata) > self.metadata_length_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=self.commit_ms,
            expire_timestamp=self.expires_ms,
            topic_id=topic.topic_id,
        )
        index = partition.partition_index
        key = OffsetCommitKey(group=self.group_id, topic=topic.name, partition=index)
        self.records.append(OffsetRecord(key, value))
        return ErrorCode.NONE


class OffsetCommits:
    """Handles commits and fetches of offsets for all groups of a table."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def commit(
        self, turn: GroupTurn, request: OffsetCommitRequest, api_version: int, waiter: Waiter
    ) -> None:
        """Handle an OffsetCommit.

        Each topic has its name, and its id if the client or the image has it.
        """
        group = self._table.groups.get(request.group_id)
        error = _check_commit(group, request, api_version)
        if error is not ErrorCode.NONE:
            turn.reply(waiter, commit_failed(request, error))
            return
        if group is not None:
            group.record_commit(request.member_id, turn, self._table.timers)
        offsets = OffsetRecords(
            request.group_id,
            self._table.config.offset_metadata_max_bytes,
            turn.wall_ms,
            _expire_timestamp(turn.wall_ms, request.retention_time_ms),
        )
        response = OffsetCommitResponse(
            topics=[_commit_topic(topic, offsets) for topic in request.topics]
        )
        if not offsets.records:
            turn.reply(waiter, response)
            return
        if group is None:
            turn.log("simple_group_created", group=request.group_id, why="offsets committed")
        turn.write(offsets.records, partial(_answer_commit, request, response, waiter))

    def fetch(
        self,
        turn: GroupTurn,
        request: OffsetFetchRequest.OffsetFetchRequestGroup,
        waiter: Waiter,
        *,
        require_stable: bool = False,
    ) -> None:
        """Handle one group of an OffsetFetch. Topics are given by name; None means all topics.

        An unknown group, topic or partition is not an error: it has no committed offset.
        require_stable: a partition whose offset an open transaction may change gets
        UNSTABLE_OFFSET_COMMIT (KIP-447).
        """
        group = self._table.groups.get(request.group_id)
        error = ErrorCode.NONE if group is None else group.check_fetch(request)
        if error is not ErrorCode.NONE:
            turn.reply(waiter, fetch_failed(request.group_id, error))
            return
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
        if require_stable and self._table.staged.has_group(request.group_id):
            self._refuse_unstable(response)
        turn.write([], partial(_answer_fetch, response, waiter))

    def _refuse_unstable(self, response: OffsetFetchResponse.OffsetFetchResponseGroup) -> None:
        for topic in response.topics:
            topic.partitions = [
                _no_offset(answer.partition_index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                if self._table.staged.is_staged(
                    response.group_id, topic.name, answer.partition_index
                )
                else answer
                for answer in topic.partitions
            ]

    def delete(self, turn: GroupTurn, request: OffsetDeleteRequest, waiter: Waiter) -> None:
        """Handle an OffsetDelete (KIP-496). An offset that was never committed is not an error.

        Offsets of subscribed topics are refused.
        """
        group = self._table.groups.get(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
        if group is None or error is not ErrorCode.NONE:
            turn.reply(waiter, OffsetDeleteResponse(error_code=error))
            return
        response = OffsetDeleteResponse()
        gone: dict[tuple[str, int], GroupRecord] = {}
        offsets, staged = self._table.offsets.get(request.group_id, {}), self._table.staged
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
                committed = offsets.get(topic.name, {})
                for index in set(indexes):
                    if index not in committed and not staged.is_staged(
                        request.group_id, topic.name, index
                    ):
                        continue
                    key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=index)
                    gone[topic.name, index] = OffsetRecord(key, None)
        if gone:
            turn.write(list(gone.values()), partial(_answer_delete, response, waiter))
        else:
            turn.reply(waiter, response)

    def tombstones(self, group_id: str) -> list[GroupRecord]:
        """Tombstones for all offsets of a group, staged ones among them."""
        found = dict.fromkeys(
            (topic, number)
            for topic, partitions in self._table.offsets.get(group_id, {}).items()
            for number in partitions
        )
        found.update(dict.fromkeys(self._table.staged.partitions(group_id)))
        return [
            OffsetRecord(OffsetCommitKey(group=group_id, topic=topic, partition=number), None)
            for topic, number in found
        ]

    def walk(self) -> Iterator[tuple[str, str, int, OffsetCommitValue]]:
        """Each committed offset as (group, topic, partition, value).

        Groups may change during the iteration.
        """
        for group_id in list(self._table.offsets):
            for topic, partitions in list(self._table.offsets.get(group_id, {}).items()):
                for number, value in list(partitions.items()):
                    yield group_id, topic, number, value


def _commit_topic(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic, offsets: OffsetRecords
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    return OffsetCommitResponse.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=offsets.add(topic, partition)
            )
            for partition in topic.partitions
        ],
    )


def _check_commit(group: Group | None, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
    if group is not None:
        return group.check_commit(request, api_version)
    if request.generation_id_or_member_epoch < 0:
        # a consumer that assigns its own partitions, or an administrator: the commit creates the
        # group
        return ErrorCode.NONE
    if api_version >= GROUP_NOT_FOUND_VERSION:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _expire_timestamp(now_ms: int, retention_ms: int) -> int:
    """When an offset expires by the retention in its commit; -1: by the broker's.

    At most int64's maximum.
    """
    return -1 if retention_ms == -1 else min(now_ms + retention_ms, TIMESTAMP_MAX)


def commit_failed(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The response to a commit that failed as a whole: each partition has the error."""
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


def fetch_failed(group_id: str, error: ErrorCode) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """The response to a fetch of a group that failed as a whole."""
    return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group_id, error_code=error)


def utf16_length(text: str) -> int:
    """Java's String.length(): a character outside the basic plane counts twice."""
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
    """The offset committed for the topic with this id.

    That of an earlier topic of its name is ignored.
    """
    if value is None or (
        topic_id != ZERO_UUID
        and bytes(value.topic_id) != ZERO_UUID
        and bytes(value.topic_id) != topic_id
    ):
        return _no_offset(number)
    return _committed(number, value)


def _no_offset(number: int, error: ErrorCode = ErrorCode.NONE) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=number,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=error,
    )


def _answer_commit(
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    waiter: Waiter,
    turn: GroupTurn,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        response = commit_failed(request, answer_to_append_error(error))
    turn.reply(waiter, response)


def offset_deleted(
    index: int, error: ErrorCode
) -> OffsetDeleteResponse.OffsetDeleteResponsePartition:
    """A partition's row in an OffsetDelete response."""
    return OffsetDeleteResponse.OffsetDeleteResponsePartition(
        partition_index=index, error_code=error
    )


def _answer_delete(
    response: OffsetDeleteResponse, waiter: Waiter, turn: GroupTurn, error: ErrorCode
) -> None:
    if error is not ErrorCode.NONE:
        response = OffsetDeleteResponse(error_code=answer_to_append_error(error))
    turn.reply(waiter, response)


def _answer_fetch(
    response: OffsetFetchResponse.OffsetFetchResponseGroup,
    waiter: Waiter,
    turn: GroupTurn,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        # consumers before 3.9 do not handle COORDINATOR_NOT_AVAILABLE here (KAFKA-17232)
        response = fetch_failed(response.group_id, ErrorCode.NOT_COORDINATOR)
    turn.reply(waiter, response)
