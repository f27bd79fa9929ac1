"""Produce: one batch per partition, checked, appended and answered without a task when nothing has to wait.

With one replica a batch is committed as soon as it is in the log, so acks=1 and acks=all are answered alike.
Per-partition answers follow Kafka's ReplicaManager.appendRecords and ProduceRequest.validateRecords.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from logfleet.log.validation import Prepared, Rejected, needs_thread, prepare
from logfleet.node.connection import CloseConnection
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.partition import Partition
from logfleet.records.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT
from logfleet.records.compression import Codec
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from logfleet.node.broker import Broker

TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 10  # KIP-951
TRANSACTION_ABORTABLE_SINCE = 11  # KIP-890
ZSTD_SINCE = 7  # KIP-110
# Kafka's own tools may write to internal topics (ReplicaManager, AdminUtils.ADMIN_CLIENT_ID).
ADMIN_CLIENT_ID = "__admin_client"

_ATTRIBUTES_LOW_BYTE = 22
# Errors with which Kafka does not tell the log's start (ReplicaManager.appendRecordsToLeader).
_WITHOUT_LOG_START = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
}

_ACKS = {-1, 0, 1}

_Topic = ProduceResponse.TopicProduceResponse
_Row = ProduceResponse.PartitionProduceResponse
_TopicData = ProduceRequest.TopicProduceData
_PartitionData = ProduceRequest.PartitionProduceData
_Batch = bytes | memoryview | Prepared | Rejected | None


def produce(
    broker: "Broker", request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append every partition's batch. With acks=0 there is no answer, and any failure closes the connection."""
    turn = _Turn(broker, request.acks, context)
    work = []
    slow = False
    for topic in request.topic_data:
        for data in topic.partition_data:
            found = turn.find(topic, data.index)
            refusal = turn.refusal(found, data.records)
            if refusal is None:
                assert isinstance(found, Partition)
                assert isinstance(data.records, memoryview)
                slow = slow or needs_thread(data.records, found.log.config)
            work.append((topic, data, found, refusal))
    if slow:
        return _produce_slowly(turn, work)
    for topic, data, found, refusal in work:
        turn.append(topic, data, found, refusal, data.records)
    return turn.answer()


_Work = list[tuple[_TopicData, _PartitionData, Partition | ErrorCode, ErrorCode | None]]


async def _produce_slowly(turn: "_Turn", work: _Work) -> ProduceResponse | None:
    """As above, but what has to be decompressed or compressed is prepared in a thread first."""
    for topic, data, found, refusal in work:
        batch: _Batch = data.records
        if refusal is None:
            assert isinstance(found, Partition)
            assert isinstance(batch, memoryview)
            config = found.log.config
            if needs_thread(batch, config):
                batch = await turn.broker.run_in_thread(
                    prepare, batch, config, turn.broker.now_ms()
                )
        turn.append(topic, data, found, refusal, batch)
    return turn.answer()


class _Turn:
    """One Produce request on its way: finds, appends, and collects the answer in the request's order."""

    __slots__ = (
        "_acks",
        "_client_id",
        "_endpoints",
        "_failed",
        "_listener",
        "_topic_data",
        "_topics",
        "_version",
        "broker",
    )

    def __init__(self, broker: "Broker", acks: int, context: RequestContext) -> None:
        self.broker = broker
        self._acks = acks
        self._version = context.api_version
        self._client_id = context.client_id
        self._listener = context.listener
        self._failed = 0
        self._topics: list[ProduceResponse.TopicProduceResponse] = []
        self._topic_data: _TopicData | None = None
        self._endpoints: dict[int, ProduceResponse.NodeEndpoint] = {}

    def find(self, topic: _TopicData, index: int) -> Partition | ErrorCode:
        if self._version >= TOPIC_IDS_SINCE:
            return self.broker.partitions.find_by_id(topic.topic_id, index)
        return self.broker.partitions.find(topic.name, index)

    def refusal(
        self, found: Partition | ErrorCode, records: bytes | memoryview | None
    ) -> ErrorCode | None:
        """Why a batch is refused that the log itself might take."""
        if not isinstance(found, Partition):
            return found
        if records is None or len(records) < HEADER_SIZE:
            return ErrorCode.INVALID_RECORD
        attributes = records[_ATTRIBUTES_LOW_BYTE]
        if self._version < ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if self._acks not in _ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if found.is_internal and self._client_id != ADMIN_CLIENT_ID:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if attributes & TRANSACTIONAL_BIT:
            # No transaction can be open here, as none are served.
            if self._version >= TRANSACTION_ABORTABLE_SINCE:
                return ErrorCode.TRANSACTION_ABORTABLE
            return ErrorCode.INVALID_TXN_STATE
        return None

    def append(
        self,
        topic: _TopicData,
        data: _PartitionData,
        found: Partition | ErrorCode,
        refusal: ErrorCode | None,
        batch: "_Batch",
    ) -> None:
        """Append one partition's batch, prepared or not, unless it is refused already."""
        if topic is not self._topic_data:
            self._topic_data = topic
            self._topics.append(_Topic(name=topic.name, topic_id=topic.topic_id))
        rows = self._topics[-1].partition_responses
        if refusal is not None:
            rows.append(self._refused(topic, data.index, refusal))
            return
        assert isinstance(found, Partition)
        if isinstance(batch, Rejected):
            rows.append(self._rejected(found, batch))
            return
        if not found.is_leading:  # meanwhile
            rows.append(self._refused(topic, data.index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        assert isinstance(batch, memoryview | Prepared)
        try:
            result = found.append(batch, self.broker.now_ms())
        except OSError as failure:
            self.broker.storage_failed(found, failure)
            rows.append(self._row(data.index, ErrorCode.KAFKA_STORAGE_ERROR))
            return
        if isinstance(result, Rejected):
            rows.append(self._rejected(found, result))
            return
        rows.append(
            _Row(
                index=data.index,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=found.log.log_start_offset,
            )
        )

    def _row(self, index: int, error: ErrorCode) -> _Row:
        self._failed += 1
        return _Row(index=index, error_code=error, base_offset=-1)

    def _rejected(self, partition: Partition, rejected: Rejected) -> _Row:
        row = self._row(partition.index, rejected.error)
        row.error_message = rejected.message
        row.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=error.index, batch_index_error_message=error.message
            )
            for error in rejected.records
        ]
        if rejected.error not in _WITHOUT_LOG_START:
            row.log_start_offset = partition.log.log_start_offset
        return row

    def _refused(self, topic: _TopicData, index: int, error: ErrorCode) -> _Row:
        row = self._row(index, error)
        if error is not ErrorCode.NOT_LEADER_OR_FOLLOWER or self._version < LEADER_HINTS_SINCE:
            return row
        table = self.broker.partitions
        if self._version >= TOPIC_IDS_SINCE:
            leader = table.leader_by_id(topic.topic_id, index, self._listener)
        else:
            leader = table.leader_by_name(topic.name, index, self._listener)
        if leader is not None:
            row.current_leader = ProduceResponse.LeaderIdAndEpoch(
                leader_id=leader.broker_id, leader_epoch=leader.leader_epoch
            )
            if leader.host is not None:
                self._endpoints[leader.broker_id] = ProduceResponse.NodeEndpoint(
                    node_id=leader.broker_id, host=leader.host, port=leader.port, rack=leader.rack
                )
        return row

    def answer(self) -> ProduceResponse | None:
        if self._acks == 0:
            if self._failed:
                raise CloseConnection(f"acks=0 and {self._failed} partitions failed")
            return None
        return ProduceResponse(
            responses=self._topics, node_endpoints=list(self._endpoints.values())
        )


HANDLERS: dict[type, Handler[Any]] = {ProduceRequest: produce}
