"""A Produce request with a transactional id: the first batch of a transaction in a partition waits.

It waits for the transaction's coordinator (`logfleet.node.transactions.enlisting`). Source: Kafka's
ReplicaManager.handleProduceAppend, KafkaApis.handleProduceRequest.
"""

from collections.abc import Awaitable
from typing import Any, Final, cast

from logfleet.auth.operations import Operation, Resource, ResourceType
from logfleet.log.batch_rules import BatchRefusal, malformed
from logfleet.log.validation import NeedsThread, Prepared
from logfleet.log.verification import Guard
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.producing.appending import Attempt, TransactionalSender, explain
from logfleet.node.handlers.producing.call import (
    TOPIC_IDS_SINCE,
    PartitionData,
    ProduceCall,
    Row,
    Topic,
    TopicData,
    Work,
)
from logfleet.node.handlers.producing.refused_batches import error_behind
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.transactions.enlisting import NOT_NOW, ProducerBatch
from logfleet.node.transactions.verifier import Client
from logfleet.records.batch import HEADER_SIZE, BatchHeader, parse_header
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ProduceRequest, ProduceResponse

_TWO_PRODUCERS: Final = "Transactional records contained more than one producer ID"
_NOT_ADDED: Final = "Partition was not added to the transaction"
_UNVERIFIED: Final = (
    "Unable to verify the partition has been added to the transaction. Underlying error: {}"
)


class TransactionalCall(ProduceCall):
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
        topics: list[Topic],
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
        self, work: list[Work]
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

    def _begins(self, work: Work) -> bool:
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

    def _explain(self, partition: LeaderPartition, data: PartitionData) -> BatchRefusal | None:
        """Why the batch is refused whatever its transaction is."""
        records = cast("memoryview", data.records)
        return explain(Attempt(partition, self._sender, records, self._rooms.metadata.image))

    async def _enlist_and_append(
        self, work: list[Work], beginning: list[Work]
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
        topic: TopicData,
        data: PartitionData,
        partition: LeaderPartition,
        prepared: Prepared | BatchRefusal | None,
    ) -> Row | NeedsThread:
        header = self._headers.get(id(data))
        if header is None:
            return super()._try_append(topic, data, partition, prepared)
        answer = self._enlisted.get(id(data))
        if isinstance(answer, ErrorCode):
            return self._refused_row(partition, self._not_enlisted(answer))
        batch = ProducerBatch(partition, header)
        error = self._rooms.transactions.enlisting.refusal(batch, answer, self._client)
        if error is not None:
            refusal = self._explain(partition, data) or BatchRefusal(error)
            return self._refused_row(partition, refusal)
        row = super()._try_append(topic, data, partition, prepared)
        if isinstance(row, Row) and not row.error_code:
            partition.guards.appended(header)
        return row

    def _not_enlisted(self, error: ErrorCode) -> BatchRefusal:
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
        self, work: list[Work], error: ErrorCode, message: str | None = None
    ) -> ProduceResponse | None:
        for rows, _, data, _ in work:
            row = self._failure(data.index, error)
            row.error_message = message
            rows.append(row)
        return self._answer()


def _transactional_header(data: PartitionData) -> BatchHeader | None:
    """The header of a transactional batch; None for others, and for what is no batch."""
    records = data.records
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = parse_header(records)
    is_asked_about = header.is_transactional and header.has_producer_id
    return header if is_asked_about and malformed(records) is None else None
