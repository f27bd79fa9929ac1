"""Commits of offsets within a transaction (TxnOffsetCommit; KIP-98, KIP-447).

They become records of the transaction, so `logfleet.groups.staged` keeps them until its marker.
Source: OffsetMetadataManager.commitTransactionalOffset, validateTransactionalOffsetCommit.
"""

from functools import partial
from typing import Final

from logfleet.coordinators.turn import Waiter, answer_to_append_error
from logfleet.groups.offsets import OffsetRecords
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn
from logfleet.records.record import ProducerStamp
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

MEMBERSHIP_ERRORS_SINCE: Final = 6
"""Before this version a missing group and a stale epoch are both ILLEGAL_GENERATION (KIP-1319)."""

TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


class TransactionalCommits:
    """Handles TxnOffsetCommit for all groups of a table."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def commit(
        self, turn: GroupTurn, request: TxnOffsetCommitRequest, api_version: int, waiter: Waiter
    ) -> None:
        """Stage the offsets; the answer comes once they are committed to the log.

        Each topic has its name, and its id if the image has it. The caller has made sure that the
        partition of the offsets topic belongs to the transaction.
        """
        error = self._check(request, api_version)
        if error is not ErrorCode.NONE:
            turn.reply(waiter, commit_failed(request, error))
            return
        offsets = OffsetRecords(
            request.group_id, self._table.config.offset_metadata_max_bytes, turn.wall_ms
        )
        response = TxnOffsetCommitResponse(
            topics=[_commit_topic(topic, offsets) for topic in request.topics]
        )
        if not offsets.records:
            turn.reply(waiter, response)
            return
        if request.group_id not in self._table.groups:
            why = "offsets committed in a transaction"
            turn.log("simple_group_created", group=request.group_id, why=why)
        producer = ProducerStamp(request.producer_id, request.producer_epoch, transactional=True)
        turn.write(offsets.records, partial(_answer, request, response, waiter), producer)

    def _check(self, request: TxnOffsetCommitRequest, api_version: int) -> ErrorCode:
        group = self._table.groups.get(request.group_id)
        if group is not None:
            error = group.check_transactional_commit(request, api_version)
        elif request.generation_id_or_member_epoch < 0:
            error = ErrorCode.NONE  # a producer without a consumer group: the commit creates it
        else:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        is_old = api_version < MEMBERSHIP_ERRORS_SINCE
        if is_old and error in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH}:
            return ErrorCode.ILLEGAL_GENERATION
        return error


def _commit_topic(
    topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, offsets: OffsetRecords
) -> TopicAnswer:
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            PartitionAnswer(
                partition_index=partition.partition_index, error_code=offsets.add(topic, partition)
            )
            for partition in topic.partitions
        ],
    )


def commit_failed(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The response to a commit that failed as a whole: each partition has the error."""
    return TxnOffsetCommitResponse(
        topics=[
            TopicAnswer(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionAnswer(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    request: TxnOffsetCommitRequest,
    response: TxnOffsetCommitResponse,
    waiter: Waiter,
    turn: GroupTurn,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        response = commit_failed(request, answer_to_append_error(error))
    turn.reply(waiter, response)
