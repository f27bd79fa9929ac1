"""A Produce request in progress: its batches, and the rows of its answer.

The answers follow Kafka's ReplicaManager.appendRecords.
"""

from collections.abc import Awaitable
from typing import Any

from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.validation import Appended, NeedsThread, Prepared, prepare_fully
from logfleet.net.connection import CloseConnection
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.producing.appending import ACKS, Sender, append
from logfleet.node.handlers.producing.refused_batches import error_behind, record_refused
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.ack_queue import AwaitedAck
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ProduceRequest, ProduceResponse

TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 10  # KIP-951

# Errors with which Kafka returns no log start offset (ReplicaManager.appendRecordsToLeader).
_WITHOUT_LOG_START = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}

Topic = ProduceResponse.TopicProduceResponse
Row = ProduceResponse.PartitionProduceResponse
TopicData = ProduceRequest.TopicProduceData
PartitionData = ProduceRequest.PartitionProduceData
# The list for the partition's row, its data, and the partition: None where this broker does not
# lead it.
Work = tuple[list[Row], TopicData, PartitionData, LeaderPartition | None]
# The row of a batch that is not acknowledged yet, with the batch's end offset.
_Wait = tuple[Row, TopicData, LeaderPartition, int]


class ProduceCall:
    """One Produce request in progress. topics: its answer, whose rows are filled in."""

    __slots__ = (
        "_context",
        "_endpoints",
        "_failed",
        "_rooms",
        "_sender",
        "_timeout_ms",
        "_topics",
        "_waits",
    )

    def __init__(
        self,
        rooms: Rooms,
        request: ProduceRequest,
        context: RequestContext,
        topics: list[Topic],
    ) -> None:
        self._rooms = rooms
        self._context = context
        self._topics = topics
        self._sender = Sender(context.api_version, context.client_id, request.acks)
        self._timeout_ms = request.timeout_ms
        self._failed = 0
        self._endpoints: dict[int, ProduceResponse.NodeEndpoint] | None = None
        self._waits: list[_Wait] = []

    def append_all(
        self, work: list[Work]
    ) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
        """Fill in all rows; from the first batch that takes long, this waits for a thread."""
        for number, (rows, topic, data, partition) in enumerate(work):
            row = self._append(topic, data, partition)
            if isinstance(row, NeedsThread):
                return self._append_all_in_thread(work[number:])
            rows.append(row)
        return self._answer_once_acked() if self._waits else self._answer()

    async def _append_all_in_thread(self, work: list[Work]) -> ProduceResponse | None:
        await self._append_each(work)
        return await self._answer_once_acked() if self._waits else self._answer()

    async def _append_each(self, work: list[Work]) -> None:
        """Fill in the rows, and wait for a thread where a batch takes long."""
        for rows, topic, data, partition in work:
            row = self._append(topic, data, partition)
            if isinstance(row, NeedsThread):
                assert partition is not None, "only a log's batch is prepared"
                log, now_ms = partition.log, self._rooms.clock.now_ms()
                prepared = await self._rooms.workers.run_in_thread(
                    prepare_fully, row.buffer, log.config, now_ms, log.partition
                )
                row = self._append(topic, data, partition, prepared)
                assert not isinstance(row, NeedsThread), "it is prepared"
            rows.append(row)

    async def _answer_once_acked(self) -> ProduceResponse | None:
        acks, timeout_s = self._sender.acks, max(0, self._timeout_ms) / 1000
        awaited = []
        for _, _, partition, end_offset in self._waits:
            wait = AwaitedAck(end_offset, acks, timeout_s)
            partition.ack_queue.add(wait)
            awaited.append(wait)
        parked = self._rooms.sessions.parked
        parked.produces += 1
        try:
            errors = [await wait.outcome for wait in awaited]
        finally:
            parked.produces -= 1
        for (row, topic, partition, _), error in zip(self._waits, errors, strict=True):
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                failed = self._not_led(topic, partition.index)
                for field in row.__struct_fields__:
                    setattr(row, field, getattr(failed, field))
            elif error is not ErrorCode.NONE:
                row.error_code = error
        return self._answer()

    def _append(
        self,
        topic: TopicData,
        data: PartitionData,
        partition: LeaderPartition | None,
        prepared: Prepared | BatchRefusal | None = None,
    ) -> Row | NeedsThread:
        """Append one partition's batch, or refuse it as the one before it was refused.

        prepared: the result of preparing it, if that was needed.
        """
        by_id = self._context.api_version >= TOPIC_IDS_SINCE
        key = (topic.topic_id if by_id else topic.name, data.index)
        refused, records = self._context.peer.refused, data.records or b""
        row: Row | NeedsThread
        if partition is None or not partition.is_current:
            row = self._not_led(topic, data.index)
        elif refused and (error := error_behind(refused, key, records)) is not None:
            row = self._failure(data.index, error)
        else:
            row = self._try_append(topic, data, partition, prepared)
        if isinstance(row, NeedsThread):
            return row
        if row.error_code:
            record_refused(refused, key, records, ErrorCode(row.error_code))
        elif refused:
            refused.pop(key, None)
        return row

    def _try_append(
        self,
        topic: TopicData,
        data: PartitionData,
        partition: LeaderPartition,
        prepared: Prepared | BatchRefusal | None,
    ) -> Row | NeedsThread:
        records: Any = data.records or b""
        result = append(self._rooms, partition, self._sender, records, prepared)
        if isinstance(result, Appended):
            row = Row(
                index=data.index,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=partition.ends.log_start_offset,
            )
            acks = self._sender.acks
            if (
                result.last_offset >= partition.ends.high_watermark
                and acks
                and not partition.is_acked(result.last_offset + 1, acks)
            ):
                self._waits.append((row, topic, partition, result.last_offset + 1))
            return row
        if isinstance(result, BatchRefusal):
            return self._refused_row(partition, result)
        return result

    def _failure(self, index: int, error: ErrorCode) -> Row:
        self._failed += 1
        return Row(index=index, error_code=error, base_offset=-1)

    def _refused_row(self, partition: LeaderPartition, refusal: BatchRefusal) -> Row:
        row = self._failure(partition.index, refusal.error)
        row.error_message = refusal.message
        row.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=error.index, batch_index_error_message=error.message
            )
            for error in refusal.records
        ]
        if not refusal.is_before_log and refusal.error not in _WITHOUT_LOG_START:
            row.log_start_offset = partition.log.log_start_offset
        return row

    def _not_led(self, topic: TopicData, index: int) -> Row:
        """The error of a partition that is not served here, and its leader for newer clients."""
        table, listener = self._rooms.partitions, self._context.listener
        version = self._context.api_version
        if version >= TOPIC_IDS_SINCE:
            error = table.error_for_id(topic.topic_id, index)
            leader = table.leader_by_id(topic.topic_id, index, listener)
        else:
            error = table.error_for(topic.name, index)
            leader = table.leader_by_name(topic.name, index, listener)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._sender.acks not in ACKS:
            error = ErrorCode.INVALID_REQUIRED_ACKS  # this error comes first
        row = self._failure(index, error)
        if (
            leader is None
            or error is not ErrorCode.NOT_LEADER_OR_FOLLOWER
            or version < LEADER_HINTS_SINCE
        ):
            return row
        row.current_leader = ProduceResponse.LeaderIdAndEpoch(
            leader_id=leader.broker_id, leader_epoch=leader.leader_epoch
        )
        if leader.host is not None:
            self._endpoints = self._endpoints or {}
            self._endpoints[leader.broker_id] = ProduceResponse.NodeEndpoint(
                node_id=leader.broker_id, host=leader.host, port=leader.port, rack=leader.rack
            )
        return row

    def _answer(self) -> ProduceResponse | None:
        answer = ProduceResponse(responses=self._topics)
        if self._sender.acks == 0:
            if self._failed:
                raise CloseConnection(f"acks=0 and {self._failed} partitions failed", answer)
            return None
        if self._endpoints is not None:
            answer.node_endpoints = list(self._endpoints.values())
        return answer
