"""What a fake broker needs to coordinate the transactions of one producer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from logfleet.client.cluster import Client
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker, Reply
from broker_image.tests.unit.client.fake_log import Log

PRODUCER_ID = 7
both_protocols = pytest.mark.parametrize("version", [1, 2])


@asynccontextmanager
async def producing(
    broker: FakeBroker, *, timeout_ms: int = 10_000, **options: Any
) -> AsyncIterator[TransactionalProducer]:
    """A producer that is initialised."""
    async with (
        Client(broker.bootstrap, timeout_ms=timeout_ms) as client,
        TransactionalProducer(client, "id", **options) as producer,
    ):
        await producer.init()
        yield producer


async def write(producer: TransactionalProducer, value: bytes = b"v", partition: int = 0) -> None:
    await (await producer.send("t", value, partition=partition))


class Coordinator(Log):
    """Keeps no state but the epoch: it ends what it is asked to end.

    version: the finalized transaction.version. faults: request class -> what to do with the next ones: an error code, or CLOSE (done, but no answer).
    """

    def __init__(self, broker: FakeBroker, version: int) -> None:
        super().__init__(broker)
        self.version, self.features_epoch = version, 1
        self.epoch = -1
        self.faults: dict[type, list[int | bytes]] = {}
        self.offsets: dict[str, dict[int, int]] = {}
        broker.answers |= {
            ApiVersionsRequest: self.api_versions,
            InitProducerIdRequest: self.init,
            AddPartitionsToTxnRequest: self.add_partitions,
            AddOffsetsToTxnRequest: self.add_group,
            TxnOffsetCommitRequest: self.stage,
            EndTxnRequest: self.end,
        }

    def fault(self, request: msgspec.Struct) -> Any:
        faults = self.faults.get(type(request))
        return faults.pop(0) if faults else 0

    def api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        response = self.broker.api_versions(request)
        row = ApiVersionsResponse.FinalizedFeatureKey(
            name="transaction.version", max_version_level=self.version
        )
        response.finalized_features = [row]
        response.finalized_features_epoch = self.features_epoch
        return response

    def init(self, request: InitProducerIdRequest) -> Reply:
        if fault := self.fault(request):
            return InitProducerIdResponse(error_code=fault)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def add_partitions(self, request: AddPartitionsToTxnRequest) -> Reply:
        fault = self.fault(request)
        if fault == FakeBroker.CLOSE:
            return FakeBroker.CLOSE
        kind = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
        topics = []
        for topic in request.v3_and_below_topics:
            rows = [kind(partition_index=index) for index in topic.partitions]
            if fault:
                for row in rows:
                    row.partition_error_code = 55
                rows[-1].partition_error_code = fault
            result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name, results_by_partition=rows
            )
            topics.append(result)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def add_group(self, request: AddOffsetsToTxnRequest) -> Reply:
        return AddOffsetsToTxnResponse(error_code=self.fault(request))

    def stage(self, request: TxnOffsetCommitRequest) -> Reply:
        fault = self.fault(request)
        topics = []
        for topic in request.topics:
            kind = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
            rows = [
                kind(partition_index=row.partition_index, error_code=fault)
                for row in topic.partitions
            ]
            topics.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                    name=topic.name, partitions=rows
                )
            )
            if not fault:
                staged = self.offsets.setdefault(topic.name, {})
                staged |= {row.partition_index: row.committed_offset for row in topic.partitions}
        return TxnOffsetCommitResponse(topics=topics)

    def end(self, request: EndTxnRequest) -> Reply:
        fault = self.fault(request)
        if fault and fault != FakeBroker.CLOSE:
            return EndTxnResponse(error_code=fault)
        if self.version >= 2 and request.producer_epoch == self.epoch:
            self.epoch += 1
        if fault == FakeBroker.CLOSE:
            return FakeBroker.CLOSE
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def ends(self) -> list[bool]:
        """Of each EndTxn that came, whether it was to commit."""
        return [request.committed for request in self.broker.of(EndTxnRequest)]

    def versions(self, kind: type) -> set[int]:
        """The versions of this kind of request that came."""
        return {
            header.api_version
            for header, request in self.broker.requests
            if isinstance(request, kind)
        }
