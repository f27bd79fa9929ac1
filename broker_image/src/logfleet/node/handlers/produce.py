"""Produce: one batch per partition; no task is needed when nothing has to wait.

With one replica a batch is committed as soon as it is in the log, or on the disk where the topic
wants that. Only acks=all waits for followers (`logfleet.node.partitions.ack_queue`). `appending`
checks and appends each batch; the answers follow Kafka's ReplicaManager.appendRecords.

A batch with which a transaction begins in a partition waits for the transaction's coordinator
first (`logfleet.node.transactions.enlisting`).
"""

from collections.abc import Awaitable
from typing import Any, Final, cast

from logfleet.auth.operations import Operation, Resource, ResourceType
from logfleet.controller.brokers.feature_level import transactions_allowed
from logfleet.log.batch_rules import BatchRefusal, malformed
from logfleet.log.validation import Appended, NeedsThread, Prepared, prepare_fully
from logfleet.log.verification import Guard
from logfleet.net.connection import CloseConnection
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.appending import (
    ACKS,
    Attempt,
    Sender,
    TransactionalSender,
    append,
    explain,
)
from logfleet.node.handlers.produce_repeats import remember
from logfleet.node.handlers.refused_batches import error_behind, record_refused
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.ack_queue import AwaitedAck
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.transactions.enlisting import NOT_NOW, ProducerBatch
from logfleet.node.transactions.verifier import Client
from logfleet.records.batch import HEADER_SIZE, BatchHeader, parse_header
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ProduceRequest, ProduceResponse

TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 10  # KIP-951

_TWO_PRODUCERS: Final = "Transactional records contained more than one producer ID"
_NOT_ADDED: Final = "Partition was not added to the transaction"
_UNVERIFIED: Final = (
    "Unable to verify the partition has been added to the transaction. Underlying error: {}"
)

# Errors with which Kafka returns no log start offset (ReplicaManager.appendRecordsToLeader).
_WITHOUT_LOG_START = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}

_Topic = ProduceResponse.TopicProduceResponse
_Row = ProduceResponse.PartitionProduceResponse
_TopicData = ProduceRequest.TopicProduceData
_PartitionData = ProduceRequest.PartitionProduceData
# The list for the partition's row, its data, and the partition: None where this broker does not
# lead it.
_Work = tuple[list[_Row], _TopicData, _PartitionData, LeaderPartition | None]
# The row of a batch that is not acknowledged yet, with the batch's end offset.
_Wait = tuple[_Row, _TopicData, LeaderPartition, int]


def produce(
    rooms: Rooms, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append every partition's batch.

    With acks=0 there is no answer, and any failure closes the connection.
    """
    table = rooms.partitions
    by_id = context.api_version >= TOPIC_IDS_SINCE
    topics: list[_Topic] = []
    work: list[_Work] = []
    for topic in request.topic_data:
        rows: list[_Row] = []
        topics.append(_Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
        hosted = table.by_id.get(topic.topic_id) if by_id else table.by_name.get(topic.name)
        for data in topic.partition_data:
            partition = None if hosted is None else hosted.partitions.get(data.index)
            work.append((rows, topic, data, partition))
    if request.transactional_id is not None and transactions_allowed(rooms.metadata.image):
        return _TransactionalCall(rooms, request, context, topics).append_all(work)
    answer = _ProduceCall(rooms, request, context, topics).append_all(work)
    if len(work) == len(topics) == 1 and answer is not None and rows and not rows[0].error_code:
        remember(rooms, request, context)
    return answer


class _ProduceCall:
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
        topics: list[_Topic],
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
        self, work: list[_Work]
    ) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
        """Fill in all rows; from the first batch that takes long, this waits for a thread."""
        for number, (rows, topic, data, partition) in enumerate(work):
            row = self._append(topic, data, partition)
            if isinstance(row, NeedsThread):
                return self._append_all_in_thread(work[number:])
            rows.append(row)
        return self._answer_once_acked() if self._waits else self._answer()

    async def _append_all_in_thread(self, work: list[_Work]) -> ProduceResponse | None:
        await self._append_each(work)
        return await self._answer_once_acked() if self._waits else self._answer()

    async def _append_each(self, work: list[_Work]) -> None:
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
        topic: _TopicData,
        data: _PartitionData,
        partition: LeaderPartition | None,
        prepared: Prepared | BatchRefusal | None = None,
    ) -> _Row | NeedsThread:
        """Append one partition's batch, or refuse it as the one before it was refused.

        prepared: the result of preparing it, if that was needed.
        """
        by_id = self._context.api_version >= TOPIC_IDS_SINCE
        key = (topic.topic_id if by_id else topic.name, data.index)
        refused, records = self._context.peer.refused, data.records or b""
        row: _Row | NeedsThread
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
        topic: _TopicData,
        data: _PartitionData,
        partition: LeaderPartition,
        prepared: Prepared | BatchRefusal | None,
    ) -> _Row | NeedsThread:
        records: Any = data.records or b""
        result = append(self._rooms, partition, self._sender, records, prepared)
        if isinstance(result, Appended):
            row = _Row(
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

    def _failure(self, index: int, error: ErrorCode) -> _Row:
        self._failed += 1
        return _Row(index=index, error_code=error, base_offset=-1)

    def _refused_row(self, partition: LeaderPartition, refusal: BatchRefusal) -> _Row:
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

    def _not_led(self, topic: _TopicData, index: int) -> _Row:
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


class _TransactionalCall(_ProduceCall):
    """One Produce request with a transactional id.

    One question goes to the coordinator about all partitions in which the transaction begins with
    this request; the batches for other partitions do not wait for the answer.
    """

    __slots__ = ("_asked_topics", "_client", "_enlisted", "_headers", "_transactional_id")

    def __init__(
        self,
        rooms: Rooms,
        request: ProduceRequest,
        context: RequestContext,
        topics: list[_Topic],
    ) -> None:
        super().__init__(rooms, request, context, topics)
        self._sender = TransactionalSender(context.api_version, context.client_id, request.acks)
        self._transactional_id = cast("str", request.transactional_id)
        self._asked_topics = request.topic_data
        self._client = Client.of_produce(context.api_version)
        # by id of a partition's data: its transactional batch, and the coordinator's answer
        self._headers: dict[int, BatchHeader] = {}
        self._enlisted: dict[int, Guard | ErrorCode] = {}

    def append_all(
        self, work: list[_Work]
    ) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
        for _, _, data, _ in work:
            header = _transactional_header(data)
            if header is not None:
                self._headers[id(data)] = header
        resource = Resource(ResourceType.TRANSACTIONAL_ID, self._transactional_id)
        if self._headers and not self._context.may(Operation.WRITE, resource):
            return self._refuse_all(work, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if len({(each.producer_id, each.producer_epoch) for each in self._headers.values()}) > 1:
            return self._refuse_all(work, ErrorCode.INVALID_PRODUCER_ID_MAPPING, _TWO_PRODUCERS)
        beginning = [each for each in work if self._begins(each)]
        return self._enlist_and_append(work, beginning) if beginning else super().append_all(work)

    def _begins(self, work: _Work) -> bool:
        """Whether the transaction begins in this partition with this batch."""
        _, topic, data, partition = work
        header = self._headers.get(id(data))
        if header is None or partition is None or not partition.is_current:
            return False
        by_id = self._context.api_version >= TOPIC_IDS_SINCE
        key = (topic.topic_id if by_id else topic.name, data.index)
        refused, records = self._context.peer.refused, cast("Any", data.records)
        if refused and error_behind(refused, key, records) is not None:
            return False
        if self._explain(partition, data) is not None:
            return False
        return self._rooms.transactions.enlisting.is_needed(
            ProducerBatch(partition, header), self._client
        )

    def _explain(self, partition: LeaderPartition, data: _PartitionData) -> BatchRefusal | None:
        """Why the batch is refused whatever its transaction is."""
        records = cast("memoryview", data.records)
        return explain(Attempt(partition, self._sender, records, self._rooms.metadata.image))

    async def _enlist_and_append(
        self, work: list[_Work], beginning: list[_Work]
    ) -> ProduceResponse | None:
        waiting = {id(data) for _, _, data, _ in beginning}
        await self._append_each([each for each in work if id(each[2]) not in waiting])
        batches = [
            ProducerBatch(cast("LeaderPartition", partition), self._headers[id(data)])
            for _, _, data, partition in beginning
        ]
        answers = await self._rooms.transactions.enlisting.enlist(
            self._transactional_id, batches, self._client
        )
        for (_, _, data, _), answer in zip(beginning, answers, strict=True):
            self._enlisted[id(data)] = answer
        await self._append_each(beginning)
        for answered, asked in zip(self._topics, self._asked_topics, strict=True):
            order = {data.index: number for number, data in enumerate(asked.partition_data)}
            answered.partition_responses.sort(key=lambda row: order[row.index])
        return await self._answer_once_acked() if self._waits else self._answer()

    def _try_append(
        self,
        topic: _TopicData,
        data: _PartitionData,
        partition: LeaderPartition,
        prepared: Prepared | BatchRefusal | None,
    ) -> _Row | NeedsThread:
        header = self._headers.get(id(data))
        if header is None:
            return super()._try_append(topic, data, partition, prepared)
        answer = self._enlisted.get(id(data))
        if isinstance(answer, ErrorCode):
            return self._refused_row(partition, self._unlisted(answer))
        batch = ProducerBatch(partition, header)
        error = self._rooms.transactions.enlisting.refusal(batch, answer, self._client)
        if error is not None:
            refusal = self._explain(partition, data) or BatchRefusal(error)
            return self._refused_row(partition, refusal)
        row = super()._try_append(topic, data, partition, prepared)
        if isinstance(row, _Row) and not row.error_code:
            partition.guards.appended(header)
        return row

    def _unlisted(self, error: ErrorCode) -> BatchRefusal:
        """The refusal of a batch whose partition the coordinator did not find or add."""
        is_old = error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._client.adds
        message = None
        if error in NOT_NOW or is_old:  # clients send the batch again, and do not refresh metadata
            message = _UNVERIFIED.format(error.name)
            error = ErrorCode.NOT_ENOUGH_REPLICAS
        elif error is ErrorCode.INVALID_TXN_STATE:
            message = _NOT_ADDED
        return BatchRefusal(error, message, is_before_log=True)

    def _refuse_all(
        self, work: list[_Work], error: ErrorCode, message: str | None = None
    ) -> ProduceResponse | None:
        for rows, _, data, _ in work:
            row = self._failure(data.index, error)
            row.error_message = message
            rows.append(row)
        return self._answer()


def _transactional_header(data: _PartitionData) -> BatchHeader | None:
    """The header of a transactional batch; None for others, and for what is no batch."""
    records = data.records
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = parse_header(records)
    is_asked_about = header.is_transactional and header.has_producer_id
    return header if is_asked_about and malformed(records) is None else None


HANDLERS: dict[type, Handler[Any]] = {ProduceRequest: produce}
