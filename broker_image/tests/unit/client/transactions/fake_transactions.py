"""Transactions of a fake broker that is their coordinator and leads their partitions."""

import msgspec
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

Described = DescribeTransactionsResponse.TransactionState
Producing = DescribeProducersResponse.ProducerState
STARTED_MS = 1_000


def described(name: str, producer_id: int, state: str, *partitions: int) -> Described:
    """partitions: of the topic t."""
    topic = DescribeTransactionsResponse.TopicData(topic="t", partitions=list(partitions))
    return Described(
        transactional_id=name,
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=STARTED_MS if state == "Ongoing" else -1,
        producer_id=producer_id,
        producer_epoch=3,
        topics=[topic] if partitions else [],
    )


def producing(producer_id: int, start: int, *, last_ms: int = 0, coordinator: int = 5) -> Producing:
    """start: of the open transaction, -1: none."""
    return Producing(
        producer_id=producer_id,
        producer_epoch=3,
        last_sequence=0,
        last_timestamp=last_ms,
        coordinator_epoch=coordinator,
        current_txn_start_offset=start,
    )


class FakeTransactions:
    """ids: what is known by transactional id. producers: by partition of t. codes: request class -> errors to answer first."""

    def __init__(self, broker: FakeBroker) -> None:
        self.ids: dict[str, Described] = {}
        self.producers: dict[int, list[Producing]] = {}
        self.codes: dict[type, list[int]] = {}
        broker.answers |= {
            ListTransactionsRequest: self.list,
            DescribeTransactionsRequest: self.describe,
            DescribeProducersRequest: self.describe_producers,
            WriteTxnMarkersRequest: self.write_markers,
            InitProducerIdRequest: self.init,
        }

    def code(self, request: msgspec.Struct) -> int:
        codes = self.codes.get(type(request))
        return codes.pop(0) if codes else 0

    def list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        if code := self.code(request):
            return ListTransactionsResponse(error_code=code)
        rows = [
            ListTransactionsResponse.TransactionState(
                transactional_id=name,
                producer_id=row.producer_id,
                transaction_state=row.transaction_state,
            )
            for name, row in self.ids.items()
            if not request.producer_id_filters or row.producer_id in request.producer_id_filters
        ]
        return ListTransactionsResponse(transaction_states=rows)

    def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        code = self.code(request) or (
            0 if name in self.ids else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
        row = Described(error_code=code, transactional_id=name) if code else self.ids[name]
        return DescribeTransactionsResponse(transaction_states=[row])

    def describe_producers(self, request: DescribeProducersRequest) -> DescribeProducersResponse:
        code = self.code(request)
        topics = [
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    DescribeProducersResponse.PartitionResponse(
                        partition_index=index,
                        error_code=code,
                        active_producers=[] if code else self.producers.get(index, []),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
        return DescribeProducersResponse(topics=topics)

    def write_markers(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        code = self.code(request)
        kind = WriteTxnMarkersResponse
        markers = [
            kind.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    kind.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            kind.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
        return WriteTxnMarkersResponse(markers=markers)

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=self.code(request))
